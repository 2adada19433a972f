"""What the page's script knows of tasks: classes, places, mixtures, neighbours, accuracies."""

from collections import Counter
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import betaincinv

from taskscape.embeddings import Embeddings
from taskscape.report.palette import theme_colours
from taskscape.report.places import Places, place_tasks
from taskscape.report.shown import Shown
from taskscape.studies.result import StudyResult

__all__ = ["CREDIBLE", "credible_interval", "task_data", "used_classes"]

CREDIBLE = 0.9
"""The probability that a theme's share lies within its interval."""
_GROUPS = 11
"""Groups with a colour of their own; the others share one."""
MIXED, OTHER = -1, -2


def credible_interval(
    lam: Float[np.ndarray, "tasks L"], probability: float = CREDIBLE
) -> tuple[Float[np.ndarray, "tasks L"], Float[np.ndarray, "tasks L"]]:
    r"""The central interval of every theme's share under the task's Dirichlet posterior.

    .. math:: \phi_l \sim \mathrm{Beta}(\lambda_l, \textstyle\sum_{j \ne l} \lambda_j)
    """
    a = lam.astype(np.float64)
    b = np.maximum(a.sum(axis=1, keepdims=True) - a, 1e-12)
    tail = (1 - probability) / 2
    return betaincinv(a, b, tail), betaincinv(a, b, 1 - tail)


def used_classes(result: StudyResult, shown: Shown) -> Int[np.ndarray, "used"]:
    """The classes of all tasks that the page knows."""
    parts = [result.test.classes[shown.test].ravel(), result.train.classes[shown.train].ravel()]
    every = np.unique(np.concatenate(parts))
    return every[every >= 0].astype(np.int64)


def task_data(
    result: StudyResult, shown: Shown, place: Int[np.ndarray, "classes"]
) -> dict[str, Any]:
    """The tasks for the map and the panel; ``place`` is where a class is in the page's list."""
    test, train = result.test[shown.test], result.train[shown.train]
    mixtures = [_mixture(tasks) for tasks in (test, train)]
    places = place_tasks(np.concatenate(mixtures), result.seed)
    groups, colours = _group_names(result)
    return {
        "test": _tasks(test, places, slice(0, len(test)), place, colours) | _outcome(result, shown),
        "train": _tasks(train, places, slice(len(test), None), place, colours)
        | {"shown": shown.n_train},
        "groups": groups,
        "themes": theme_colours(test.lam.shape[2]),
        "map": {
            "kind": places.kind,
            "axes": places.axes,
            "corners": places.flat_corners,
            "solid": places.solid_corners,
        },
        "credible": CREDIBLE,
    }


def _tasks(
    tasks: Embeddings,
    places: Places,
    rows: slice,
    place: Int[np.ndarray, "classes"],
    colours: list[int] | None,
) -> dict[str, Any]:
    low, high = credible_interval(tasks.lam[0])
    found: dict[str, Any] = {
        "id": tasks.ids,
        "classes": [place[task[task >= 0]] for task in tasks.classes],
        "flat": places.flat[rows],
        "mean": _per_mille(_mixture(tasks)),
        "low": _per_mille(low),
        "high": _per_mille(high),
    }
    if places.solid is not None:
        found["solid"] = places.solid[rows]
    if colours is not None:
        found["group"] = [_main_group([colours[c] for c in t if c >= 0]) for t in tasks.classes]
    return found


def _outcome(result: StudyResult, shown: Shown) -> dict[str, Any]:
    rows = shown.test
    return {
        "distance": result.distance[rows],
        "difficulty": result.difficulty[rows],
        "nearest": shown.nearest,
        "nearest_distance": result.nearest_distance[rows, : shown.nearest.shape[1]],
        "accuracy": {name: mean_accuracy(a)[rows] for name, a in result.accuracy.items()},
        "episodes": {name: a.shape[1] for name, a in result.accuracy.items()},
        "forecast": {
            name: {
                "expected": f.expected[rows],
                "low": f.low[rows],
                "high": f.high[rows],
                "confidence": f.confidence,
                "reasons": {reason: by[rows] for reason, by in f.reasons.items()},
            }
            for name, f in result.forecasts.items()
        },
    }


def mean_accuracy(accuracy: Float[np.ndarray, "tests episodes"]) -> Float[np.ndarray, "tests"]:
    """The mean over the episodes that were run; NaN for a task that had none."""
    real = np.isfinite(accuracy)
    total = np.where(real, accuracy, 0).sum(axis=1)
    return np.where(real.any(axis=1), total / np.maximum(real.sum(axis=1), 1), np.nan)


def _mixture(tasks: Embeddings) -> Float[np.ndarray, "tasks L"]:
    lam = tasks.lam[0].astype(np.float64)
    return lam / lam.sum(axis=1, keepdims=True)


def _per_mille(shares: Float[np.ndarray, "tasks L"]) -> Int[np.ndarray, "tasks L"]:
    return np.round(1000 * shares).astype(np.int64)


def _group_names(result: StudyResult) -> tuple[list[str], list[int] | None]:
    """The groups that have a colour, and the colour of each class's group."""
    groups = result.pool.groups
    if groups is None:
        return [], None
    used = [tasks.classes[tasks.classes >= 0] for tasks in (result.test, result.train)]
    counted = Counter(np.asarray(groups)[np.concatenate(used)].tolist())
    ranked = sorted(counted, key=lambda g: (-counted[g], g))
    names = ranked if len(ranked) <= _GROUPS + 1 else ranked[:_GROUPS]
    number = {name: i for i, name in enumerate(names)}
    return names, [number.get(g, OTHER) for g in groups]


def _main_group(groups: list[int]) -> int:
    """The group that more than half of a task's classes belong to, or ``MIXED``."""
    group, times = Counter(groups).most_common(1)[0]
    return group if 2 * times > len(groups) else MIXED
