"""``correlation_diagram``: does distance to the training tasks explain accuracy?"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.arguments import (
    Seed,
    check_choice,
    check_kind,
    check_number,
    check_seed,
    check_whole,
    refuse_masked,
)
from taskscape.compare.posteriors import read_classes
from taskscape.diagram.result import Bin, CorrelationDiagram, Curve
from taskscape.errors import DataError
from taskscape.similarity import DistanceSource
from taskscape.statistics import (
    Interval,
    Resamples,
    kendall,
    make_resamples,
    noise_ceiling,
    partial_spearman,
    slope,
    spearman,
)

_MOST = 100_000
"""Bins: more of them tell nothing more, and take hours."""


def correlation_diagram(
    distance: Any,
    accuracy: Any,
    *,
    classes: Any = None,
    difficulty: Any = None,
    n_bins: int = 10,
    bins: str = "paper",
    confidence: float = 0.95,
    seed: Seed = 0,
    distance_label: str = "mean distance to the training tasks",
    accuracy_label: str = "accuracy",
) -> CorrelationDiagram:
    """Accuracy on test tasks as a function of their distance to the training tasks.

    ``distance`` has a number for each test task, such as ``mean_distance(test, train)``, or is what
    :func:`taskscape.similarity.distances_between` made by any similarity measure. ``accuracy``
    has one too, or several, (tasks, evaluations), from independent episodes, which gives the noise
    ceiling; a dict holds several learners by name. ``classes`` (a TaskSet, or ids (tasks, way)
    padded with -1) makes the intervals leave out classes instead of tasks, which share them.
    ``difficulty``, a number or several for each task, gives partial correlations. ``bins`` is
    ``"paper"`` or ``"quantile"``.

    Paper: the paragraph on the correlation diagram, with empty bins dropped.

    >>> d = correlation_diagram(np.arange(20.0), 1 - np.arange(20.0) / 40, n_bins=4)
    >>> round(d.curves[0].spearman.value, 2)
    -1.0
    """
    seed = check_seed(seed)
    check_choice(bins, "bins", ("paper", "quantile"))
    check_number(confidence, "confidence", 0.5, 1, open_="high")
    n_bins = check_whole(n_bins, "n_bins", 1, _MOST)
    for label in (distance_label, accuracy_label):
        check_kind(label, str, "a label", "Give it as text.")
    x = _read_distance(distance)
    ids = None if classes is None else read_classes(classes, len(x), "classes")
    resamples = make_resamples(ids, len(x), confidence=confidence, seed=seed)
    given = np.empty((len(x), 0))
    if difficulty is not None:
        given = _read_table(difficulty, "difficulty", len(x))
    named = accuracy if isinstance(accuracy, Mapping) else {"learner": accuracy}
    if not named:
        raise DataError("accuracy holds no learner.")
    curves = tuple(
        _curve(str(name), x, _read_table(values, f"accuracy of {name!r}", len(x)), given,
               n_bins, bins, resamples, seed)
        for name, values in named.items()
    )  # fmt: skip
    return CorrelationDiagram(
        curves=curves,
        n_tasks=len(x),
        n_classes=None if ids is None else len(np.unique(ids[ids >= 0])),
        binning=bins,
        n_bins=n_bins,
        confidence=confidence,
        interval_from=resamples.words,
        distance_label=distance_label,
        accuracy_label=accuracy_label,
        distance_and_difficulty=spearman(x, given[:, 0]) if given.shape[1] else None,
    )


def _curve(
    name: str,
    x: Float[np.ndarray, "tasks"],
    accuracies: Float[np.ndarray, "tasks evaluations"],
    difficulty: Float[np.ndarray, "tasks columns"],
    n_bins: int,
    binning: str,
    resamples: Resamples,
    seed: int,
) -> Curve:
    y = accuracies.mean(axis=1)
    several, known = accuracies.shape[1] > 1, difficulty.shape[1]
    halves, ceiling = noise_ceiling(accuracies, seed) if several else (None, None)

    def correlation(x: Float[np.ndarray, "tasks"], given: int = 0) -> Interval:
        return resamples.interval(
            lambda r: partial_spearman(x[r], y[r], difficulty[r, :given]), correlation=True
        )

    return Curve(
        learner=name,
        bins=make_bins(x, y, n_bins, binning, resamples),
        spearman=correlation(x),
        kendall=resamples.interval(lambda r: kendall(x[r], y[r]), correlation=True),
        slope=resamples.interval(lambda r: slope(x[r], y[r])),
        mean_accuracy=float(y.mean()),
        n_evaluations=accuracies.shape[1],
        split_half=halves,
        ceiling=ceiling,
        partial=correlation(x, known) if known else None,
        difficulty=correlation(difficulty[:, 0]) if known else None,
    )


def bin_tasks(
    distance: Float[np.ndarray, "tasks"], n_bins: int, binning: str
) -> tuple[Float[np.ndarray, "edges"], Int[np.ndarray, "tasks"]]:
    r"""The edges of the bins and the bin of each task.

    ``"paper"``: J bins of equal width from 0 to the largest distance,

    .. math:: I_j = ((j - 1) \Delta, j \Delta], \quad \Delta = \max_i \bar D_i / J,

    with a distance of exactly 0 in the first. ``"quantile"``: bins that hold equal numbers of
    tasks as far as ties allow.

    Paper: its section on the correlation diagram.
    """
    if binning == "paper":
        edges = distance.max() * np.arange(n_bins + 1) / n_bins
        edges[-1] = distance.max()  # which rounding may have missed
    else:
        edges = np.unique(np.quantile(distance, np.arange(n_bins + 1) / n_bins))
        if len(edges) == 1:
            edges = np.repeat(edges, 2)
    which = np.searchsorted(edges[1:], distance, side="left")
    return edges, np.minimum(which, len(edges) - 2)


def make_bins(
    distance: Float[np.ndarray, "tasks"],
    accuracy: Float[np.ndarray, "tasks"],
    n_bins: int,
    binning: str,
    resamples: Resamples,
) -> tuple[Bin, ...]:
    """Mean distance and accuracy of every bin that holds a task, with a band."""
    edges, which = bin_tasks(distance, n_bins, binning)
    share = accuracy.min() >= 0 and accuracy.max() <= 1  # else per cent, or another score
    bounds = (0.0, 1.0) if share else (-np.inf, np.inf)
    bins = []
    for j in np.unique(which):

        def mean_accuracy(rows: Int[np.ndarray, "_"], j: int = int(j)) -> float:
            inside = accuracy[rows[which[rows] == j]]
            return float(inside.mean()) if len(inside) else float("nan")

        band = resamples.interval(mean_accuracy).within(*bounds)
        bins.append(
            Bin(
                low=float(edges[j]),
                high=float(edges[j + 1]),
                n_tasks=int((which == j).sum()),
                distance=float(distance[which == j].mean()),
                accuracy=band.value,
                accuracy_low=band.low,
                accuracy_high=band.high,
            )
        )
    return tuple(bins)


def _read_distance(distance: Any) -> Float[np.ndarray, "tasks"]:
    if isinstance(distance, DistanceSource):
        distance = distance.mean_distance()
    x = _as_numbers(distance, "distance", "one for each test task")
    if x.ndim != 1 or len(x) < 3:
        raise DataError(
            f"distance has shape {x.shape}; expected a number for at least 3 test tasks."
        )
    _check_finite(x, "distance")
    if x.min() < -1e-6:
        raise DataError(f"distance goes down to {x.min():g}; distances are not negative.")
    return np.maximum(x, 0.0)


def _as_numbers(values: Any, name: str, how_many: str) -> Float[np.ndarray, "..."]:
    refuse_masked(values, name)
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{name} must be numbers, {how_many}.") from None


def _read_table(values: Any, name: str, n_tasks: int) -> Float[np.ndarray, "tasks columns"]:
    table = _as_numbers(values, name, "one or several for each test task")
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or len(table) != n_tasks or table.shape[1] == 0:
        raise DataError(
            f"{name} has shape {np.shape(values)}; expected ({n_tasks},), or ({n_tasks}, n) for "
            f"the {n_tasks} test tasks that distance has."
        )
    _check_finite(table, name)
    return table


def _check_finite(numbers: Float[np.ndarray, "tasks *any"], name: str) -> None:
    bad = ~np.isfinite(numbers.reshape(len(numbers), -1)).all(axis=1)
    if bad.any():
        raise DataError(
            f"{name} has NaN or infinite values in {int(bad.sum())} of {len(numbers)} tasks (the "
            f"first is task {int(np.flatnonzero(bad)[0])}). Leave these tasks out everywhere."
        )
