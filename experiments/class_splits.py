"""Do intervals hold what they say? Validation classes split again and again into two parts.

Coverage on one set of classes says little: tasks share classes, so that the share held by a 90 %
interval differs between sets of 20 classes by ten points either way. Many splits of the validation
classes into some to calibrate with and the others to test on have an average that says more, and
the test classes are not touched.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.arguments import check_whole
from taskscape.errors import DataError
from taskscape.forecast import Forecaster, ForecastWarning
from taskscape.forecast.features import Described
from taskscape.statistics import make_resamples
from taskscape.tasks import TaskSet

__all__ = ["ClassSplits", "DrawnSplits", "coverage_over_splits"]


@dataclass(frozen=True)
class ClassSplits:
    """How often, and into what, to split classes."""

    n_classes: int
    """To calibrate with; all others are left out."""
    n_splits: int = 40
    calibration_tasks: int = 150
    held_out_tasks: int = 60
    """At most, in each split; where there are fewer combinations of classes, all of them."""

    def check(self, n_known: int, n_way: int) -> None:
        """Refuse splits that ``n_known`` classes do not allow."""
        check_whole(self.n_splits, "splits", 2)
        least, most = n_way + 1, n_known - n_way
        if not least <= self.n_classes <= most:
            raise DataError(
                f"split_classes={self.n_classes}: of {n_known} validation classes, {n_way}-way "
                f"tasks need from {least} to calibrate with, and leave out {n_way} or more: at "
                f"most {most}. Choose a number between, or lower n_way."
            )

    def draw(self, known: Int[np.ndarray, "classes"], n_way: int, seed: int) -> "DrawnSplits":
        """The tasks of every split; a set of classes that comes again is the same task."""
        self.check(len(known), n_way)
        rng = np.random.default_rng(seed)
        numbers: dict[tuple[int, ...], int] = {}

        def rows(classes: Int[np.ndarray, "subset"], most: int) -> Int[np.ndarray, "tasks"]:
            tasks = _sets(rng, sorted(classes.tolist()), n_way, most)
            return np.array([numbers.setdefault(task, len(numbers)) for task in tasks])

        splits = []
        for _ in range(self.n_splits):
            order = rng.permutation(known)
            inside, outside = order[: self.n_classes], order[self.n_classes :]
            splits.append(
                (rows(inside, self.calibration_tasks), rows(outside, self.held_out_tasks))
            )
        return DrawnSplits(tuple(numbers), tuple(splits))


@dataclass(frozen=True, eq=False)
class DrawnSplits:
    """Sets of classes, and which of them are calibrated with and evaluated by in each split."""

    tasks: tuple[tuple[int, ...], ...]
    rows: tuple[tuple[Int[np.ndarray, "inside"], Int[np.ndarray, "outside"]], ...]


def _sets(
    rng: np.random.Generator, classes: Sequence[int], n_way: int, most: int
) -> list[tuple[int, ...]]:
    """All combinations of classes, or a sample of different ones where there are more."""
    if comb(len(classes), n_way) <= most:
        return list(combinations(classes, n_way))
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < most:
        drawn[tuple(sorted(rng.choice(classes, n_way, replace=False).tolist()))] = None
    return list(drawn)


def coverage_over_splits(
    forecaster: Forecaster,
    tasks: TaskSet,
    accuracy: Float[np.ndarray, "tasks episodes"],
    described: Described,
    splits: DrawnSplits,
) -> dict[str, Any]:
    """What intervals held on classes left out, on average, and how wide they were.

    The interval of the coverage leaves out classes, that is all left-out tasks that have one.
    """
    measured = accuracy.mean(axis=1)
    forecasts = []
    for inside, outside in splits.rows:
        known, new = ({k: v[rows] for k, v in described.items()} for rows in (inside, outside))
        with warnings.catch_warnings():
            # few classes, and tasks beyond the range of the others, are what is tried here
            warnings.simplefilter("ignore", ForecastWarning)
            forecaster.fit(tasks[inside], accuracy[inside], described=known)
            forecasts.append(forecaster.predict(tasks[outside], described=new))
    rows = np.concatenate([outside for _, outside in splits.rows])
    low, high, expected = (
        np.concatenate([getattr(split, name) for split in forecasts])
        for name in ("low", "high", "expected")
    )
    actual = measured[rows]
    held = (low <= actual) & (actual <= high)
    ends = np.cumsum([len(outside) for _, outside in splits.rows])[:-1]
    by_split = [float(h.mean()) for h in np.split(held, ends)]
    resamples = make_resamples(tasks.classes[rows], len(rows))
    share = resamples.interval(lambda own: float(held[own].mean())).within(0.0, 1.0)
    return {
        "coverage": float(np.mean(by_split)),
        "coverage_interval": [share.low, share.high],
        "confidence": forecaster.confidence,
        "between_splits": float(np.std(by_split, ddof=1)),
        "below": float((actual < low).mean()),
        "above": float((actual > high).mean()),
        "mean_width": float((high - low).mean()),
        "mean_absolute_error": float(np.abs(expected - actual).mean()),
        "coverage_by_split": [round(value, 4) for value in by_split],
    }
