"""``correlation_diagram``: does distance to the training tasks explain accuracy?"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from taskscape.diagram.bins import make_bins
from taskscape.diagram.resampling import Interval, Resamples, make_resamples
from taskscape.diagram.result import CorrelationDiagram, Curve
from taskscape.errors import DataError
from taskscape.seeds import Seed, check_seed
from taskscape.similarity import DistanceSource
from taskscape.statistics import (
    kendall,
    noise_ceiling,
    partial_spearman,
    slope,
    spearman,
)

__all__ = ["correlation_diagram"]


def correlation_diagram(
    distance: Any,
    accuracy: Any,
    *,
    classes: Any = None,
    difficulty: Any = None,
    n_bins: int = 10,
    bins: str = "paper",
    interval: str = "jackknife",
    n_resamples: int = 200,
    confidence: float = 0.95,
    seed: Seed = 0,
    distance_label: str = "mean KL divergence to the training tasks (nats)",
    accuracy_label: str = "accuracy",
) -> CorrelationDiagram:
    """Accuracy on test tasks as a function of their distance to the training tasks.

    ``distance`` has a number for each test task, such as ``mean_kl(test, train)``, or is what
    :func:`taskscape.similarity.distances_between` made by any notion of similarity. ``accuracy``
    has one too, or several, (tasks, evaluations), from independent episodes, which gives the noise
    ceiling; a dict holds several learners by name. ``classes`` (a TaskSet, or ids (tasks, way)
    padded with -1) makes the intervals leave out classes instead of tasks, which share them.
    ``difficulty``, a number or several for each task, gives partial correlations. ``bins`` is
    ``"paper"`` or ``"quantile"``, ``interval`` ``"jackknife"`` or ``"bootstrap"``.

    Paper: the paragraph on the correlation diagram, with empty bins dropped.

    >>> d = correlation_diagram(np.arange(20.0), 1 - np.arange(20.0) / 40, n_bins=4)
    >>> round(d.curves[0].spearman.value, 2)
    -1.0
    """
    seed = check_seed(seed)
    if isinstance(distance, DistanceSource):
        distance = distance.mean_distance()
    x = _read_numbers(distance, "distance", None)
    if x.min() < -1e-6:
        raise DataError(f"distance goes down to {x.min():g}; distances are not negative.")
    x = np.maximum(x, 0.0)
    ids = None if classes is None else np.asarray(getattr(classes, "classes", classes))
    if ids is not None and (ids.ndim != 2 or len(ids) != len(x) or ids.dtype.kind not in "iu"):
        raise DataError(
            f"classes has shape {ids.shape} and type {ids.dtype}; expected a TaskSet, or class "
            f"ids (tasks, way) padded with -1, for {len(x)} tasks."
        )
    resamples = make_resamples(
        ids, len(x), method=interval, n_resamples=n_resamples, confidence=confidence, seed=seed
    )
    given = None if difficulty is None else _read_table(difficulty, "difficulty", len(x))
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
        distance_and_difficulty=None if given is None else spearman(x, given[:, 0]),
    )


def _curve(
    name: str,
    x: Float[np.ndarray, "tasks"],
    accuracies: Float[np.ndarray, "tasks evaluations"],
    difficulty: Float[np.ndarray, "tasks columns"] | None,
    n_bins: int,
    binning: str,
    resamples: Resamples,
    seed: int,
) -> Curve:
    y = accuracies.mean(axis=1)
    everything = np.arange(len(x))
    halves, ceiling = noise_ceiling(accuracies, seed) if accuracies.shape[1] > 1 else (None, None)
    partial: Interval | None = None
    by_difficulty: Interval | None = None
    if difficulty is not None:
        z = difficulty
        partial = resamples.interval(
            lambda r: partial_spearman(x[r], y[r], z[r]), everything, correlation=True
        )
        by_difficulty = resamples.interval(
            lambda r: spearman(z[r, 0], y[r]), everything, correlation=True
        )
    return Curve(
        learner=name,
        bins=make_bins(x, y, n_bins, binning, resamples),
        spearman=resamples.interval(lambda r: spearman(x[r], y[r]), everything, correlation=True),
        kendall=resamples.interval(lambda r: kendall(x[r], y[r]), everything, correlation=True),
        slope=resamples.interval(lambda r: slope(x[r], y[r]), everything),
        mean_accuracy=float(y.mean()),
        n_evaluations=accuracies.shape[1],
        split_half=halves,
        ceiling=ceiling,
        partial=partial,
        difficulty=by_difficulty,
    )


def _read_numbers(values: Any, name: str, n_tasks: int | None) -> Float[np.ndarray, "tasks"]:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{name} must be numbers, one for each test task.") from None
    if numbers.ndim != 1 or len(numbers) < 3 or (n_tasks is not None and len(numbers) != n_tasks):
        wanted = "at least 3 test tasks" if n_tasks is None else f"{n_tasks} test tasks"
        raise DataError(f"{name} has shape {numbers.shape}; expected a number for {wanted}.")
    _check_finite(numbers, name)
    return numbers


def _read_table(values: Any, name: str, n_tasks: int) -> Float[np.ndarray, "tasks columns"]:
    try:
        table = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{name} must be numbers, one or several for each test task.") from None
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
