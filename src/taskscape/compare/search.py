"""The nearest training tasks of every test task: exact, in memory or streamed."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from taskscape.compare.index import Found, TaskIndex
from taskscape.compare.matmul import search_by_matmul
from taskscape.compare.means import weights_for
from taskscape.compare.posteriors import Tasks, check_together, read_chunks, read_lam
from taskscape.compare.scan import search_by_scan
from taskscape.errors import DataError
from taskscape.progress import track

__all__ = ["Neighbours", "nearest", "nearest_distance"]

_FEW_QUERIES = 64
"""Up to here sorting a chunk into boxes costs more than looking at all of it."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The k nearest training tasks of each test task, nearest first."""

    indices: Int[np.ndarray, "tasks k"]
    """Places in the training set, counted through all chunks."""
    distances: Float[np.ndarray, "tasks k"]

    def to_json(self) -> dict[str, Any]:
        """Plain lists, for JSON."""
        return {"indices": self.indices.tolist(), "distances": self.distances.tolist()}


def nearest(
    test: Tasks,
    train: Tasks | Iterable[Tasks],
    k: int = 10,
    *,
    scales: object = None,
    method: str = "auto",
) -> Neighbours:
    """The ``k`` training tasks with the smallest KL from each test task, exactly.

    ``train`` is an array of λ, embedded tasks, or an iterable of chunks of them, such as the scan
    of a catalogue, of which only one is in memory at a time. Tasks at equal distance come in the
    order of ``train``. ``method`` is ``"boxes"`` (look only where a near task can be; the fastest
    on a CPU), ``"matmul"`` (look at everything, on JAX's default device, the fastest on a GPU),
    or ``"auto"``; all give the same tasks.

    >>> near = nearest(np.array([[1.0, 2.0]]), np.array([[5.0, 1.0], [1.0, 2.1]]), k=1)
    >>> near.indices.tolist()
    [[1]]
    """
    a = read_lam(test, "test")
    if k < 1:
        raise DataError(f"k={k} must be at least 1.")
    if method not in ("auto", "boxes", "matmul"):
        raise DataError(f"method={method!r} is not known; use 'auto', 'boxes' or 'matmul'.")
    if method == "auto":
        method = "boxes" if jax.default_backend() == "cpu" else "matmul"
    weights = weights_for(a, train, scales)
    found, offset = None, 0
    for chunk in track(read_chunks(train, "train"), "nearest tasks"):
        check_together(a, chunk)
        here = _search(a, chunk, k, weights, method)
        here = Found(here.indices + offset, here.distances)
        found = here if found is None else _merge(found, here, k)
        offset += chunk.shape[1]
    if found is None:
        raise DataError("train has no tasks.")
    if offset < k:
        raise DataError(f"k={k} is more than the {offset} training tasks; lower k.")
    return Neighbours(found.indices, found.distances)


def nearest_distance(
    test: Tasks, train: Tasks | Iterable[Tasks], k: int = 10, *, scales: object = None
) -> Float[np.ndarray, "tasks"]:
    """Mean KL from each test task to its ``k`` nearest training tasks."""
    return nearest(test, train, k, scales=scales).distances.mean(axis=1)


def _search(
    a: Float[np.ndarray, "members queries L"],
    lam: Float[np.ndarray, "members tasks L"],
    k: int,
    weights: Float[np.ndarray, "members"],
    method: str,
) -> Found:
    if method == "matmul":
        return search_by_matmul(a, lam, k, weights)
    if a.shape[1] <= _FEW_QUERIES:
        return search_by_scan(a, lam, k, weights)
    return TaskIndex(lam).search(a, k, weights)


def _merge(first: Found, second: Found, k: int) -> Found:
    """The best k of two; the first one's tasks stand before the second's, so they win ties."""
    indices = np.concatenate([first.indices, second.indices], axis=1)
    distances = np.concatenate([first.distances, second.distances], axis=1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return Found(
        np.take_along_axis(indices, order, axis=1), np.take_along_axis(distances, order, axis=1)
    )
