"""What a forecast says: expected accuracies with intervals, and how such forecasts were judged."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

__all__ = ["Forecasts", "Judgement"]


@dataclass(frozen=True, eq=False)
class Forecasts:
    """The expected accuracy of one trained learner on each of some tasks."""

    learner: str
    expected: Float[np.ndarray, "tasks"]
    low: Float[np.ndarray, "tasks"]
    high: Float[np.ndarray, "tasks"]
    confidence: float
    """The part of tasks whose accuracy the interval is meant to hold, such as 0.9."""
    reasons: Mapping[str, Float[np.ndarray, "tasks"]]
    """For each thing the forecast looks at, in words, how much it moved the expected accuracy of
    each task, up or down, from that of the average task."""
    average: float | None = None
    """The expected accuracy of the average calibration task, which the reasons start from."""
    outside: Bool[np.ndarray, "tasks"] | None = None
    """Whether a task is unlike all calibration tasks in something; trust such forecasts less."""

    def __len__(self) -> int:
        return len(self.expected)


@dataclass(frozen=True)
class Judgement:
    """How forecasts compare with what the learner then did on the same tasks."""

    learner: str
    n_tasks: int
    spearman: float
    mean_absolute_error: float
    coverage: float
    """The part of tasks whose accuracy lay within the interval."""
    confidence: float
    """The part that should have."""
    ceiling: float | None = None
    """The rank correlation that a perfect forecast would have, given the noise of accuracies."""
    always_mean_error: float | None = None
    """The mean absolute error of expecting the calibration tasks' mean for every task."""
    spearman_interval: tuple[float, float] | None = None
    """95 % intervals, by leaving out classes; None where there are too few."""
    error_interval: tuple[float, float] | None = None
    coverage_interval: tuple[float, float] | None = None
    mean_width: float | None = None
    """Of the intervals for the tasks."""

    def summary(self) -> str:
        """The judgement in words."""
        ceiling = "" if self.ceiling is None else f" (ceiling {self.ceiling:.2f})"
        against = ""
        if self.always_mean_error is not None:
            against = f", {100 * self.always_mean_error:.1f} if always the mean were expected"
        return (
            f"{self.learner} on {self.n_tasks:,} tasks: rank correlation {self.spearman:.2f}"
            f"{ceiling}; mean error {100 * self.mean_absolute_error:.1f} points{against}; the "
            f"{100 * self.confidence:.0f} % interval held {100 * self.coverage:.0f} %."
        )
