"""The numbers of the page as rows of tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from taskscape.pools import ClassPool
from taskscape.pools.pool import SPLITS
from taskscape.statistics import mean_interval
from taskscape.studies.outcome import SelectionTrial

__all__ = [
    "MeanOfTrials",
    "SelectionTable",
    "SplitRow",
    "flat_settings",
    "in_rows",
    "mean_of_trials",
    "percent",
    "selection_table",
    "split_rows",
]

Rows: TypeAlias = tuple[tuple[str, str], ...]
Number: TypeAlias = float | int | np.floating


@dataclass(frozen=True)
class MeanOfTrials:
    """The mean accuracy over the trials of one learner, rule and budget, with its interval."""

    learner: str
    rule: str
    budget: int
    n_trials: int
    mean: float
    half_width: float
    """Half of the interval of the mean; NaN for a single trial."""

    def __str__(self) -> str:
        if np.isnan(self.half_width):
            return percent(self.mean)
        return f"{100 * self.mean:.1f} ± {100 * self.half_width:.1f} %"


def mean_of_trials(trials: Sequence[SelectionTrial]) -> tuple[MeanOfTrials, ...]:
    r"""Means over trials with Student's interval, in the order in which they came.

    .. math:: \bar a \pm t_{n-1}\, s / \sqrt n
    """
    cells: dict[tuple[str, str, int], list[float]] = {}
    for trial in trials:
        accuracies = cells.setdefault((trial.learner, trial.rule, trial.budget), [])
        if np.isfinite(trial.accuracy):
            accuracies.append(trial.accuracy)
    return tuple(MeanOfTrials(*cell, *_mean(values)) for cell, values in cells.items())


def _mean(values: list[float]) -> tuple[int, float, float]:
    if not values:
        return 0, float("nan"), float("nan")
    mean = mean_interval(np.array(values))
    return len(values), mean.value, mean.reach


@dataclass(frozen=True)
class SelectionTable:
    """One learner's results: a row for each budget, a column for each rule."""

    learner: str
    rules: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]
    trials: str
    """How many trials a cell has."""


def selection_table(means: Sequence[MeanOfTrials], learner: str) -> SelectionTable:
    """The table under a learner's selection figure."""
    mine = {(m.budget, m.rule): m for m in means if m.learner == learner}
    rules = tuple(dict.fromkeys(rule for _, rule in mine))
    budgets = sorted({budget for budget, _ in mine})
    counts = sorted({m.n_trials for m in mine.values()})
    many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    rows = tuple(
        (b, tuple(str(mine[b, rule]) if (b, rule) in mine else "–" for rule in rules))
        for b in budgets
    )
    return SelectionTable(learner, rules, rows, many)


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
        rows.append(
            SplitRow(
                split,
                len(classes),
                int(pool.counts[classes].sum()),
                tuple((name, tuple(members)) for name, members in groups.items()),
            )
        )
    return tuple(rows)


def flat_settings(settings: Mapping[str, Any]) -> tuple[tuple[str, Rows], ...]:
    """Settings by stage, each as rows of a dotted name and a value in words."""
    general = {k: v for k, v in settings.items() if not isinstance(v, Mapping)}
    stages = {k: v for k, v in settings.items() if isinstance(v, Mapping)}
    named = ({"general": general} if general else {}) | stages
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
