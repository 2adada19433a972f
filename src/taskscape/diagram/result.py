"""The numbers of a correlation diagram: as an object, in words, as a table, in a file."""

import math
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from taskscape.io.files import json_with
from taskscape.io.values import SavedAsJson
from taskscape.notebook import ShownInNotebooks
from taskscape.statistics import NO_INTERVALS, Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WHAT = "correlation diagram"
DIAGRAM_FILE = json_with("a correlation diagram", what=_WHAT)
"""What :meth:`CorrelationDiagram.save` may replace."""


@dataclass(frozen=True)
class Bin:
    """Test tasks at about the same distance: their number, mean distance and mean accuracy."""

    low: float
    high: float
    n_tasks: int
    distance: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float


@dataclass(frozen=True, repr=False)
class Curve:
    """One learner in the diagram."""

    learner: str
    bins: tuple[Bin, ...]
    spearman: Interval
    kendall: Interval
    slope: Interval
    """Change of accuracy per unit of distance, by least squares over tasks."""
    mean_accuracy: float
    n_evaluations: int
    split_half: float | None
    """Correlation of two halves of the evaluations; None if there was only one."""
    ceiling: float | None
    """The largest rank correlation that accuracy with this noise can have with anything."""
    partial: Interval | None
    """Rank correlation of accuracy and distance, given the tasks' difficulty."""
    difficulty: Interval | None
    """Rank correlation of accuracy and the (first) measure of difficulty."""

    def __repr__(self) -> str:
        return f"Curve({self.learner!r}, Spearman {self.spearman}, {len(self.bins)} bins)"

    def summary(self) -> str:
        """The correlations in a sentence."""
        parts = [f"{self.learner}: Spearman {self.spearman}, Kendall {self.kendall}"]
        low, high = self.slope.low, self.slope.high
        reach = "" if math.isnan(low) else f" [{low:.3g}, {high:.3g}]"
        parts.append(f"slope {self.slope.value:.3g}{reach}")
        if self.partial is not None:
            parts.append(f"Spearman given difficulty {self.partial}")
            parts.append(f"difficulty alone {self.difficulty}")
        if self.ceiling is None:
            parts.append("noise ceiling unknown (give accuracies of several evaluations)")
        else:
            parts.append(f"noise ceiling {self.ceiling:.2f} ({self.n_evaluations} evaluations)")
        return ", ".join(parts) + "."


@dataclass(frozen=True, repr=False)
class CorrelationDiagram(SavedAsJson, ShownInNotebooks):
    """Accuracy against distance to the training tasks, for one or several learners."""

    file, what = DIAGRAM_FILE, _WHAT
    curves: tuple[Curve, ...]
    n_tasks: int
    n_classes: int | None
    binning: str
    n_bins: int
    confidence: float
    interval_from: str
    """How the intervals were made; says so where classes were unknown."""
    distance_label: str
    accuracy_label: str
    distance_and_difficulty: float | None
    """Their rank correlation."""

    def __repr__(self) -> str:
        names = ", ".join(f"{c.learner} {c.spearman.value:.2f}" for c in self.curves)
        return f"CorrelationDiagram({self.n_tasks:,} tasks; Spearman: {names})"

    def summary(self) -> str:
        """All learners' correlations, and where the intervals come from."""
        classes = "" if self.n_classes is None else f" of {self.n_classes} classes"
        lines = [curve.summary() for curve in self.curves]
        lines.append(f"{self.n_tasks:,} test tasks{classes}; {self.intervals}.")
        return "\n".join(lines)

    @property
    def intervals(self) -> str:
        """How the intervals were made, or why there are none, in words."""
        if self.has_intervals:
            return f"{100 * self.confidence:g} % intervals by {self.interval_from}"
        return f"no intervals{self.interval_from.removeprefix(NO_INTERVALS)}"

    @property
    def has_intervals(self) -> bool:
        """Whether there were enough tasks and classes for them."""
        return not self.interval_from.startswith(NO_INTERVALS)

    def table(self) -> list[dict[str, Any]]:
        """One row per learner and bin; ``pandas.DataFrame(diagram.table())`` reads it."""
        return [{"learner": c.learner, **asdict(b)} for c in self.curves for b in c.bins]

    def plot(
        self, path: str | os.PathLike[str] | None = None, *, title: str | None = None
    ) -> "Figure":
        """The figure, which notebooks show; with a ``path``, written there as PNG, SVG or PDF."""
        from taskscape.diagram.plot import draw_figure

        return draw_figure(self, path, title)
