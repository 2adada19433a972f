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

    @property
    def n_tasks(self) -> int:
        """Points on the map."""
        return len(self.test) + self.n_train


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
    if size >= n:
        return np.arange(n)
    return np.sort(rng.choice(n, size, replace=False))


@dataclass(frozen=True, eq=False)
class Places:
    """Coordinates of tasks on the map, and what its axes are."""

    at: Float[np.ndarray, "tasks 2"]
    axes: tuple[str, str]


def place_tasks(positions: Float[np.ndarray, "tasks directions"]) -> Places:
    """The plane in which the positions of the tasks vary most."""
    centred = positions.astype(np.float64) - positions.mean(axis=0)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    plane = np.zeros((positions.shape[1], 2))
    plane[:, : len(directions[:2])] = directions[:2].T
    signs = np.where(plane[np.abs(plane).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    variance = np.pad(sizes**2, (0, 2))
    shares = variance[:2] / max(variance.sum(), np.finfo(np.float64).tiny)
    first, second = (f"{100 * share:.0f} % of the variance" for share in shares)
    axes = (f"first direction ({first})", f"second direction ({second})")
    return Places(centred @ (plane * signs), axes)  # which way round is otherwise chance


_GROUPS = 11
"""Groups with a colour of their own; the others share one."""
MIXED, OTHER = -1, -2


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
    places = place_tasks(np.concatenate([e.factor(POSITION).values for e in (test, train)]))
    groups, colours = _group_names(result)
    return {
        "test": _tasks(test, places, slice(0, len(test)), place, colours) | _outcome(result, shown),
        "train": _tasks(train, places, slice(len(test), None), place, colours)
        | {"shown": shown.n_train},
        "groups": groups,
        "axes": places.axes,
    }


def _tasks(
    tasks: Embeddings,
    places: Places,
    rows: slice,
    place: Int[np.ndarray, "classes"],
    colours: list[int] | None,
) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "id": tasks.ids,
        "classes": [place[task[task >= 0]] for task in tasks.classes],
        "at": places.at[rows],
    }
    if colours is not None:
        columns["group"] = [_main_group([colours[c] for c in t if c >= 0]) for t in tasks.classes]
    return columns


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
    real = np.isfinite(accuracy)
    total = np.where(real, accuracy, 0).sum(axis=1)
    return np.where(real.any(axis=1), total / np.maximum(real.sum(axis=1), 1), np.nan)


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
