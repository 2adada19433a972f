"""Distances from tasks to training tasks, and what is said of them: the mean, the nearest few."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from taskscape.compare import DIVERGENCES

__all__ = ["CLOSED", "combined_distances", "summaries_of", "summarise_distances"]

CLOSED = tuple(d.name for d in DIVERGENCES.values() if not (d.needs_alpha or d.has_stderr))
"""Divergences with a closed form."""
T = TypeVar("T")
_NEAREST = (1, 10, 100)
_NUMBERS_AT_ONCE = 1 << 21


def summaries_of(n_reference: int) -> tuple[str, ...]:
    """The mean, and the nearest k where they are at most a tenth of the training tasks."""
    return ("mean", *(f"nearest {k}" for k in _NEAREST if 10 * k <= n_reference))


def summarise_distances(
    distances: Float[np.ndarray, "tasks others"],
) -> dict[str, Float[np.ndarray, "tasks"]]:
    """Mean distance to all training tasks, and to the nearest k."""
    n = distances.shape[1]
    nearest = [k for k in _NEAREST if f"nearest {k}" in summaries_of(n)]

    def some(rows: slice) -> list[Float[np.ndarray, "some"]]:
        block = distances[rows].astype(np.float64)
        found = [block.mean(axis=1)]
        if nearest:
            most = nearest[-1]
            near = np.sort(np.partition(block, most - 1, axis=1)[:, :most], axis=1)
            found += [near[:, :k].mean(axis=1) for k in nearest]
        return found

    parts = _in_threads(some, _blocks(len(distances), n))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return dict(zip(summaries_of(n), columns, strict=True))


def combined_distances(
    test: Float[np.ndarray, "members tasks L"],
    train: Float[np.ndarray, "members others L"],
    kind: str,
) -> Float[np.ndarray, "tasks others"]:
    """What :func:`taskscape.compare.cdist` gives for a closed form, in float32 and by threads."""
    total = np.zeros((test.shape[1], train.shape[1]), dtype=np.float32)
    compute = DIVERGENCES[kind].compute
    for a, b in zip(test.astype(np.float64), train.astype(np.float64), strict=True):
        one = np.empty_like(total)

        def fill(rows: slice, a: np.ndarray = a, b: np.ndarray = b, one: np.ndarray = one) -> float:
            values = compute(a[rows, None], b[None])
            one[rows] = values
            return float(values.sum())

        blocks = _blocks(len(a), b.size)
        mean = sum(_in_threads(fill, blocks)) / one.size
        if len(test) > 1:
            one /= len(test) * (mean if mean > 0 else 1.0)
        total += one
    return total


def _blocks(n: int, numbers_per_row: int) -> Iterator[slice]:
    step = max(1, _NUMBERS_AT_ONCE // numbers_per_row)
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def _in_threads(work: Callable[[slice], T], blocks: Iterator[slice]) -> list[T]:
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # NumPy and SciPy let go of the lock
        return list(pool.map(work, blocks))
