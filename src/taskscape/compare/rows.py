"""Rows of numbers: hashing by content, and finding the distinct ones."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt64

from taskscape.arguments import as_array
from taskscape.errors import DataError
from taskscape.tasks.draws import subkeys


class DistinctRows(NamedTuple):
    """Which rows of an array are equal; their order depends on their content, not their place."""

    first: Int[np.ndarray, "distinct"]
    """A row of each kind."""
    kind: Int[np.ndarray, "rows"]
    """For every row, the place of its kind."""
    counts: Int[np.ndarray, "distinct"]


def row_hashes(rows: Float[np.ndarray, "rows dims"], seed: int = 0) -> UInt64[np.ndarray, "rows"]:
    """64 bits that depend on the content of each row and the seed."""
    bits = np.ascontiguousarray(rows, dtype=np.float64).view(np.int64)
    h = np.full(len(rows), seed % 2**64, dtype=np.uint64)
    for column in bits.T:
        h = subkeys(h, column)
    return h


def class_hashes(
    classes: Int[np.ndarray, "rows way"], start: UInt64[np.ndarray, "rows"]
) -> UInt64[np.ndarray, "rows"]:
    """64 bits from ``start`` and each row's set of classes; padding with -1 has no effect."""
    h = start
    for column in -np.sort(-classes.astype(np.int64), axis=1).T:
        h = np.where(column >= 0, subkeys(h, column), h)
    return h


def distinct_rows(
    rows: Float[np.ndarray, "rows dims"], known: Float[np.ndarray, "rows few"] | None = None
) -> DistinctRows:
    """Group the rows that are equal bit for bit, in the time of one sort.

    ``known`` are a few numbers that follow from each row, and nearly always tell rows apart.
    """
    told_by, salt = rows if known is None else known, 0
    while True:
        _, first, kind, counts = np.unique(
            row_hashes(told_by, salt), return_index=True, return_inverse=True, return_counts=True
        )
        again = np.flatnonzero(counts[kind.reshape(-1)] > 1)
        if np.array_equal(rows[first[kind.reshape(-1)[again]]], rows[again]):
            return DistinctRows(first, kind.reshape(-1), counts)
        told_by, salt = rows, salt + 1  # two different rows met in one hash


def read_classes(
    given: object, n_tasks: int, name: str = "train_classes"
) -> Int[np.ndarray, "tasks way"]:
    """Class ids (tasks, way) of a TaskSet or an array, checked against the number of tasks."""
    classes = as_array(getattr(given, "classes", given))
    if classes.ndim != 2 or classes.dtype.kind not in "iu" or len(classes) != n_tasks:
        raise DataError(
            f"{name} has shape {classes.shape} and type {classes.dtype}; expected a TaskSet, or "
            f"class ids (tasks, way) padded with -1, for {n_tasks} tasks."
        )
    return classes.astype(np.int64)
