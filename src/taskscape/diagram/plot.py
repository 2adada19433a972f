"""The correlation diagram as a picture.

Colours are safe for colour-blind readers, and markers and dashes differ too.
"""

import os
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from taskscape.errors import DataError
from taskscape.io.pictures import picture
from taskscape.plain_text import for_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from taskscape.diagram.result import CorrelationDiagram, Curve

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, darkest first."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", "-", "--", "-.")
FORMATS = (".png", ".svg", ".pdf")


def draw_figure(
    diagram: "CorrelationDiagram", path: str | os.PathLike[str] | None, title: str | None = None
) -> "Figure":
    """Draw the diagram: curves with bands above, tasks per bin below."""
    if path is not None and (ending := Path(path).suffix.lower()) not in FORMATS:
        raise DataError(f"{os.fspath(path)}: draw to {', '.join(FORMATS)}, not {ending!r}.")
    with picture(path, 5.6, 4.6 + 0.18 * len(diagram.curves)) as figure:
        above, below = figure.subplots(
            2, 1, sharex=True, gridspec_kw={"height_ratios": [5, 1], "hspace": 0.04}
        )
        for i, curve in enumerate(diagram.curves):
            _draw_curve(above, curve, i, len(diagram.curves))
        above.set_ylabel(for_matplotlib(diagram.accuracy_label))
        above.grid(axis="y", color="0.9", linewidth=0.8)
        above.set_axisbelow(True)
        if title:
            above.set_title(for_matplotlib(title), fontsize=10, loc="left")
        bins = diagram.curves[0].bins
        counts, widths = [b.n_tasks for b in bins], [max(b.high - b.low, 1e-9) for b in bins]
        below.bar(
            [b.low for b in bins], counts, width=widths, align="edge", color="0.75",
            edgecolor="white", linewidth=0.6,
        )  # fmt: skip
        below.set_ylabel("tasks")
        below.set_xlabel(for_matplotlib(diagram.distance_label))
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
            title=fill(diagram.intervals, 76),
            title_fontproperties={"size": 7.5},
        )
    return figure


def _draw_curve(axes: "Axes", curve: "Curve", i: int, n_curves: int) -> None:
    colour = COLOURS[i % len(COLOURS)]
    ceiling = "" if curve.ceiling is None else f", ceiling {curve.ceiling:.2f}"
    rho = str(curve.spearman).replace("-", "−")
    x, y, low, high = np.array(
        [(b.distance, b.accuracy, b.accuracy_low, b.accuracy_high) for b in curve.bins]
    ).T
    axes.plot(
        x, y, marker=MARKERS[i % len(MARKERS)], linestyle=DASHES[i % len(DASHES)], color=colour,
        markersize=5, linewidth=1.4, markeredgecolor="white", markeredgewidth=0.5, zorder=3,
        label=for_matplotlib(f"{curve.learner}: Spearman {rho}{ceiling}"),
    )  # fmt: skip
    known = np.isfinite(low)
    if n_curves <= 2:
        axes.fill_between(x[known], low[known], high[known], color=colour, alpha=0.15, linewidth=0)
    else:
        reach = np.stack([y - low, high - y])[:, known]
        axes.errorbar(
            x[known], y[known], reach, fmt="none", ecolor=colour, elinewidth=0.8, alpha=0.6
        )
