"""How well a number for each task tells its accuracy, beyond difficulty, and how surely."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.statistics import RankTarget, make_resamples, noise_ceiling, spearman

__all__ = ["GIVEN", "Target", "association"]

GIVEN = {"spearman": 0, "partial": 1, "partial_more": 3, "partial_all": 4}
"""By name, how many of the measures of difficulty a rank correlation is given."""


@dataclass(frozen=True, eq=False)
class Target:
    """Measured accuracies of tasks, with what is controlled for and what is left out in turn."""

    accuracy: Float[np.ndarray, "tasks"]
    difficulty: Float[np.ndarray, "tasks controls"]
    ranks: RankTarget
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
        return Target(
            accuracy,
            difficulty,
            RankTarget.of(accuracy, difficulty, resamples, tuple(GIVEN.values())),
            noise_ceiling(accuracies)[1],
            len(np.unique(classes[classes >= 0])),
        )


def association(x: Float[np.ndarray, "tasks"], target: Target) -> dict[str, Any]:
    """Rank correlation of ``x`` with accuracy, alone and given difficulty, with 95 % intervals.

    ``partial`` is given the first measure of difficulty, ``partial_more`` the first three,
    ``partial_all`` all four.
    """
    return {
        **{
            name: [_number(v) for v in (rho.value, rho.low, rho.high)]
            for name, rho in zip(GIVEN, target.ranks.correlations(x), strict=True)
        },
        "with_difficulty": _number(spearman(x, target.difficulty[:, 0])),
        "ceiling": round(target.ceiling, 4),
        "mean_accuracy": round(float(target.accuracy.mean()), 4),
        "n_tasks": len(x),
        "n_classes": target.n_classes,
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 4)
