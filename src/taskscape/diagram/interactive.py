"""The correlation diagram as a plotly figure, for the report; plain dicts, no import needed."""

import math
from typing import TYPE_CHECKING, Any

from taskscape.diagram.plot import COLOURS, label_of

if TYPE_CHECKING:
    from taskscape.diagram.result import CorrelationDiagram, Curve

__all__ = ["plotly_figure"]

_MARKERS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
_DASHES = ("solid", "dash", "dashdot", "dot")


def plotly_figure(diagram: "CorrelationDiagram") -> dict[str, Any]:
    """``{"data": …, "layout": …}``, for ``plotly.graph_objects.Figure`` or plotly.js."""
    bins = diagram.curves[0].bins
    tasks = {
        "type": "bar",
        "x": [(b.low + b.high) / 2 for b in bins],
        "y": [b.n_tasks for b in bins],
        "width": [b.high - b.low for b in bins],
        "marker": {"color": "#BFBFBF"},
        "yaxis": "y2",
        "showlegend": False,
        "hovertemplate": "%{y} tasks<extra></extra>",
    }
    axis = {"showgrid": True, "gridcolor": "#E5E5E5", "zeroline": False}
    layout = {
        "template": "none",
        "hovermode": "closest",
        "xaxis": {
            "title": {"text": diagram.distance_label},
            "anchor": "y2",
            "showgrid": False,
            "zeroline": False,
        },
        "yaxis": {"title": {"text": diagram.accuracy_label}, "domain": [0.24, 1.0], **axis},
        "yaxis2": {"title": {"text": "tasks"}, "domain": [0.0, 0.18], "nticks": 3, **axis},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "margin": {"l": 60, "r": 20, "t": 30 + 20 * len(diagram.curves), "b": 50},
    }
    return {
        "data": [*(_trace(c, i) for i, c in enumerate(diagram.curves)), tasks],
        "layout": layout,
    }


def _trace(curve: "Curve", i: int) -> dict[str, Any]:
    known = all(math.isfinite(b.accuracy_low) for b in curve.bins)
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label_of(curve),
        "x": [b.distance for b in curve.bins],
        "y": [b.accuracy for b in curve.bins],
        "customdata": [[b.n_tasks, b.low, b.high] for b in curve.bins],
        "hovertemplate": (
            f"{curve.learner}<br>accuracy %{{y:.3f}}<br>distance %{{x:.3g}} "
            "(%{customdata[1]:.3g} to %{customdata[2]:.3g})<br>%{customdata[0]} tasks"
            "<extra></extra>"
        ),
        "marker": {
            "color": COLOURS[i % len(COLOURS)],
            "symbol": _MARKERS[i % len(_MARKERS)],
            "size": 9,
        },
        "line": {"color": COLOURS[i % len(COLOURS)], "dash": _DASHES[i % len(_DASHES)]},
    }
    if known:
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [b.accuracy_high - b.accuracy for b in curve.bins],
            "arrayminus": [b.accuracy - b.accuracy_low for b in curve.bins],
            "thickness": 1,
        }
    return trace
