"""The nearest training tasks of every test task: exact, in memory or streamed.

The distance from a query a to a task b is F(b) − g·b up to a constant (:class:`Affine`), so the
nearest tasks are those with the largest inner products. One large matrix product in float32 finds
candidates; their distances are computed again in float64, pair by pair.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from taskscape.arguments import check_whole
from taskscape.compare.divergences import distances as distances_of
from taskscape.compare.posteriors import (
    THREADS,
    Affine,
    Tasks,
    check_together,
    distinct_rows,
    read_chunks,
    read_posterior,
)
from taskscape.devices import one_thread
from taskscape.embeddings import Posterior
from taskscape.errors import DataError
from taskscape.progress import track

_ROWS, _QUERIES = 1 << 11, 1 << 8
"""Tasks and queries of one matrix product: few enough for a CPU's cache."""
_ROUNDINGS = 6
"""Standard deviations of the rounding of a float32 product that are allowed for."""


@dataclass(frozen=True, eq=False, repr=False)
class Neighbours:
    """The k nearest training tasks of each test task, nearest first."""

    indices: Int[np.ndarray, "tasks k"]
    """Places in the training set, counted through all chunks."""
    distances: Float[np.ndarray, "tasks k"]

    def __repr__(self) -> str:
        tasks, k = self.indices.shape
        return f"Neighbours(the {k} nearest of {tasks:,} tasks)"

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, for JSON."""
        return {"indices": self.indices.tolist(), "distances": self.distances.tolist()}


def nearest(
    test: Tasks, train: Tasks | Iterable[Tasks], k: int = 10, *, kind: str = "kl"
) -> Neighbours:
    """The ``k`` training tasks with the smallest distance from each test task, exactly.

    ``train`` is embedded tasks, λ (tasks, L), or an iterable of chunks of either, such as
    ``Catalogue.posteriors()``, of which only one is in memory at a time. Tasks at equal distance
    come in the order of ``train``; where there are fewer than ``k``, all do. ``kind`` is an entry
    of ``DIVERGENCES``; others than KL go pair by pair.

    >>> near = nearest(np.array([[1.0, 2.0]]), np.array([[5.0, 1.0], [1.0, 2.1]]), k=1)
    >>> near.indices.tolist()
    [[1]]
    """
    queries, k = read_posterior(test, "test"), check_whole(k, "k", 1)
    nothing = np.empty((len(queries), 0))
    near, offset = Neighbours(nothing.astype(np.int64), nothing), 0
    for chunk in track(read_chunks(train, "train"), "nearest tasks"):
        check_together(queries, chunk)
        if kind == "kl":
            own = TaskIndex(chunk).search(queries, k)
        else:
            matrix = distances_of(queries, chunk, kind)
            own = Neighbours(np.broadcast_to(np.arange(len(chunk)), matrix.shape), matrix)
        near = _merge(near, Neighbours(own.indices + offset, own.distances), k)
        offset += len(chunk)
    if not offset:
        raise DataError("train has no tasks.")
    return near


def _merge(first: Neighbours, second: Neighbours, k: int) -> Neighbours:
    """The best k of two; of tasks at equal distance, those that come first."""
    indices = np.concatenate([first.indices, second.indices], axis=1)
    distances = np.concatenate([first.distances, second.distances], axis=1)
    order = np.lexsort((indices, distances))[:, :k]
    return Neighbours(
        np.take_along_axis(indices, order, axis=1), np.take_along_axis(distances, order, axis=1)
    )


@dataclass(frozen=True, eq=False)
class _Left:
    """The tasks that may be found, row by row."""

    tasks: Int[np.ndarray, "left"]
    """In the order of their rows, those of a row in the order in which equals come."""
    counts: Int[np.ndarray, "rows"]
    """How many of them each row has."""
    begins: Int[np.ndarray, "rows"]
    """Where those of each row begin."""
    turns: Int[np.ndarray, "rows"]
    """When the first of each row comes among equals."""
    F: Float[np.ndarray, "rows"]
    """F of each row; infinite where none is left."""


class TaskIndex:
    """Training tasks made ready for many searches. Equal tasks are kept as one row."""

    def __init__(
        self, tasks: Posterior, tie_keys: UInt64[np.ndarray, "tasks"] | None = None
    ) -> None:
        """Tasks at equal distance are given in the order of ``tie_keys``, then of their places."""
        self.n_tasks = len(tasks)
        kinds = distinct_rows(tasks.values, tasks.logs)
        self.row_of_task = kinds.kind
        if len(kinds.first) < len(tasks):
            tasks = tasks[kinds.first]
        else:  # in the order they have
            self.row_of_task = np.arange(len(tasks))
        self.x, self.F = tasks.values, tasks.log_normaliser
        self._turn_of_task = np.arange(self.n_tasks)
        if tie_keys is not None:
            self._turn_of_task[np.argsort(tie_keys, kind="stable")] = np.arange(self.n_tasks)
        self.tasks_by_row = np.lexsort((self._turn_of_task, self.row_of_task))

    def search(
        self, queries: Posterior, k: int, unused: Bool[np.ndarray, "tasks"] | None = None
    ) -> Neighbours:
        """The k nearest tasks of each query, or those of them that are still ``unused``."""
        left = self._left(unused)
        k = min(k, len(left.tasks))
        if not k:
            nothing = np.empty((len(queries), 0))
            return Neighbours(nothing.astype(np.int64), nothing)
        kinds = distinct_rows(queries.values, queries.logs)
        asked = Affine.of(queries[kinds.first])

        def search_some(begin: int) -> Neighbours:
            some = Affine(*(part[begin : begin + _QUERIES] for part in asked))
            rows, distances = self._rank(some, *self._candidates(some, k, left), k, left)
            return self._expand(rows, distances, k, left)

        with one_thread("blas"), ThreadPoolExecutor(THREADS) as pool:
            parts = list(pool.map(search_some, range(0, len(kinds.first), _QUERIES)))
        return Neighbours(
            np.concatenate([part.indices for part in parts])[kinds.kind],
            np.concatenate([part.distances for part in parts])[kinds.kind],
        )

    def _left(self, unused: Bool[np.ndarray, "tasks"] | None) -> _Left:
        """What may be found: all tasks, or those that are still ``unused``."""
        tasks = self.tasks_by_row
        if unused is not None:
            tasks = tasks[unused[tasks]]
        counts = np.bincount(self.row_of_task[tasks], minlength=len(self.x))
        begins = np.cumsum(counts) - counts
        turns = np.full(len(counts), self.n_tasks)
        turns[counts > 0] = self._turn_of_task[tasks[begins[counts > 0]]]
        return _Left(tasks, counts, begins, turns, np.where(counts > 0, self.F, np.inf))

    def _candidates(
        self, queries: Affine, k: int, left: _Left
    ) -> tuple[Int[np.ndarray, "pairs"], Int[np.ndarray, "pairs"]]:
        """Queries, ascending, and the rows that may be among the k nearest of each.

        They are those with the least F(b) − g·b in float32, and all that rounding may hide.
        """
        slopes = np.ascontiguousarray(queries.g.T, dtype=np.float32)
        heights = (left.F - self._level).astype(np.float32)
        slack, finite = 2 * self._rounding(queries), np.finfo(np.float32).max
        limit = np.full_like(slack, finite)
        query = row = np.empty(0, dtype=np.int64)
        score = np.empty(0, dtype=np.float32)
        n_settled = 0
        for begin in range(0, len(self.x), _ROWS):
            scores = self._items[begin : begin + _ROWS] @ slopes
            np.subtract(heights[begin : begin + _ROWS, None], scores, out=scores)
            if not begin and k < len(scores):
                limit = np.minimum(np.partition(scores, k - 1, axis=0)[k - 1] + slack, finite)
            places, asked = np.divmod(np.flatnonzero(scores <= limit), len(slack))
            query, row = np.concatenate([query, asked]), np.concatenate([row, places + begin])
            score = np.concatenate([score, scores[places, asked]])
            if len(query) > 2 * n_settled or begin + _ROWS >= len(self.x):
                order = np.lexsort((score, query))
                query, row, score = query[order], row[order], score[order]
                last = np.arange(len(query)) - np.searchsorted(query, query) == k - 1
                limit[query[last]] = score[last] + slack[query[last]]
                near = score <= limit[query]
                query, row, score = query[near], row[near], score[near]
                n_settled = len(query)
        return query, row

    def _rounding(self, queries: Affine) -> Float[np.ndarray, "queries"]:
        """By how much a float32 score may be wrong."""
        far, high = self._farthest
        n = queries.g.shape[1] + 1
        size = np.abs(queries.g).max(axis=1) * far + high
        return (_ROUNDINGS * np.sqrt(n) * np.finfo(np.float32).eps * size).astype(np.float32)

    @cached_property
    def _level(self) -> float:
        return float(self.F.mean())

    @cached_property
    def _items(self) -> Float[np.ndarray, "rows columns"]:
        # centring keeps float32's digits for differences
        centre = self.x.mean(axis=0, dtype=np.float64).astype(self.x.dtype)
        return (self.x - centre).astype(np.float32, copy=False)

    @cached_property
    def _farthest(self) -> tuple[float, float]:
        """The largest distance of a row from the centre, and of its F from the level."""
        squares = np.einsum("ij,ij->i", self._items, self._items)
        return float(np.sqrt(squares.max())), float(np.abs(self.F - self._level).max())

    def _rank(
        self,
        queries: Affine,
        query: Int[np.ndarray, "pairs"],
        row: Int[np.ndarray, "pairs"],
        k: int,
        left: _Left,
    ) -> tuple[Int[np.ndarray, "queries some"], Float[np.ndarray, "queries some"]]:
        """The k nearest of the candidates by float64 distances, or all where there are fewer."""
        distances = np.empty(len(query))
        step = max(1, (1 << 22) // self.x.shape[1])
        for begin in range(0, len(query), step):
            part = slice(begin, begin + step)
            b = self.x[row[part]].astype(np.float64)
            distances[part] = queries.to_own(query[part], b, left.F[row[part]])
        order = np.lexsort((left.turns[row], distances, query))
        best = order[np.arange(len(query)) - np.searchsorted(query, query) < k]
        shape = len(queries.F), -1
        return row[best].reshape(shape), distances[best].reshape(shape)

    def _expand(
        self,
        rows: Int[np.ndarray, "queries some"],
        distances: Float[np.ndarray, "queries some"],
        k: int,
        left: _Left,
    ) -> Neighbours:
        """From distinct rows to tasks; those of rows that are equally far come in their turns."""
        each = left.counts[rows]
        before = np.cumsum(each, axis=1) - each
        farther = distances > np.roll(distances, 1, axis=1)  # than the row before
        nearer = np.maximum.accumulate(np.where(farther, before, 0), axis=1)
        taken = np.clip(k - nearer, 0, each)
        query = np.repeat(np.arange(len(rows)), taken.sum(axis=1))
        taken = taken.ravel()
        within = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
        tasks = left.tasks[np.repeat(left.begins[rows].ravel(), taken) + within]
        far = np.repeat(distances.ravel(), taken)
        order = np.lexsort((self._turn_of_task[tasks], far, query))
        rank = np.arange(len(query)) - np.searchsorted(query, query)
        best = order[rank < k]
        return Neighbours(tasks[best].reshape(len(rows), k), far[best].reshape(len(rows), k))
