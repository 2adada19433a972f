"""What a forecast says: expected accuracies with intervals, and how right they were."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from taskscape.io.files import json_with
from taskscape.io.pictures import picture
from taskscape.io.values import SavedAsJson, plain
from taskscape.notebook import ShownInNotebooks
from taskscape.plain_text import for_matplotlib
from taskscape.statistics import Interval, make_resamples, noise_ceiling, spearman

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORECASTS_FILE = json_with("a list of forecasts", what="forecasts")
"""What ``save`` may replace."""
BECAUSE = "because of "
"""How the names of columns begin that hold reasons."""


@dataclass(frozen=True, eq=False, repr=False)
class Forecasts(SavedAsJson, ShownInNotebooks):
    """The expected accuracy of one trained learner on each of several tasks."""

    file, what = FORECASTS_FILE, "forecasts"
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

    def __repr__(self) -> str:
        return f"Forecasts({self.learner!r}, {len(self):,} tasks, mean {self.expected.mean():.3f})"

    def summary(self) -> str:
        """The forecasts in a sentence."""
        outside = ""
        if self.outside is not None and self.outside.any():
            outside = f" {int(self.outside.sum()):,} are unlike all calibration tasks in something."
        return (
            f"{self.learner}: expected accuracy over {len(self):,} tasks "
            f"{100 * self.expected.mean():.1f} % (from {100 * self.expected.min():.1f} to "
            f"{100 * self.expected.max():.1f}), with {100 * self.confidence:g} % intervals "
            f"{100 * (self.high - self.low).mean():.1f} points wide on average.{outside}"
        )

    def columns(self) -> dict[str, Float[np.ndarray, "tasks"] | Bool[np.ndarray, "tasks"]]:
        """The columns of a table of the tasks, with one for each of the reasons."""
        known = {name: getattr(self, name) for name in ("expected", "low", "high", "outside")}
        columns = {name: values for name, values in known.items() if values is not None}
        return columns | {BECAUSE + what: moved for what, moved in self.reasons.items()}

    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        accuracy: Float[np.ndarray, "tasks"] | None = None,
        title: str | None = None,
    ) -> "Figure":
        """The tasks from the hardest to the easiest: a figure, which notebooks show.

        ``accuracy``, where it is known by now, is what was then measured on each task.
        """
        order, place = np.argsort(self.expected, kind="stable"), np.arange(len(self))
        with picture(path, 5.6, 3.6) as figure:
            axes = figure.subplots()
            intervals = f"{100 * self.confidence:g} % intervals"
            axes.vlines(
                place, self.low[order], self.high[order], color="#0072B2", alpha=0.3,
                label=intervals,
            )  # fmt: skip
            axes.plot(place, self.expected[order], ".", color="#0072B2", label="expected")
            if accuracy is not None:
                axes.plot(place, accuracy[order], "x", color="#D55E00", label="measured")
            axes.set_xlabel("tasks, from the hardest")
            axes.set_ylabel("accuracy")
            axes.set_title(for_matplotlib(title or self.learner), fontsize=10, loc="left")
            axes.legend(frameon=False)
        return figure


_FEWER = 0.1
"""Of the tasks: so many fewer within their intervals are said, however few classes there are."""


@dataclass(frozen=True)
class ForecastEvaluation:
    """How forecasts compare with what the learner then did on the same tasks."""

    learner: str
    n_tasks: int
    spearman: float
    mean_absolute_error: float
    coverage: float
    """The part of tasks whose accuracy lay within the interval."""
    confidence: float
    """The part that should have."""
    ceiling: float | None
    """The rank correlation that a perfect forecast would have, given the noise of accuracies."""
    always_mean_error: float
    """The mean absolute error of expecting the calibration tasks' mean for every task."""
    spearman_interval: tuple[float, float] | None = None
    """95 % intervals, by leaving out classes; None where there are too few."""
    coverage_interval: tuple[float, float] | None = None
    mean_width: float | None = None
    """Of the intervals for the tasks."""
    advantage_interval: tuple[float, float] | None = None
    """By how much always expecting the mean errs more, likewise."""

    @property
    def sign(self) -> int:
        """1 if forecasts are clearly closer than the mean, -1 if clearly not, 0 if that is open."""
        low, high = self.advantage_interval or (np.nan, np.nan)
        return Interval(np.nan, low, high).sign(3)

    @property
    def too_narrow(self) -> bool:
        """Whether the intervals hold clearly, or by a tenth of the tasks, too few."""
        ends = self.coverage_interval or (np.nan, np.nan)
        short = Interval(np.nan, *(end - self.confidence for end in ends)).sign(2) < 0
        return short or self.coverage < self.confidence - _FEWER

    @property
    def beats_mean(self) -> bool:
        """Whether it errs less than always expecting the mean, to the tenth of a point shown.

        If not, there is no forecast worth the name, and its reasons explain nothing.
        """
        return round(self.mean_absolute_error, 3) < round(self.always_mean_error, 3)

    def summary(self) -> str:
        """The evaluation in words."""
        ceiling = "" if self.ceiling is None else f" (ceiling {self.ceiling:.2f})"
        verdict = "" if self.beats_mean else " No forecast: the mean is as good."
        if self.too_narrow:
            verdict += " The intervals are too narrow."
        return (
            f"{self.learner} on {self.n_tasks:,} tasks: rank correlation {self.spearman:.2f}"
            f"{ceiling}; mean error {100 * self.mean_absolute_error:.1f} points, "
            f"{100 * self.always_mean_error:.1f} if always the mean were expected; the "
            f"{100 * self.confidence:.0f} % interval held {100 * self.coverage:.0f} %.{verdict}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers and lists, ready for JSON; NaN becomes None."""
        return plain(self)


def evaluate_forecasts(
    forecasts: Forecasts,
    accuracy: Float[np.ndarray, "tasks episodes"],
    classes: Int[np.ndarray, "tasks way"],
    mean_accuracy: float,
) -> ForecastEvaluation:
    """Forecasts against measured accuracies, and against always expecting ``mean_accuracy``."""
    measured = accuracy.mean(axis=1)
    error = np.abs(forecasts.expected - measured)
    of_mean = np.abs(measured - mean_accuracy)
    resamples = make_resamples(classes, len(measured))
    held = (forecasts.low <= measured) & (measured <= forecasts.high)

    def ends(
        statistic: Callable[[Int[np.ndarray, "_"]], float], least: float, correlation: bool = False
    ) -> tuple[float, float] | None:
        around = resamples.interval(statistic, correlation=correlation).within(least, 1.0)
        return None if np.isnan(around.low) else (around.low, around.high)

    return ForecastEvaluation(
        learner=forecasts.learner,
        n_tasks=len(measured),
        spearman=spearman(forecasts.expected, measured),
        mean_absolute_error=float(error.mean()),
        coverage=float(held.mean()),
        confidence=forecasts.confidence,
        ceiling=noise_ceiling(accuracy)[1] if accuracy.shape[1] > 1 else None,
        always_mean_error=float(of_mean.mean()),
        advantage_interval=ends(lambda rows: float((of_mean - error)[rows].mean()), -1.0),
        spearman_interval=ends(
            lambda rows: spearman(forecasts.expected[rows], measured[rows]), -1.0, correlation=True
        ),
        coverage_interval=ends(lambda rows: float(held[rows].mean()), 0.0),
        mean_width=float((forecasts.high - forecasts.low).mean()),
    )
