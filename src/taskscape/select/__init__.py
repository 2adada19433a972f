"""Rules that choose training tasks for test tasks, by any notion of similarity."""

from taskscape.select.auto import Judge, LearnerJudge, RuleChoice, TrialOptions, choose_rule
from taskscape.select.choosing import select
from taskscape.select.rules import RULES, Rule, RuleOptions
from taskscape.select.selection import Selection

__all__ = [
    "RULES",
    "Judge",
    "LearnerJudge",
    "Rule",
    "RuleChoice",
    "RuleOptions",
    "Selection",
    "TrialOptions",
    "choose_rule",
    "select",
]
