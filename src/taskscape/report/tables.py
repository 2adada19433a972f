"""The numbers of the page as rows of tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from taskscape.plain_text import low_to_high
from taskscape.pools import ClassPool
from taskscape.pools.pool import SPLITS
from taskscape.select.known import RULES
from taskscape.select.trials import Gain, Outcome

Rows: TypeAlias = tuple[tuple[str, str], ...]
Number: TypeAlias = float | int | np.floating


@dataclass(frozen=True)
class SelectionTable:
    """One learner's results: a row for each budget and rule."""

    learner: str
    rules: tuple[str, ...]
    rows: tuple["SelectionRow", ...]
    trials: str
    """How many trials a row has."""

    @property
    def meanings(self) -> tuple[tuple[str, str], ...]:
        """Each rule, and which tasks it chooses."""
        return tuple((rule, RULES[rule.partition(":")[0]].meaning) for rule in self.rules)


@dataclass(frozen=True)
class SelectionRow:
    """What training on the tasks that a rule chose came to."""

    budget: int
    rule: str
    accuracy: str
    """The mean over trials, with its interval over trials."""
    gain: Gain | None
    """Over random choice; None for random choice itself."""

    @property
    def verdict(self) -> str:
        """Whether the gain is clear, as the findings have it."""
        if self.gain is None:
            return "–"
        if not self.gain.sign:
            return "no"
        return "better" if self.gain.value > 0 else "worse"


def selection_table(outcomes: Sequence[Outcome], learner: str) -> SelectionTable:
    """The table under a learner's selection figure."""
    mine = {(o.budget, o.rule): o for o in outcomes if o.learner == learner}
    rules = tuple(dict.fromkeys(rule for _, rule in mine))
    budgets = sorted({budget for budget, _ in mine})
    rows = tuple(
        SelectionRow(b, rule, _mean(mine[b, rule]), mine[b, rule].gain)
        for b in budgets
        for rule in rules
        if (b, rule) in mine
    )
    return SelectionTable(learner, rules, rows, low_to_high(o.n_trials for o in mine.values()))


def _mean(outcome: Outcome) -> str:
    mean = outcome.accuracy
    if np.isnan(mean.reach):
        return percent(mean.value)
    return f"{100 * mean.value:.1f} ± {100 * mean.reach:.1f} %"


@dataclass(frozen=True)
class SplitRow:
    """The classes of one split, by group."""

    split: str
    n_classes: int
    n_samples: int
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    """Each group with its classes; one nameless group where the pool has none."""


def split_rows(pool: ClassPool) -> tuple[SplitRow, ...]:
    """The splits of a pool, in order; one nameless split where it has none."""
    splits = [""] if pool.splits is None else [s for s in SPLITS if s in pool.splits]
    rows = []
    for split in splits:
        classes = pool.classes_in(split or None)
        groups: dict[str, list[int]] = {}
        for c in classes.tolist():
            groups.setdefault("" if pool.groups is None else pool.groups[c], []).append(c)
        members = tuple((name, tuple(own)) for name, own in groups.items())
        rows.append(SplitRow(split, len(classes), int(pool.counts[classes].sum()), members))
    return tuple(rows)


def flat_settings(settings: Mapping[str, Any]) -> tuple[tuple[str, Rows], ...]:
    """Settings by stage, each as rows of a dotted name and a value in words."""
    general = {k: v for k, v in settings.items() if not isinstance(v, Mapping)}
    named: dict[str, Mapping[str, Any]] = {"general": general} if general else {}
    named |= {k: v for k, v in settings.items() if isinstance(v, Mapping)}
    return tuple((str(stage), in_rows(values)) for stage, values in named.items())


def in_rows(values: Mapping[str, Any], before: str = "") -> Rows:
    """Nested values as rows of a dotted name and words."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            rows += in_rows(value, f"{before}{name}.")
        else:
            rows.append((f"{before}{name}", _in_words(value)))
    return tuple(rows)


def _in_words(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(_in_words(v) for v in value) or "none"
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


def percent(value: Number) -> str:
    """A share in per cent; a dash where it is unknown."""
    return f"{100 * value:.1f} %" if np.isfinite(value) else "–"
