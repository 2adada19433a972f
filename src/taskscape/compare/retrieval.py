"""Do tasks of one group find each other? How often the nearest task is of the query's own group."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from taskscape.errors import DataError
from taskscape.io.pictures import picture
from taskscape.notebook import ShownInNotebooks
from taskscape.statistics import Interval, mean_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NEAREST = 10
_ARRAYS = ("at_1", "at_10", "by_mean", "taken_for")


@dataclass(frozen=True, eq=False, repr=False)
class Retrieval(ShownInNotebooks):
    """How often tasks of each group found their own group among those of all groups."""

    measure: str
    groups: tuple[str, ...]
    """Groups that tasks were queried from."""
    candidates: tuple[str, ...]
    """Groups that could be found."""
    at_1: Float[np.ndarray, "groups"]
    """By group, the share of its queries whose nearest task is of the group."""
    at_10: Float[np.ndarray, "groups"]
    """By group, the mean share of the ten nearest tasks that are."""
    by_mean: Float[np.ndarray, "groups"]
    """By group, the share of its queries that are nearer to the group than to any other, by the
    mean distance to all tasks of each instead of to its nearest."""
    taken_for: Float[np.ndarray, "groups candidates"]
    """The share of a group's queries whose nearest task is of each group."""
    chance: float
    by_group: bool = True
    """False where a query looks for the same classes, and is its own group."""

    def __repr__(self) -> str:
        return f"Retrieval({self.measure!r}: {100 * self.precision.value:.0f} % find their own)"

    @property
    def precision(self) -> Interval:
        """The mean of ``at_1`` with its 95 % interval over groups."""
        return mean_interval(self.at_1).within(0.0, 1.0)

    def minus(self, other: "Retrieval") -> Interval:
        """The mean difference in ``at_1``, paired by group, with its 95 % interval over groups."""
        return mean_interval(self.at_1 - other.at_1)

    def confusions(self, n: int = 5) -> list[tuple[str, str, float]]:
        """The groups most often taken for another: the group, the other, and the share."""
        wrong = self.taken_for * (np.array(self.groups)[:, None] != np.array(self.candidates))
        order = np.argsort(-wrong, axis=None, kind="stable")[:n]
        pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
        return [
            (self.groups[g], self.candidates[c], float(wrong[g, c]))
            for g, c in pairs
            if wrong[g, c]
        ]

    def summary(self) -> str:
        """The precision in a sentence."""
        p, n = self.precision, len(self.groups)
        within = f" [{100 * p.low:.0f}, {100 * p.high:.0f}]" if n > 1 else ""
        cases = f"{100 * p.value:.0f} % of cases{within}"
        chance = f"(chance {100 * self.chance:.2g} %)"
        if not self.by_group:
            what = "tasks of the same classes find each other"
            return f"{self.measure}: {what} in {cases}, over {n} tasks {chance}."
        over, near = f"{n} group{'s' * (n > 1)}", 100 * self.at_10.mean()
        return (
            f"{self.measure}: tasks of one group find each other in {cases}, over {over} {chance}; "
            f"of the ten nearest, {near:.0f} % are of the group."
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain numbers and lists."""
        return {
            "measure": self.measure,
            "precision": vars(self.precision),
            "chance": self.chance,
            "by_group": self.by_group,
            "groups": list(self.groups),
            "candidates": list(self.candidates),
            **{name: getattr(self, name).tolist() for name in _ARRAYS},
            "confusions": self.confusions(10),
        }

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Retrieval":
        """The retrieval that :meth:`to_dict` took apart."""
        known: dict[str, Any] = {k: values[k] for k in ("measure", "chance", "by_group")}
        known |= {k: tuple(values[k]) for k in ("groups", "candidates")}
        known |= {k: np.array(values[k]) for k in _ARRAYS}
        return Retrieval(**known)

    def plot(self, path: str | os.PathLike[str] | None = None) -> "Figure":
        """Who is taken for whom, a row for each queried group: a figure, which notebooks show."""
        width, height = 3 + 0.16 * len(self.candidates), 2 + 0.16 * len(self.groups)
        with picture(path, width, height) as figure:
            ax = figure.subplots()
            image = ax.imshow(100 * self.taken_for, cmap="Blues", vmin=0, vmax=100, aspect="auto")
            ax.set_xticks(range(len(self.candidates)), self.candidates, rotation=90, fontsize=6)
            ax.set_yticks(range(len(self.groups)), self.groups, fontsize=6)
            ax.set_xlabel("group of the nearest task")
            ax.set_ylabel("group of the query")
            ax.set_title(f"{self.measure}: {100 * self.precision.value:.0f} % find their own group")
            figure.colorbar(image, ax=ax, label="% of a group's queries")
        return figure


def score_retrieval(
    distances: Float[np.ndarray, "queries candidates"],
    queries: np.ndarray,
    candidates: np.ndarray,
    measure: str = "distance",
) -> Retrieval:
    """Score distances from queries to candidates, given the group of each.

    Ties are settled against the measure: of equally near candidates, those of other groups count as
    nearer, so that a measure that tells nothing apart scores nothing.
    """
    if distances.shape != (len(queries), len(candidates)):
        raise DataError(
            f"distances have shape {distances.shape} for {len(queries)} queries and "
            f"{len(candidates)} candidates."
        )
    own = queries[:, None] == candidates
    order = np.lexsort((own, distances), axis=1)[:, :_NEAREST]
    hits = np.take_along_axis(own, order, axis=1)
    nearest = candidates[order[:, 0]]
    groups, known = np.unique(queries), np.unique(candidates)
    rows = [queries == g for g in groups]
    means = np.stack([distances[:, candidates == c].mean(axis=1) for c in known], axis=1)
    others = np.where(queries[:, None] == known, np.inf, means).min(axis=1, initial=np.inf)
    by_mean = np.where(queries[:, None] == known, means, np.inf).min(axis=1) < others
    return Retrieval(
        measure,
        tuple(map(str, groups)),
        tuple(map(str, known)),
        np.array([hits[r, 0].mean() for r in rows]),
        np.array([hits[r].mean() for r in rows]),
        np.array([by_mean[r].mean() for r in rows]),
        np.array([[(nearest[r] == c).mean() for c in known] for r in rows]),
        float(np.mean([own[r].mean() for r in rows])),
    )
