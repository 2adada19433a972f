"""The figures of the page that have no script of their own, as plotly's plain dicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from taskscape.compare import distances
from taskscape.compare.retrieval import Retrieval
from taskscape.diagram import CorrelationDiagram
from taskscape.embeddings import Embeddings
from taskscape.plain_text import for_plotly
from taskscape.report.palette import FAINT, INK, SCALE
from taskscape.report.tasks import mean_accuracy, shared_out
from taskscape.select.trials import Outcome
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
    """The bound of the tasks that judge the fit, and of those learned from, as it went on."""
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


def usage_chart(shares: Sequence[float], what: str, colours: Sequence[str]) -> Figure:
    """How much of the data each theme explains, with an even share as a mark."""
    even = 1 / max(len(shares), 1)
    return {
        "data": [
            {
                "type": "bar", "x": list(range(1, len(shares) + 1)), "y": list(shares),
                "marker": {"color": list(colours)}, "showlegend": False,
                "hovertemplate": "theme %{x}: %{y:.1%}<extra></extra>",
            }
        ],
        "layout": {
            "xaxis": axis(what, dtick=1 if len(shares) <= 16 else None, showgrid=False),
            "yaxis": axis("share", tickformat=".0%", rangemode="tozero"),
            "bargap": 0.35,
            "shapes": [
                {
                    "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": even, "y1": even,
                    "line": {"color": INK, "width": 1, "dash": "dot"},
                }
            ],
        },
    }  # fmt: skip


def diagram_chart(diagram: CorrelationDiagram, colours: Mapping[str, str]) -> Figure:
    """The correlation diagram, with each learner's own colour and a short legend."""
    figure = diagram.to_plotly()
    for trace, curve in zip(figure["data"], diagram.curves, strict=False):
        colour = colours[curve.learner]
        trace["name"] = for_plotly(curve.learner)
        trace["marker"] = {**trace["marker"], "color": colour, "size": 8}
        trace["line"] = {**trace["line"], "color": colour, "width": 2}
    figure["data"][-1]["marker"] = {"color": FAINT}
    layout = figure["layout"]
    return {
        "data": figure["data"],
        "layout": {
            "xaxis": axis(diagram.distance_label, anchor="y2", showgrid=False),
            "yaxis": axis(
                diagram.accuracy_label, tickformat=".0%", domain=layout["yaxis"]["domain"]
            ),
            "yaxis2": axis("tasks", nticks=3, domain=layout["yaxis2"]["domain"]),
        },
    }


def selection_chart(
    outcomes: Sequence[Outcome], colours: Mapping[str, str], learner: str, asked: str = ""
) -> Figure:
    """Accuracy against the number of chosen tasks, a line for each rule."""
    mine = [o for o in outcomes if o.learner == learner]
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


# -- the heat map of task-to-task distances, ordered so that like meets like ---------------------

_TASKS = 120
_LONGEST_NAME = 60


@dataclass(frozen=True, eq=False)
class Matrix:
    """Distances between some test and some training tasks, in the order of the figure."""

    distances: Float[np.ndarray, "n n"]
    n_test: int
    names: tuple[str, ...]
    unit: str

    @property
    def n_train(self) -> int:
        """Training tasks among them."""
        return len(self.distances) - self.n_test

    def block_means(self) -> tuple[tuple[str, float, float], ...]:
        """Mean distance between different tasks of each kind: (from, to test, to training)."""
        cut = self.n_test
        others = np.where(np.eye(len(self.distances), dtype=bool), np.nan, self.distances)
        parts = (("test tasks", slice(0, cut)), ("training tasks", slice(cut, None)))
        return tuple(
            (name, _mean(others[rows, :cut]), _mean(others[rows, cut:])) for name, rows in parts
        )

    def figure(self) -> dict[str, Any]:
        """The heat map, with the test tasks first."""
        n, cut = len(self.distances), self.n_test - 0.5
        off = self.distances[~np.eye(n, dtype=bool)]
        top = float(np.quantile(off, 0.99)) if off.size else 1.0
        lines = [
            {"type": "line", "x0": cut, "x1": cut, "y0": -0.5, "y1": n - 0.5},
            {"type": "line", "y0": cut, "y1": cut, "x0": -0.5, "x1": n - 0.5},
        ]
        ticks = {
            "tickvals": [(self.n_test - 1) / 2, self.n_test + (self.n_train - 1) / 2],
            "ticktext": ["test tasks", "training tasks"],
            "showgrid": False,
            "ticks": "",
            "constrain": "domain",
        }
        unit = {"text": for_plotly(self.unit), "side": "right"}
        heat = {
            "type": "heatmap",
            "z": self.distances,
            "zmin": 0,
            "zmax": top or 1.0,
            "colorscale": SCALE,
            "colorbar": {"title": unit, "thickness": 12, "outlinewidth": 0},
            "hoverinfo": "none",
        }
        return {
            "data": [heat],
            "layout": {
                "xaxis": axis("to", **ticks),
                "yaxis": axis(
                    "from", autorange="reversed", scaleanchor="x", tickangle=-90, **ticks
                ),
                "shapes": [{**line, "line": {"color": "#ffffff", "width": 2}} for line in lines],
            },
        }


def retrieval_chart(found: Retrieval) -> Figure:
    """Who is taken for whom: a row for each queried group, a column for each that can be found."""
    heat = {
        "type": "heatmap", "z": 100 * found.taken_for, "zmin": 0, "zmax": 100, "colorscale": SCALE,
        "x": [for_plotly(g) for g in found.candidates], "y": [for_plotly(g) for g in found.groups],
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


def distance_matrix(result: StudyResult, unit: str) -> Matrix:
    """Distance from every row to every column, for a seeded sample of test and training tasks."""
    rng = np.random.default_rng(result.seed)
    n_test, n_train = shared_out(result, _TASKS)
    test = rng.choice(len(result.test), n_test, replace=False)
    train = rng.choice(len(result.train), n_train, replace=False)
    apart = distances(Embeddings.concatenate([result.test[test], result.train[train]]))
    order = np.concatenate(
        [_alike(apart[:n_test, :n_test]), n_test + _alike(apart[n_test:, n_test:])]
    )
    names = [_name("test", result.test, int(i)) for i in test]
    names += [_name("training", result.train, int(i)) for i in train]
    return Matrix(apart[np.ix_(order, order)], n_test, tuple(names[i] for i in order), unit)


def _alike(distances: Float[np.ndarray, "n n"]) -> Int[np.ndarray, "n"]:
    """An order in which neighbours are alike: the leaves of a tree of merged tasks."""
    if len(distances) < 3:
        return np.arange(len(distances))
    both = (distances + distances.T) / 2
    np.fill_diagonal(both, 0.0)
    tree = linkage(squareform(both, checks=False), "average", optimal_ordering=True)
    return np.asarray(leaves_list(tree), dtype=np.int64)


def _name(kind: str, tasks: Embeddings, row: int) -> str:
    text = ", ".join(tasks.names(row))
    short = text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}…"
    return f"{kind} task {tasks.ids[row]}: {short}"


def _mean(values: Float[np.ndarray, "rows columns"]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")
