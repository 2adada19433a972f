"""The search for sizes: held-out bound over a grid of image-themes and task-themes."""

import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from taskscape.arguments import check_kind
from taskscape.compare import distances
from taskscape.distributed.engine import map_work
from taskscape.errors import DataError
from taskscape.io.pictures import picture
from taskscape.tasks import TaskSet
from taskscape.themes.co_clustering import CoClustering
from taskscape.themes.data import TaskSource
from taskscape.themes.task_model import HealthWarning

_SAME = 1e-6
"""Distances that differ by less, in nats, are equal but for rounding."""


@dataclass(frozen=True)
class GridPoint:
    """One fit of the grid."""

    image_themes: int
    task_themes: int
    elbo: float
    """Nats per sample of the held-out tasks."""
    behind: float
    """How far below the best of the grid."""
    behind_error: float
    """Standard error of that difference over the held-out tasks, which are the same for all."""
    distinct: int
    """Distinct λ (rounded to 0.1) among the held-out tasks."""
    found_again: float
    """Share of the held-out tasks that are nearest to themselves when they are known by the other
    half of their samples; not a number where a class has one sample."""
    advice: int
    """How many things the health check found to mend."""
    seconds: float


@dataclass(frozen=True, repr=False)
class SizeSearch:
    """The grid, the best of it, the smallest that is about as good, and the one for search."""

    points: tuple[GridPoint, ...]
    n_held_out: int

    @property
    def best(self) -> GridPoint:
        """The highest held-out bound."""
        return max(self.points, key=lambda p: p.elbo)

    @property
    def smallest(self) -> GridPoint:
        """The fewest themes within two standard errors of the best."""
        near = [p for p in self.points if p.behind <= 2 * p.behind_error]
        return min(near, key=lambda p: (p.image_themes * (1 + p.task_themes), -p.elbo))

    @property
    def for_search(self) -> GridPoint:
        """The one to compare tasks by distance with: it finds most held-out tasks again.

        Few task-themes leave many tasks equally near, and poor ones put a task elsewhere when it is
        known by other samples. Of the fits with no more to mend than the best; of equals, the one
        with most distinct λ, then with the best bound.
        """
        sound = [p for p in self.points if p.advice <= self.best.advice]
        return max(sound, key=lambda p: (np.nan_to_num(p.found_again), p.distinct, p.elbo))

    def __repr__(self) -> str:
        best = self.best
        return (
            f"SizeSearch({len(self.points)} fits, best K={best.image_themes}, L={best.task_themes})"
        )

    def summary(self) -> str:
        """The table, the best sizes, the smallest about as good, and those for nearest tasks."""
        best, small, search = self.best, self.smallest, self.for_search
        return (
            f"{self.table()}\nbest: K={best.image_themes}, L={best.task_themes}; smallest within "
            f"two standard errors: K={small.image_themes}, L={small.task_themes}.\n"
            f"for distances and nearest tasks: K={search.image_themes}, L={search.task_themes}, "
            f"where {search.found_again:.0%} of {self.n_held_out:,} held-out tasks are nearest to "
            f"themselves by the other half of their samples (best: {best.found_again:.0%}), "
            f"{search.behind:.3f} nats per sample behind."
        )

    def table(self) -> str:
        """The grid as text, best first."""
        columns = "image-themes  task-themes  nats/sample  behind ± s.e.     distinct"
        lines = [f"{columns}  found again  advice"]
        for p in sorted(self.points, key=lambda p: -p.elbo):
            lines.append(
                f"{p.image_themes:12d}  {p.task_themes:11d}  {p.elbo:11.4f}  "
                f"{p.behind:7.4f} ± {p.behind_error:.4f}  {p.distinct:8d}  "
                f"{p.found_again:11.1%}  {p.advice:6d}"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "n_held_out": self.n_held_out,
            "points": [asdict(p) for p in self.points],
            "best": asdict(self.best),
            "smallest": asdict(self.smallest),
            "for_search": asdict(self.for_search),
        }

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Write a figure: held-out bound against image-themes, a line per number of task-themes."""
        colours = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
        points = sorted(self.points, key=lambda p: p.image_themes)
        with picture(path, 6.4, 4.2, dpi=150) as figure:
            axes = figure.subplots()
            for i, L in enumerate(sorted({p.task_themes for p in points})):
                line = [(p.image_themes, p.elbo, 2 * p.behind_error) for p in points
                        if p.task_themes == L]  # fmt: skip
                axes.errorbar(
                    *np.transpose(line), marker="osD^v<"[i % 6], color=colours[i % 6], capsize=3,
                    label=f"{L} task-themes",
                )  # fmt: skip
            axes.set_xscale("log", base=2)
            ticks = sorted({p.image_themes for p in points})
            axes.set_xticks(ticks, [str(t) for t in ticks])
            axes.set_xlabel("image-themes K")
            axes.set_ylabel("held-out bound (nats per sample)")
            axes.legend(frameon=False)


def search_sizes(
    tasks: TaskSet,
    image_themes: Sequence[int] = (4, 8, 16),
    task_themes: Sequence[int] = (2, 4, 8),
    *,
    model: CoClustering | None = None,
    validation: TaskSet | None = None,
    callback: Callable[[GridPoint], None] | None = None,
) -> SizeSearch:
    """Fit every combination and compare their bounds on the same held-out tasks.

    ``model`` has all other settings; it is not fitted itself. The held-out tasks are of classes
    held out from ``tasks`` (see :class:`CoClustering`), unless ``validation`` tasks, say of
    validation classes, are given; never search on test classes.
    """
    check_kind(tasks, TaskSet, "tasks", "Make one with sample_tasks.")
    for sizes, name in ((image_themes, "image_themes"), (task_themes, "task_themes")):
        if not isinstance(sizes, Sequence) or isinstance(sizes, str | bytes):
            raise DataError(f"{name}={sizes!r} must be a list of numbers.")
    if not image_themes or not task_themes:
        raise DataError("image_themes and task_themes need at least one number each.")
    if model is not None:
        check_kind(model, CoClustering, "model", "Leave it out for the usual one.")
    usual = CoClustering() if model is None else model
    models = [
        clone(usual).set_params(image_themes=K, task_themes=L)
        for K in image_themes
        for L in task_themes
    ]
    for each in models:
        each._config()
    if validation is None:
        source, validation = TaskSource.of(
            tasks, int(usual.random_state or 0), usual.n_held_out, least=max(2, *task_themes)
        )
        assert isinstance(source.tasks, TaskSet)
        tasks = source.without_held_out(source.tasks)
    fits: list[tuple[dict[str, Any], np.ndarray]] = []
    for fit in map_work(_fit, models, shared=(tasks, validation), description="sizes"):
        fits.append(fit)
        if callback is not None:
            callback(_compare(fits)[-1])
    return SizeSearch(tuple(_compare(fits)), len(validation))


def _fit(
    model: CoClustering, tasks: TaskSet, validation: TaskSet
) -> tuple[dict[str, Any], np.ndarray]:
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HealthWarning)  # counted in the table instead
        model.fit(tasks, validation=validation)
    seen = model.embed(validation)
    lam, bounds = seen.lam[0], seen.elbo
    row = {
        "image_themes": int(model.image_themes),
        "task_themes": int(model.task_themes),
        "elbo": float(bounds.mean()),
        "distinct": len(np.unique(lam.round(1), axis=0)),
        "found_again": _found_again(model, validation),
        "advice": len(model.health_.advice),
        "seconds": time.perf_counter() - began,
    }
    return row, bounds


def _found_again(model: CoClustering, tasks: TaskSet) -> float:
    """How many tasks are nearest to themselves by the other half of their samples; ties count in
    part."""
    try:
        halves = tasks.halves()
    except DataError:  # a class has one sample
        return float("nan")
    known, asked = (model.embed(half) for half in halves)
    apart = distances(asked, known)
    nearest = apart <= apart.min(axis=1, keepdims=True) + _SAME
    return float((nearest.diagonal() / nearest.sum(axis=1)).mean())


def _compare(fits: list[tuple[dict[str, Any], np.ndarray]]) -> list[GridPoint]:
    best = max((bounds for _, bounds in fits), key=lambda bounds: bounds.mean())
    points = []
    for row, bounds in fits:
        gap = best - bounds
        error = float(gap.std(ddof=1) / np.sqrt(len(gap))) if len(gap) > 1 else float("inf")
        points.append(GridPoint(**row, behind=float(gap.mean()), behind_error=error))
    return points
