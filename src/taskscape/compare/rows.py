"""Rows of numbers: hashing by content, and finding the distinct ones."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt64

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
    """64 bits from ``start`` and each row's set of classes; padding with -1 plays no part."""
    h = start
    for column in -np.sort(-classes.astype(np.int64), axis=1).T:
        h = np.where(column >= 0, subkeys(h, column), h)
    return h


def distinct_rows(rows: Float[np.ndarray, "rows dims"]) -> DistinctRows:
    """Group the rows that are equal bit for bit, in the time of one sort."""
    salt = 0
    while True:
        _, first, kind, counts = np.unique(
            row_hashes(rows, salt), return_index=True, return_inverse=True, return_counts=True
        )
        if all(np.array_equal(c[first][kind], c) for c in np.ascontiguousarray(rows.T)):
            return DistinctRows(first, kind.reshape(-1), counts)
        salt += 1  # two different rows met in one hash
