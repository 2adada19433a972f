"""How well a number for each task tells its accuracy, beyond difficulty, and how surely."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import rankdata

from taskscape.diagram import Interval, noise_ceiling
from taskscape.diagram.resampling import Resamples, make_resamples
from taskscape.statistics import spearman

__all__ = ["GIVEN", "Target", "association"]

GIVEN = {"spearman": 0, "partial": 1, "partial_more": 3, "partial_all": 4}
"""By name, how many of the measures of difficulty a rank correlation is given."""
_NOTHING_LEFT = 1e-9


@dataclass(frozen=True, eq=False)
class Target:
    """Measured accuracies of tasks, with what is controlled for and what is left out in turn.

    Ranks of accuracy and difficulty in every resample are made once, for all that is compared with
    them.
    """

    accuracy: Float[np.ndarray, "tasks"]
    difficulty: Float[np.ndarray, "tasks controls"]
    resamples: Resamples
    ranks: tuple["_Ranks", ...]
    """Of all tasks, then of every resample."""
    ceiling: float
    n_classes: int

    @staticmethod
    def of(
        accuracies: Float[np.ndarray, "tasks episodes"],
        difficulty: Float[np.ndarray, "tasks controls"],
        classes: Int[np.ndarray, "tasks way"],
    ) -> "Target":
        """Tasks with their classes, so that intervals leave out classes."""
        accuracy = accuracies.mean(axis=1)
        resamples = make_resamples(classes.astype(np.int64), len(classes))
        every = (np.arange(len(classes)), *resamples.rows)
        return Target(
            accuracy,
            difficulty,
            resamples,
            tuple(_Ranks.of(rows, accuracy, difficulty) for rows in every),
            noise_ceiling(accuracies)[1],
            len(np.unique(classes[classes >= 0])),
        )


@dataclass(frozen=True, eq=False)
class _Ranks:
    """Ranks of accuracy among some tasks, and a basis of the ranks of difficulty."""

    rows: Int[np.ndarray, "some"]
    left: tuple[Float[np.ndarray, "some"], ...]
    """What is left of accuracy's ranks, of length one, for each of :data:`GIVEN`."""
    basis: Float[np.ndarray, "some controls"]

    @staticmethod
    def of(
        rows: Int[np.ndarray, "some"],
        accuracy: Float[np.ndarray, "tasks"],
        difficulty: Float[np.ndarray, "tasks controls"],
    ) -> "_Ranks":
        z = np.stack([_centred(column[rows]) for column in difficulty.T], axis=1)
        basis = np.linalg.qr(z)[0]
        y = _centred(accuracy[rows])
        return _Ranks(rows, tuple(_unit(_rest(y, basis[:, :n])) for n in GIVEN.values()), basis)

    def correlations(self, x: Float[np.ndarray, "tasks"]) -> Float[np.ndarray, "given"]:
        """Correlation of what is left of both; NaN where nothing is left of x."""
        ranks = _centred(x[self.rows])
        enough = _NOTHING_LEFT * max(float(ranks @ ranks), 1e-300)
        found = []
        for n, left in zip(GIVEN.values(), self.left, strict=True):
            rest = _rest(ranks, self.basis[:, :n])
            square = float(rest @ rest)
            found.append(float(rest @ left) / math.sqrt(square) if square > enough else math.nan)
        return np.clip(np.array(found), -1, 1)


def association(x: Float[np.ndarray, "tasks"], target: Target) -> dict[str, Any]:
    """Rank correlation of ``x`` with accuracy, alone and given difficulty, with 95 % intervals.

    ``partial`` is given the first measure of difficulty, ``partial_more`` the first three,
    ``partial_all`` all four.
    """
    table = np.stack([ranks.correlations(x) for ranks in target.ranks])
    place = {id(ranks.rows): i for i, ranks in enumerate(target.ranks)}
    found: dict[str, Any] = {}
    for column, name in enumerate(GIVEN):
        interval = target.resamples.interval(
            lambda rows, column=column: float(table[place[id(rows)], column]),  # type: ignore[misc]
            target.ranks[0].rows,
            correlation=True,
        )
        found[name] = _plain(interval)
    return {
        **found,
        "with_difficulty": _number(spearman(x, target.difficulty[:, 0])),
        "ceiling": round(target.ceiling, 4),
        "mean_accuracy": round(float(target.accuracy.mean()), 4),
        "n_tasks": len(x),
        "n_classes": target.n_classes,
    }


def _centred(values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    ranks = rankdata(values)
    return np.asarray(ranks - ranks.mean(), dtype=np.float64)


def _rest(
    values: Float[np.ndarray, "n"], basis: Float[np.ndarray, "n columns"]
) -> Float[np.ndarray, "n"]:
    return values - basis @ (basis.T @ values)


def _unit(values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return values / max(float(np.linalg.norm(values)), 1e-300)


def _plain(found: Interval) -> list[float | None]:
    return [_number(v) for v in (found.value, found.low, found.high)]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 4)
