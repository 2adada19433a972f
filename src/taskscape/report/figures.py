"""The figures of the page that have no script of their own, as plotly's plain dicts.

Each learner, rule, theme, split and group has one colour, the same in every figure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taskscape.diagram import CorrelationDiagram
from taskscape.plain_text import for_plotly
from taskscape.report.tasks import mean_accuracy
from taskscape.select import RULES
from taskscape.select.trials import Outcome
from taskscape.similarity.retrieval import Retrieval
from taskscape.statistics import Interval
from taskscape.study.result import StudyResult
from taskscape.themes.co_clustering import CoClustering

Figure = dict[str, Any]
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "cross")
INK, FAINT = "#1f2933", "#b8c2cc"
SPLITS = {"train": "#0072B2", "val": "#8a6200", "test": "#C04A00", "": "#0072B2"}
"""Of the classes of a split; darker than Okabe and Ito's, to be read as text."""
THEMES = (
    "#3d6ea5", "#b5485c", "#1f7a2e", "#946a00", "#2f7f9e", "#9a2d6b", "#666666", "#7a1e4b",
    "#2b7d70", "#6f6f1e", "#332288", "#b5502f",
)  # fmt: skip
"""Of the task-themes; after Paul Tol, darkened until white numbers can be read on them."""
SCALE = ((0.0, "#d9ecc7"), (0.25, "#7fcdbb"), (0.5, "#2c9fb8"), (0.75, "#225ea8"), (1.0, "#0c1f5c"))
"""From little to much: light to dark, so that it can be read in grey."""
_RULES = ("#332288", "#117733", "#AA4499", "#7a7a1f", "#6b7280")
"""Of the selection rules, in the order of their registry."""
_OTHERS = ("#882255", *THEMES[4:], *THEMES[:4])
"""Of what else a study chose by, in its own order."""


def rule_colours(rules: Sequence[str]) -> dict[str, str]:
    """A colour for each selection rule; known rules have the same one in every report."""
    known = dict(zip(RULES, _RULES, strict=False))
    others = [rule for rule in dict.fromkeys(rules) if rule not in known]
    colours = known | {rule: _OTHERS[i % len(_OTHERS)] for i, rule in enumerate(others)}
    return {rule: colours[rule] for rule in dict.fromkeys(rules)}


def axis(text: str, **more: Any) -> dict[str, Any]:
    """An axis with a title."""
    return {"title": {"text": for_plotly(text)}, **more}


def _lines(name: str, x: Any, y: Any, mode: str = "lines", **more: Any) -> dict[str, Any]:
    """Points in a figure, joined by lines or not."""
    return {"type": "scatter", "mode": mode, "name": name, "x": x, "y": y, **more}


def _measured(
    name: str, i: int, colour: str, x: Sequence[float], measured: Sequence[Interval], hover: str,
    customdata: list[list[Any]],
) -> dict[str, Any]:  # fmt: skip
    """A line through what was measured, with the intervals that are known as bars."""
    more: dict[str, Any] = {}
    if any(np.isfinite(m.low) for m in measured):
        above, below = [m.high - m.value for m in measured], [m.value - m.low for m in measured]
        reach = {"symmetric": False, "array": above, "arrayminus": below}
        more["error_y"] = {"type": "data", "thickness": 1, **reach}
    return _lines(
        for_plotly(name), x, [m.value for m in measured], "lines+markers", customdata=customdata,
        hovertemplate=f"{for_plotly(name)}{hover}<extra></extra>",
        marker={"color": colour, "symbol": _MARKERS[i % len(_MARKERS)], "size": 8},
        line={"color": colour, "dash": _DASHES[i % len(_DASHES)], "width": 2}, **more,
    )  # fmt: skip


def bound_chart(model: CoClustering) -> Figure:
    """The bound of the tasks that evaluate the fit, as it progressed."""
    looks = model.elbo_history_.reshape(-1, 2)
    bound = _lines(
        for_plotly(model.held_out_), looks[:, 0], looks[:, 1], "lines+markers",
        line={"color": INK, "width": 2}, marker={"size": 6},
        hovertemplate="%{x:,} tasks<br>%{y:.3f} nats per sample<extra></extra>",
    )  # fmt: skip
    return {
        "data": [bound],
        "layout": {
            "xaxis": axis("tasks learned from", rangemode="tozero"),
            "yaxis": axis("bound (nats per sample)"),
        },
    }


def diagram_chart(diagram: CorrelationDiagram, colours: Mapping[str, str]) -> Figure:
    """The correlation diagram: curves with bars above, tasks per bin below."""
    bins = diagram.curves[0].bins
    tasks = {
        "type": "bar", "x": [(b.low + b.high) / 2 for b in bins], "y": [b.n_tasks for b in bins],
        "width": [b.high - b.low for b in bins], "marker": {"color": FAINT}, "yaxis": "y2",
        "showlegend": False, "hovertemplate": "%{y} tasks<extra></extra>",
    }  # fmt: skip
    curves = [
        _measured(
            c.learner, i, colours[c.learner], [b.distance for b in c.bins],
            [Interval(b.accuracy, b.accuracy_low, b.accuracy_high) for b in c.bins],
            "<br>accuracy %{y:.3f}<br>distance %{x:.3g} (%{customdata[1]:.3g} to "
            "%{customdata[2]:.3g})<br>%{customdata[0]} tasks",
            [[b.n_tasks, b.low, b.high] for b in c.bins],
        )
        for i, c in enumerate(diagram.curves)
    ]  # fmt: skip
    return {
        "data": [*curves, tasks],
        "layout": {
            "xaxis": axis(diagram.distance_label, anchor="y2", showgrid=False),
            "yaxis": axis(diagram.accuracy_label, tickformat=".0%", domain=[0.24, 1.0]),
            "yaxis2": axis("tasks", nticks=3, domain=[0.0, 0.18]),
        },
    }


