"""The tasks of the page: which are shown, where they stand on the map, what the script knows."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.embeddings import Embeddings
from taskscape.study.result import StudyResult
from taskscape.themes.image_themes import POSITION

MOST_TASKS = 2000
"""Points on the map; more make it slow and no clearer."""
_NEIGHBOURS = 5
_GROUPS = 11
"""Groups with a colour of their own; the others share one."""
MIXED, OTHER = -1, -2


@dataclass(frozen=True, eq=False)
class Shown:
    """Rows of the study's test and training tasks."""

    test: Int[np.ndarray, "tests"]
    train: Int[np.ndarray, "trains"]
    """Training tasks that the page knows: those on the map first, then neighbours."""
    n_train: int
    """How many of ``train`` are on the map."""
    nearest: Int[np.ndarray, "tests k"]
    """Places in ``train`` of each test task's nearest training tasks, nearest first."""


def choose_shown(result: StudyResult, most: int = MOST_TASKS) -> Shown:
    """All tasks if there are at most ``most``, else a sample that the study's seed decides."""
    rng = np.random.default_rng(result.seed)
    n_test = min(len(result.test), max(most // 2, most - len(result.train)))
    n_train = min(len(result.train), most - n_test)
    test = _sample(rng, len(result.test), n_test)
    train = _sample(rng, len(result.train), n_train)
    near = result.nearest[test, :_NEIGHBOURS].astype(np.int64)
    rows = np.concatenate([train, np.setdiff1d(near, train)])
    place = np.zeros(len(result.train), dtype=np.int64)
    place[rows] = np.arange(len(rows))
    return Shown(test, rows, len(train), place[near])


def _sample(rng: np.random.Generator, n: int, size: int) -> Int[np.ndarray, "size"]:
    return np.arange(n) if size >= n else np.sort(rng.choice(n, size, replace=False))


def place_tasks(
    positions: Float[np.ndarray, "tasks directions"],
) -> tuple[Float[np.ndarray, "tasks 2"], list[str]]:
    """The plane in which the positions of the tasks vary most, and what its axes are."""
    centred = positions.astype(np.float64) - positions.mean(axis=0)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    plane = np.zeros((positions.shape[1], 2))
    plane[:, : len(directions[:2])] = directions[:2].T
    signs = np.where(plane[np.abs(plane).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    variance = np.pad(sizes**2, (0, 2))
    shares = variance[:2] / max(variance.sum(), np.finfo(np.float64).tiny)
    names = zip(("first", "second"), shares.tolist(), strict=True)
    axes = [f"{name} direction ({100 * share:.0f} % of the variance)" for name, share in names]
    return centred @ (plane * signs), axes  # which way round is otherwise chance


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
    at, axes = place_tasks(np.concatenate([e.factor(POSITION).values for e in (test, train)]))
    groups, colours = _group_names(result)

    def columns(tasks: Embeddings, at: Float[np.ndarray, "tasks 2"]) -> dict[str, Any]:
        known = [row[row >= 0] for row in tasks.classes]
        main = {"group": [_main_group(colours[row].tolist()) for row in known]} if groups else {}
        return {"id": tasks.ids, "classes": [place[row] for row in known], "at": at} | main

    return {
        "test": columns(test, at[: len(test)]) | _outcome(result, shown),
        "train": columns(train, at[len(test) :]) | {"shown": shown.n_train},
        "groups": groups,
        "axes": axes,
    }


def _outcome(result: StudyResult, shown: Shown) -> dict[str, Any]:
    rows, near = shown.test, shown.nearest.shape[1]
    by_classes = result.nearest_by_classes
    return {
        "distance": result.distance[rows],
        "difficulty": result.difficulty[rows],
        "nearest": shown.nearest,
        "nearest_distance": result.nearest_distance[rows, :near],
        "nearest_by_classes": None if by_classes is None else by_classes[rows, :near],
        "ties": None if result.ties is None else result.ties[rows],
        "accuracy": {name: mean_accuracy(a)[rows] for name, a in result.accuracy.items()},
        "episodes": {name: a.shape[1] for name, a in result.accuracy.items()},
        "forecast": {
            name: {
                **{part: getattr(f, part)[rows] for part in ("expected", "low", "high")},
                "confidence": f.confidence,
                "reasons": {reason: by[rows] for reason, by in f.reasons.items()},
            }
            for name, f in result.forecasts.items()
            if result.has_forecast(name)
        },
    }


def mean_accuracy(accuracy: Float[np.ndarray, "tests episodes"]) -> Float[np.ndarray, "tests"]:
    """The mean over the episodes that were run; NaN for a task that had none."""
    return np.ma.masked_invalid(accuracy).mean(axis=1).filled(np.nan)


def _group_names(result: StudyResult) -> tuple[list[str], Int[np.ndarray, "classes"]]:
    """The groups that have a colour, and the number of each class's group among them."""
    groups = np.asarray(result.pool.groups or ())
    if not len(groups):
        return [], np.zeros(0, dtype=np.int64)
    used = [tasks.classes[tasks.classes >= 0] for tasks in (result.test, result.train)]
    counted = Counter(groups[np.concatenate(used)].tolist())
    ranked = sorted(counted, key=lambda g: (-counted[g], g))
    names = ranked if len(ranked) <= _GROUPS + 1 else ranked[:_GROUPS]
    number = {name: i for i, name in enumerate(names)}
    return names, np.array([number.get(g, OTHER) for g in groups.tolist()])


def _main_group(groups: list[int]) -> int:
    """The group that more than half of a task's classes belong to, or ``MIXED``."""
    group, times = Counter(groups).most_common(1)[0]
    return group if 2 * times > len(groups) else MIXED
