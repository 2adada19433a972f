"""Rules that choose training tasks for test tasks."""

from taskscape.select.auto import Judge, RuleChoice, TrialOptions, choose_rule
from taskscape.select.choosing import select, select_by
from taskscape.select.rules import RULES, Rule, RuleOptions
from taskscape.select.selection import Selection
from taskscape.select.sources import DistanceSource, EmbeddingSource, KLSource, MatrixSource

__all__ = [
    "RULES",
    "DistanceSource",
    "EmbeddingSource",
    "Judge",
    "KLSource",
    "MatrixSource",
    "Rule",
    "RuleChoice",
    "RuleOptions",
    "Selection",
    "TrialOptions",
    "choose_rule",
    "select",
    "select_by",
]
