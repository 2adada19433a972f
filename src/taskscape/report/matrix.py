"""The heat map of task-to-task distances: a sample of tasks, ordered so that like meets like."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from taskscape.compare import pdist
from taskscape.embeddings import Embeddings
from taskscape.plain_text import literal
from taskscape.report.palette import SCALE
from taskscape.studies.result import StudyResult

__all__ = ["Matrix", "distance_matrix"]

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
        middles = [(self.n_test - 1) / 2, self.n_test + (self.n_train - 1) / 2]
        ticks = {
            "tickvals": middles,
            "ticktext": ["test tasks", "training tasks"],
            "showgrid": False,
            "ticks": "",
        }
        return {
            "data": [
                {
                    "type": "heatmap",
                    "z": self.distances,
                    "zmin": 0,
                    "zmax": top or 1.0,
                    "colorscale": [list(stop) for stop in SCALE],
                    "colorbar": {
                        "title": {"text": literal(self.unit), "side": "right"},
                        "thickness": 12,
                        "outlinewidth": 0,
                    },
                    "hoverinfo": "none",
                }
            ],
            "layout": {
                "xaxis": {"title": {"text": "to"}, "constrain": "domain", **ticks},
                "yaxis": {
                    "title": {"text": "from"},
                    "autorange": "reversed",
                    "scaleanchor": "x",
                    "constrain": "domain",
                    "tickangle": -90,
                    **ticks,
                },
                "shapes": [{**line, "line": {"color": "#ffffff", "width": 2}} for line in lines],
            },
        }


def distance_matrix(result: StudyResult, unit: str) -> Matrix:
    """KL from every row to every column, for a seeded sample of test and training tasks."""
    rng = np.random.default_rng(result.seed)
    n_test = min(len(result.test), max(_TASKS // 2, _TASKS - len(result.train)))
    n_train = min(len(result.train), _TASKS - n_test)
    test = rng.choice(len(result.test), n_test, replace=False)
    train = rng.choice(len(result.train), n_train, replace=False)
    lam = np.concatenate([result.test.lam[:, test], result.train.lam[:, train]], axis=1)
    distances = pdist(lam)
    order = np.concatenate(
        [_alike(distances[:n_test, :n_test]), n_test + _alike(distances[n_test:, n_test:])]
    )
    names = [_name("test", result.test, int(i)) for i in test]
    names += [_name("training", result.train, int(i)) for i in train]
    return Matrix(distances[np.ix_(order, order)], n_test, tuple(names[i] for i in order), unit)


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
