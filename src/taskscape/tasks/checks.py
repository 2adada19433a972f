"""What every list of tasks must satisfy, whether it was made here or read from a file."""

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from taskscape.errors import DataError
from taskscape.pools import ClassPool

__all__ = ["ALL", "check_drawn", "check_listed", "check_shots", "class_dtype", "class_table", "pad"]

ALL = 0
"""The number of shots that stands for every sample that is not a query."""


def class_dtype(pool: ClassPool) -> type[np.signedinteger]:
    """The smallest type that holds the pool's class ids and the padding -1."""
    return np.int16 if len(pool) <= np.iinfo(np.int16).max else np.int32


def pad(
    ids: Int[np.ndarray, "all"], ways: Int[np.ndarray, "tasks"], kind: type[np.signedinteger]
) -> Int[np.ndarray, "tasks way"]:
    """The ids of all tasks, one task after another, as a row for each, padded with -1."""
    table = np.full((len(ways), int(ways.max(initial=0))), -1, dtype=kind)
    table[np.arange(table.shape[1]) < ways[:, None]] = ids
    return table


def class_table(
    pool: ClassPool, ids: Int[np.ndarray, "all"], ways: Int[np.ndarray, "tasks"]
) -> Int[np.ndarray, "tasks way"]:
    """Rows of class ids, padded with -1; each at least 2 different classes of the pool."""
    ends = np.cumsum(ways)
    strange = np.flatnonzero((ids < 0) | (ids >= len(pool)))
    if len(strange):
        task = int(np.searchsorted(ends, strange[0], side="right"))
        got = _some(ids[ends[task] - ways[task] : ends[task]].tolist())
        raise DataError(f"task {task}: class ids run from 0 to {len(pool) - 1}, got {got}.")
    wrong = np.flatnonzero((ways < 2) | (ways > len(pool)))
    if not len(wrong):
        table = pad(ids, ways, class_dtype(pool))
        ordered = np.sort(table, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
        wrong = np.flatnonzero(twice.any(axis=1))
    if len(wrong):
        task = int(wrong[0])
        has = [pool.class_names[c] for c in ids[ends[task] - ways[task] : ends[task]]]
        raise DataError(f"task {task} needs at least 2 different classes, has {_some(has)}.")
    return table


def check_shots(
    pool: ClassPool,
    n_shot: int | str | tuple[int, int],
    n_query: int,
    classes: Int[np.ndarray, "some"],
) -> tuple[int, int]:
    """Read ``n_shot`` as (least, most), (0, 0) for all, and see that every class has enough."""
    if n_query < 0:
        raise DataError(f"n_query={n_query} must not be negative.")
    if isinstance(n_shot, str):
        if n_shot != "all":
            raise DataError(f"n_shot={n_shot!r}: use a number, a range (low, high), or 'all'.")
        pool.require(1 + n_query, f"n_shot='all' + n_query={n_query}", classes.tolist())
        return ALL, ALL
    low, high = n_shot if isinstance(n_shot, tuple) else (n_shot, n_shot)
    if not 1 <= low <= high:
        raise DataError(f"n_shot={n_shot!r} must be at least 1, and a range must ascend.")
    pool.require(high + n_query, f"n_shot={n_shot} + n_query={n_query}", classes.tolist())
    return low, high


def check_drawn(
    pool: ClassPool,
    classes: Int[np.ndarray, "tasks way"],
    n_shot: Int[np.ndarray, "tasks"],
    n_query: int,
) -> None:
    """See that every class of every task has the samples that the task draws."""
    for shots in np.unique(n_shot)[::-1].tolist():  # the largest first: it fails at once
        used = classes[n_shot == shots]
        check_shots(pool, "all" if shots == ALL else shots, n_query, np.unique(used[used >= 0]))


def check_listed(
    pool: ClassPool, classes: Int[np.ndarray, "tasks way"], name: str, listed: ArrayLike
) -> Int[np.ndarray, "tasks way n"]:
    """Sample ids listed one by one, padded with -1; each one of its class has."""
    ids = np.asarray(listed, dtype=np.int64)
    if ids.ndim != 3 or ids.shape[:2] != classes.shape:
        raise DataError(
            f"{name} has shape {ids.shape}; expected (tasks, classes, samples) with "
            f"{classes.shape[0]} tasks of up to {classes.shape[1]} classes, padded with -1."
        )
    counts = np.where(classes >= 0, pool.counts[np.maximum(classes, 0)], 0)[:, :, None]
    wrong = np.argwhere((ids < -1) | (ids >= counts) & (ids >= 0))
    if len(wrong):
        t, c, n = wrong[0]
        raise DataError(
            f"{name}[{t}, {c}, {n}] = {ids[t, c, n]}; the class has {counts[t, c, 0]} samples."
        )
    return ids


def _some(values: list[int] | list[str]) -> str:
    return f"{values}" if len(values) <= 20 else f"{values[:20]} and {len(values) - 20} more"
