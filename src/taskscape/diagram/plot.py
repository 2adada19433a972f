"""The correlation diagram on paper: matplotlib, safe for colour-blind readers and for print."""

import os
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from taskscape.errors import DataError
from taskscape.files import save_picture
from taskscape.plain_text import plain

if TYPE_CHECKING:
    from taskscape.diagram.result import CorrelationDiagram, Curve

__all__ = ["COLOURS", "FORMATS", "save_figure"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, darkest first; markers and dashes differ too."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", "-", "--", "-.")
FORMATS = (".png", ".svg", ".pdf")


def save_figure(
    diagram: "CorrelationDiagram", path: str | os.PathLike[str], title: str | None = None
) -> None:
    """Draw the diagram into a file: curves with bands above, tasks per bin below."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        raise DataError(f"{os.fspath(path)}: draw to {', '.join(FORMATS)}, not {ending!r}.")
    style: Any = {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "taskscape",
        "pdf.fonttype": 42,
    }
    with rc_context(style):
        figure = Figure(figsize=(5.6, 4.6 + 0.18 * len(diagram.curves)), layout="constrained")
        above, below = figure.subplots(
            2, 1, sharex=True, gridspec_kw={"height_ratios": [5, 1], "hspace": 0.04}
        )
        for i, curve in enumerate(diagram.curves):
            _draw_curve(above, curve, i, len(diagram.curves))
        above.set_ylabel(plain(diagram.accuracy_label))
        above.grid(axis="y", color="0.9", linewidth=0.8)
        above.set_axisbelow(True)
        if title:
            above.set_title(plain(title), fontsize=10, loc="left")
        bins = diagram.curves[0].bins
        below.bar(
            [b.low for b in bins],
            [b.n_tasks for b in bins],
            width=[max(b.high - b.low, 1e-9) for b in bins],
            align="edge",
            color="0.75",
            edgecolor="white",
            linewidth=0.6,
        )
        below.set_ylabel("tasks")
        below.set_xlabel(plain(diagram.distance_label))
        counts = [b.n_tasks for b in bins]
        if max(counts) > 20 * min(counts):
            below.set_yscale("log")
            below.set_ylim(bottom=0.7)
        else:
            below.locator_params(axis="y", nbins=3)
        figure.align_ylabels()
        figure.legend(
            *above.get_legend_handles_labels(),
            loc="outside lower center",
            frameon=False,
            title=fill(f"{100 * diagram.confidence:g} % intervals: {diagram.interval_from}", 76),
            title_fontproperties={"size": 7.5},
        )
        save_picture(figure, path, dpi=200)


def _draw_curve(axes: object, curve: "Curve", i: int, n_curves: int) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    colour = COLOURS[i % len(COLOURS)]
    x = np.array([b.distance for b in curve.bins])
    low = np.array([b.accuracy_low for b in curve.bins])
    high = np.array([b.accuracy_high for b in curve.bins])
    y = np.array([b.accuracy for b in curve.bins])
    axes.plot(
        x,
        y,
        marker=MARKERS[i % len(MARKERS)],
        linestyle=DASHES[i % len(DASHES)],
        color=colour,
        markersize=5,
        linewidth=1.4,
        markeredgecolor="white",
        markeredgewidth=0.5,
        label=plain(label_of(curve)),
        zorder=3,
    )
    known = np.isfinite(low)
    if n_curves <= 2:
        axes.fill_between(x[known], low[known], high[known], color=colour, alpha=0.15, linewidth=0)
    else:
        reach = np.stack([y - low, high - y])[:, known]
        axes.errorbar(
            x[known], y[known], reach, fmt="none", ecolor=colour, elinewidth=0.8, alpha=0.6
        )


def label_of(curve: "Curve") -> str:
    """The learner with its correlation, and the ceiling where known."""
    ceiling = "" if curve.ceiling is None else f", ceiling {curve.ceiling:.2f}"
    rho = str(curve.spearman).replace("-", "−")
    return f"{curve.learner}: Spearman {rho}{ceiling}"
