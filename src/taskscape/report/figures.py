"""The figures of the page that have no script of their own, as plotly's plain dicts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taskscape.diagram import CorrelationDiagram, Curve
from taskscape.plain_text import for_plotly
from taskscape.report.palette import FAINT, INK, SCALE
from taskscape.report.tasks import mean_accuracy
from taskscape.select.trials import Outcome
from taskscape.similarity.retrieval import Retrieval
from taskscape.study.result import StudyResult
from taskscape.themes.co_clustering import CoClustering

Figure = dict[str, Any]
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "cross")


def axis(text: str, **more: Any) -> dict[str, Any]:
    """An axis with a title."""
    return {"title": {"text": for_plotly(text)}, **more}


def _lines(name: str, x: Any, y: Any, mode: str = "lines", **more: Any) -> dict[str, Any]:
    """Points in a figure, joined by lines or not."""
    return {"type": "scatter", "mode": mode, "name": name, "x": x, "y": y, **more}


def bound_chart(model: CoClustering) -> Figure | None:
    """The bound of the tasks that evaluate the fit, and of those learned from, as it progressed."""
    traces: list[dict[str, Any]] = []
    steps, looks = getattr(model, "fit_info_", None) or [], model.elbo_history_.reshape(-1, 2)
    words = {"hovertemplate": "%{x:,} tasks<br>%{y:.3f} nats per sample<extra></extra>"}
    if steps:
        tasks, bounds = [s.tasks for s in steps], [s.elbo for s in steps]
        mode, line = "lines" if len(steps) > 2 else "lines+markers", {"color": FAINT, "width": 1.5}
        traces.append(_lines("tasks of each step", tasks, bounds, mode, line=line, **words))
    if len(looks):
        seen, line = for_plotly(model.held_out_), {"color": INK, "width": 2}
        more: dict[str, Any] = {"line": line, "marker": {"size": 6}, **words}
        traces.append(_lines(seen, looks[:, 0], looks[:, 1], "lines+markers", **more))
    if not traces:
        return None
    return {
        "data": traces,
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
    curves = [_curve(c, i, colours[c.learner]) for i, c in enumerate(diagram.curves)]
    return {
        "data": [*curves, tasks],
        "layout": {
            "xaxis": axis(diagram.distance_label, anchor="y2", showgrid=False),
            "yaxis": axis(diagram.accuracy_label, tickformat=".0%", domain=[0.24, 1.0]),
            "yaxis2": axis("tasks", nticks=3, domain=[0.0, 0.18]),
        },
    }


def _curve(curve: Curve, i: int, colour: str) -> dict[str, Any]:
    bins = curve.bins
    more: dict[str, Any] = {}
    if all(np.isfinite(b.accuracy_low) for b in bins):
        above = [b.accuracy_high - b.accuracy for b in bins]
        below = [b.accuracy - b.accuracy_low for b in bins]
        reach = {"symmetric": False, "array": above, "arrayminus": below}
        more["error_y"] = {"type": "data", "thickness": 1, **reach}
    return _lines(
        for_plotly(curve.learner), [b.distance for b in bins], [b.accuracy for b in bins],
        "lines+markers", customdata=[[b.n_tasks, b.low, b.high] for b in bins],
        hovertemplate=f"{for_plotly(curve.learner)}<br>accuracy %{{y:.3f}}<br>distance %{{x:.3g}} "
        "(%{customdata[1]:.3g} to %{customdata[2]:.3g})<br>%{customdata[0]} tasks<extra></extra>",
        marker={"color": colour, "symbol": _MARKERS[i % len(_MARKERS)], "size": 8},
        line={"color": colour, "dash": _DASHES[i % len(_DASHES)], "width": 2}, **more,
    )  # fmt: skip


def selection_chart(mine: Sequence[Outcome], colours: Mapping[str, str], asked: str = "") -> Figure:
    """Accuracy of a learner against the number of chosen tasks, a line for each rule."""
    budgets = sorted({o.budget for o in mine})
    rules = list(dict.fromkeys(o.rule for o in mine))
    wide = budgets[0] > 0 and budgets[-1] / budgets[0] > 5
    span = max(budgets[-1] - budgets[0], 1)
    traces = []
    for i, rule in enumerate(rules):
        points = sorted((o for o in mine if o.rule == rule), key=lambda o: o.budget)
        aside = (i - (len(rules) - 1) / 2) * 0.02  # so that intervals do not hide each other
        x = [o.budget * (1 + aside) if wide else o.budget + aside * span for o in points]
        traces.append(_rule_line(rule, x, points, i, colours[rule]))
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


def _rule_line(
    rule: str, x: list[float], points: Sequence[Outcome], i: int, colour: str
) -> dict[str, Any]:
    ends = [(o.accuracy.high - o.accuracy.value, o.accuracy.value - o.accuracy.low) for o in points]
    reach = dict(zip(("array", "arrayminus"), zip(*ends, strict=True), strict=True))
    return _lines(
        for_plotly(rule),
        x,
        [o.accuracy.value for o in points],
        "lines+markers",
        customdata=[[o.budget, o.n_trials] for o in points],
        error_y={"type": "data", "symmetric": False, **reach, "thickness": 1.2, "width": 3},
        line={"color": colour, "width": 2, "dash": _DASHES[i % len(_DASHES)]},
        marker={"size": 8, "symbol": _MARKERS[i % len(_MARKERS)]},
        hovertemplate=f"{for_plotly(rule)}, %{{customdata[0]:,}} tasks<br>%{{y:.1%}} "
        "(%{customdata[1]} trials)<extra></extra>",
    )


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