def selection_chart(mine: Sequence[Outcome], colours: Mapping[str, str], asked: str = "") -> Figure:
    """Accuracy of a learner against the number of chosen tasks, a line for each rule."""
    budgets = sorted({o.budget for o in mine})
    rules = list(dict.fromkeys(o.rule for o in mine))
    wide = budgets[-1] / budgets[0] > 5
    span = max(budgets[-1] - budgets[0], 1)
    traces = []
    for i, rule in enumerate(rules):
        points = sorted((o for o in mine if o.rule == rule), key=lambda o: o.budget)
        aside = (i - (len(rules) - 1) / 2) * 0.02  # so that intervals do not hide each other
        x = [o.budget * (1 + aside) if wide else o.budget + aside * span for o in points]
        hover = ", %{customdata[0]:,} tasks<br>%{y:.1%} (%{customdata[1]} trials)"
        custom = [[o.budget, o.n_trials] for o in points]
        reached = [o.accuracy for o in points]
        traces.append(_measured(rule, i, colours[rule], x, reached, hover, custom))
    x_axis = axis("chosen training tasks", tickvals=budgets, ticktext=[f"{b:,}" for b in budgets])
    # space on both sides of a single budget, so that its rules stand together
    room = {"range": [budgets[0] - 0.1, budgets[0] + 0.1]} if len(budgets) == 1 else {}
    known = [o.accuracy.value for o in mine if np.isfinite(o.accuracy.value)]
    digits = ".0%" if max(known, default=0.0) - min(known, default=0.0) > 0.03 else ".1%"
    return {
        "data": traces,
        "layout": {
            "xaxis": {**x_axis, "type": "log" if wide else "linear", **room},
            "yaxis": axis(f"{asked} accuracy, mean".strip(), tickformat=digits),
        },
    }


def forecast_chart(result: StudyResult, learner: str, rows: np.ndarray, colour: str) -> Figure:
    """Actual against expected accuracy, with each task's interval."""
    forecast = result.forecasts[learner]
    actual = mean_accuracy(result.accuracy[learner])[rows]
    expected, low, high = (getattr(forecast, f)[rows] for f in ("expected", "low", "high"))
    inside = (actual >= low) & (actual <= high)
    known = np.concatenate([expected, actual])
    known = known[np.isfinite(known)]
    ends = [float(known.min()), float(known.max())] if len(known) else [0.0, 1.0]
    order = np.argsort(expected, kind="stable")

    def points(which: np.ndarray, name: str, symbol: str) -> dict[str, Any]:
        return _lines(
            name, expected[which], actual[which], "markers",
            customdata=np.stack([result.test.ids[rows][which], np.flatnonzero(which)], axis=1),
            marker={"color": colour, "symbol": symbol, "size": 5.5, "opacity": 0.75},
            hovertemplate="test task %{customdata[0]}<br>expected %{x:.1%}<br>actual %{y:.1%}"
            "<extra></extra>",
        )  # fmt: skip

    gap = np.full(len(order), np.nan)
    traces = [
        _lines(
            f"{100 * forecast.confidence:g} % intervals",
            np.stack([expected, expected, gap], 1)[order].ravel(),
            np.stack([low, high, gap], 1)[order].ravel(),
            line={"color": FAINT, "width": 1}, opacity=0.5, hoverinfo="skip",
        ),
        points(inside, "within the interval", "circle"),
        points(~inside, "outside", "circle-open"),
        _lines("as expected", ends, ends, line={"color": INK, "width": 1, "dash": "dot"},
               hoverinfo="skip"),
    ]  # fmt: skip
    return {
        "data": traces,
        "layout": {
            "xaxis": axis("expected accuracy", tickformat=".0%"),
            "yaxis": axis("actual accuracy", tickformat=".0%"),
        },
    }


def retrieval_chart(test: Retrieval) -> Figure:
    """Who is taken for whom: a row for each queried group, a column for each that can be found."""
    heat = {
        "type": "heatmap", "z": 100 * test.taken_for, "zmin": 0, "zmax": 100, "colorscale": SCALE,
        "x": [for_plotly(g) for g in test.candidates], "y": [for_plotly(g) for g in test.groups],
        "colorbar": {"title": {"text": "% of queries", "side": "right"}, "thickness": 12,
                     "outlinewidth": 0},
        "hovertemplate": "%{y} → %{x}: %{z:.0f} %<extra></extra>",
    }  # fmt: skip
    return {
        "data": [heat],
        "layout": {
            "xaxis": axis("group of the nearest task", tickangle=-60, showgrid=False),
            "yaxis": axis("group of the query", autorange="reversed", showgrid=False),
        },
    }
