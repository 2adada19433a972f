"""Intervals for tasks that share classes: leave out, or resample, classes and never tasks."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import t as student

from taskscape.errors import DataError

__all__ = ["Interval", "Resamples", "make_resamples"]

_GROUPS = 50
_LEAST_TASKS = 5


@dataclass(frozen=True)
class Interval:
    """A number and its confidence interval; NaN where there is none."""

    value: float
    low: float = float("nan")
    high: float = float("nan")

    def __str__(self) -> str:
        if np.isnan(self.low):
            return f"{self.value:.2f}"
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True, eq=False)
class Resamples:
    """Sets of tasks to compute a statistic on again, and how its interval follows from them."""

    rows: tuple[Int[np.ndarray, "_"], ...]
    method: str
    """``"jackknife"`` or ``"bootstrap"``."""
    words: str
    """What was left out or resampled, for the reader."""
    confidence: float
    n_units: int
    """Classes, or groups of them, that vary independently."""

    def interval(
        self,
        statistic: Callable[[Int[np.ndarray, "some"]], float],
        everything: Int[np.ndarray, "tasks"],
        *,
        correlation: bool = False,
    ) -> Interval:
        """The statistic of all tasks, with a t interval; correlations on Fisher's z scale."""
        value = statistic(everything)
        again = np.array([statistic(rows) for rows in self.rows])
        again = again[np.isfinite(again)]
        if not np.isfinite(value) or len(again) < 4:
            return Interval(value)
        centre = _z(np.array([value]))[0] if correlation else value
        again = _z(again) if correlation else again
        n = len(again)
        if self.method == "jackknife":
            error = np.sqrt((n - 1) / n * ((again - again.mean()) ** 2).sum())
        else:
            error = again.std(ddof=1)
        reach = float(student.ppf((1 + self.confidence) / 2, self.n_units - 1)) * error
        low, high = centre - reach, centre + reach
        if correlation:
            low, high = np.tanh(low), np.tanh(high)
        return Interval(value, float(low), float(high))


def _z(correlations: Float[np.ndarray, "some"]) -> Float[np.ndarray, "some"]:
    return np.arctanh(np.clip(correlations, -0.9999, 0.9999))


def make_resamples(
    classes: Int[np.ndarray, "tasks way"] | None,
    n_tasks: int,
    *,
    method: str = "jackknife",
    n_resamples: int = 200,
    confidence: float = 0.95,
    seed: int = 0,
) -> Resamples:
    """Which tasks to leave out together, or to draw how often.

    ``"jackknife"`` leaves out each class in turn, that is all tasks that have it (more than 50
    classes are dealt into 50 groups). ``"bootstrap"`` draws classes with replacement; a task then
    counts as often as the product of how often its classes were drawn. Without classes the same is
    done to tasks, which gives too narrow an interval where tasks share classes.
    """
    if method not in ("jackknife", "bootstrap"):
        raise DataError(f"interval={method!r} is not known; use 'jackknife' or 'bootstrap'.")
    if not 0.5 <= confidence < 1:
        raise DataError(f"confidence={confidence} must lie between 0.5 and 1.")
    rng = np.random.default_rng(seed)
    units = np.arange(n_tasks)[:, None] if classes is None else classes
    real = units >= 0
    ids, flat = np.unique(units[real], return_inverse=True)
    number = np.full(units.shape, -1)
    number[real] = flat
    thing = "tasks (classes unknown: too narrow if tasks share classes)"
    thing = thing if classes is None else "classes"
    if method == "jackknife":
        n_groups = min(_GROUPS, len(ids))
        group = rng.permutation(len(ids)) % n_groups
        member = np.where(real, group[number], -1)
        rows = [np.flatnonzero((member != g).all(axis=1)) for g in range(n_groups)]
        many = f"{n_groups} groups of " if n_groups < len(ids) else ""
        words, n_units = f"leaving out {many}{thing}", n_groups
    else:
        rows = [_drawn(number, real, len(ids), rng) for _ in range(n_resamples)]
        words, n_units = f"{n_resamples} resamples of {thing}", len(ids)
    enough = [r for r in rows if len(np.unique(r)) >= _LEAST_TASKS]
    if len(enough) < max(4, len(rows) // 2):
        enough, words = [], f"none: too few tasks remain when {words}"
    return Resamples(tuple(enough), method, words, confidence, n_units)


def _drawn(
    number: Int[np.ndarray, "tasks way"],
    real: Bool[np.ndarray, "tasks way"],
    n_ids: int,
    rng: np.random.Generator,
) -> Int[np.ndarray, "drawn"]:
    times = np.bincount(rng.integers(n_ids, size=n_ids), minlength=n_ids)
    return np.repeat(np.arange(len(number)), np.where(real, times[number], 1).prod(axis=1))
