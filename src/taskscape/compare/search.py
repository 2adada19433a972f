"""The nearest training tasks of every test task: exact, in memory or streamed.

The distance from a query a to a task b is F(b) − g·b up to a constant (:class:`Affine`), so the
nearest tasks are those with the largest inner products. One large matrix product in float32 finds
candidates; their distances are computed again in float64, pair by pair.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt64

from taskscape.arguments import check_choice, check_whole
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
from taskscape.compiling import keep_programs
from taskscape.devices import one_thread
from taskscape.embeddings import Posterior
from taskscape.errors import DataError
from taskscape.progress import track

keep_programs()

_ROWS, _QUERIES = 1 << 11, 1 << 10
"""Tasks and queries of one matrix product on a CPU: few enough for its cache."""
_ITEMS = 1 << 17
"""Tasks of one matrix product on a device."""
_SPARE = 16
"""Candidates in float32 beyond the k-th."""
_MORE = 4
"""So many times more candidates where the k-th cannot be told from what was passed over."""
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
    test: Tasks,
    train: Tasks | Iterable[Tasks],
    k: int = 10,
    *,
    kind: str = "kl",
    method: str = "auto",
) -> Neighbours:
    """The ``k`` training tasks with the smallest distance from each test task, exactly.

    ``train`` is embedded tasks, λ (tasks, L), or an iterable of chunks of either, such as
    ``Catalogue.posteriors()``, of which only one is in memory at a time. Tasks at equal distance
    come in the order of ``train``. ``kind`` is an entry of ``DIVERGENCES``; others than KL go pair
    by pair. ``method``, of KL, is ``"cpu"``, ``"device"`` (JAX's default device) or ``"auto"``;
    both give the same tasks.

    >>> near = nearest(np.array([[1.0, 2.0]]), np.array([[5.0, 1.0], [1.0, 2.1]]), k=1)
    >>> near.indices.tolist()
    [[1]]
    """
    near = nearest_there_are(test, train, check_whole(k, "k", 1), kind=kind, method=method)
    if (n := near.indices.shape[1]) < k:
        raise DataError(f"k={k} is more than the {n} training tasks; lower k.")
    return near


def nearest_there_are(
    test: Tasks,
    train: Tasks | Iterable[Tasks],
    k: int,
    *,
    kind: str = "kl",
    method: str = "auto",
) -> Neighbours:
    """:func:`nearest`, or all training tasks where there are fewer."""
    queries = read_posterior(test, "test")
    check_choice(method, "method", ("auto", "cpu", "device"))
    near: Neighbours | None = None
    offset = 0
    for chunk in track(read_chunks(train, "train"), "nearest tasks"):
        check_together(queries, chunk)
        if kind == "kl":
            own = TaskIndex(chunk, method=method).search(queries, min(k, len(chunk)))
        else:
            own = nearest_columns(distances_of(queries, chunk, kind), k)
        near = _merge(near, Neighbours(own.indices + offset, own.distances), k)
        offset += len(chunk)
    if near is None:
        raise DataError("train has no tasks.")
    return near


def nearest_columns(distances: Float[np.ndarray, "tests trains"], k: int) -> Neighbours:
    """The k nearest by a matrix of distances, or all where there are fewer."""
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return Neighbours(order, np.take_along_axis(distances, order, axis=1))


def _merge(first: Neighbours | None, second: Neighbours, k: int) -> Neighbours:
    """The best k of two; of tasks at equal distance, those that come first."""
    if first is None:
        return second
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
        self,
        tasks: Posterior,
        tie_keys: UInt64[np.ndarray, "tasks"] | None = None,
        method: str = "auto",
    ) -> None:
        """Tasks at equal distance are given in the order of ``tie_keys``, then of their places."""
        self.n_tasks = len(tasks)
        self.on_cpu = method == "cpu" or (method == "auto" and jax.default_backend() == "cpu")
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

    def __len__(self) -> int:
        return self.n_tasks

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
        parts = [
            self._search(Affine(*(part[b : b + _QUERIES] for part in asked)), k, left)
            for b in range(0, len(kinds.first), _QUERIES)
        ]
        rows, distances = (np.concatenate(part) for part in zip(*parts, strict=True))
        near = self._expand(rows, distances, k, left)
        return Neighbours(near.indices[kinds.kind], near.distances[kinds.kind])

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

    def _search(
        self, queries: Affine, k: int, left: _Left, keep: int = 0
    ) -> tuple[Int[np.ndarray, "queries k"], Float[np.ndarray, "queries k"]]:
        """The k nearest rows of each query: ``keep`` candidates by rounded scores, then ranked.

        Where one that was passed over may be as near as the k-th, more of them are.
        """
        n = len(self.x)
        k, keep = min(k, n), min(max(keep, k + _SPARE), n)
        find = self._on_cpu if self.on_cpu else self._on_device
        rows, scores = find(queries.g, left.F - self._level, keep)
        rows = np.where(np.isinf(scores), -1, rows)
        near, distances = self._rank(queries, rows, k, left)
        if keep < n:
            shifted = queries.constant + self._level - queries.g @ self._centre
            passed_over = scores[:, -1] + shifted - self._slack(queries)
            unsure = np.flatnonzero(distances[:, -1] >= passed_over)
            if len(unsure):
                again = Affine(*(part[unsure] for part in queries))
                near[unsure], distances[unsure] = self._search(again, k, left, _MORE * keep)
        return near, distances

    def _slack(self, queries: Affine) -> Float[np.ndarray, "queries"]:
        """By how much a float32 score may be wrong."""
        far, high = self._farthest
        n = queries.g.shape[1] + 1
        size = np.abs(queries.g).max(axis=1) * far + high
        return _ROUNDINGS * np.sqrt(n) * np.finfo(np.float32).eps * size

    # centring keeps float32's digits for differences

    @cached_property
    def _centre(self) -> Float[np.ndarray, "columns"]:
        return self.x.mean(axis=0, dtype=np.float64).astype(self.x.dtype)

    @cached_property
    def _level(self) -> float:
        return float(self.F.mean())

    @cached_property
    def _items(self) -> Float[np.ndarray, "rows columns"]:
        return (self.x - self._centre).astype(np.float32, copy=False)

    @cached_property
    def _farthest(self) -> tuple[float, float]:
        """The largest distance of a row from the centre, and of its F from the level."""
        squares = np.einsum("ij,ij->i", self._items, self._items)
        return float(np.sqrt(squares.max())), float(np.abs(self.F - self._level).max())

    def _on_cpu(
        self, g: Float[np.ndarray, "queries columns"], F: Float[np.ndarray, "rows"], keep: int
    ) -> tuple[Int[np.ndarray, "queries keep"], Float[np.ndarray, "queries keep"]]:
        """The ``keep`` rows with the least F(b) − g·b, and these scores, ascending."""
        slopes, heights = np.ascontiguousarray(g.T, dtype=np.float32), F.astype(np.float32)
        starts = np.arange(0, len(F), _ROWS)

        def scan(part: Int[np.ndarray, "_"]) -> _Candidates:
            best = _Candidates(len(g), keep)
            for begin in part.tolist():
                rows = slice(begin, begin + _ROWS)
                scores = self._items[rows] @ slopes
                np.subtract(heights[rows, None], scores, out=scores)
                best.offer(begin, scores)
            best.settle()
            return best

        with one_thread("blas"), ThreadPoolExecutor(THREADS) as pool:
            best = list(pool.map(scan, np.array_split(starts, min(THREADS, len(starts)))))
        rows = np.concatenate([f.rows for f in best], axis=1)
        scores = np.concatenate([f.scores for f in best], axis=1)
        order = np.lexsort((rows, scores))[:, :keep]
        return np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)

    @cached_property
    def _on_the_device(self) -> Float[Array, "chunks n columns"]:
        n, columns = self._items.shape
        chunk = min(_ITEMS, n)
        return jnp.asarray(
            np.pad(self._items, ((0, -n % chunk), (0, 0))).reshape(-1, chunk, columns)
        )

    def _on_device(
        self, g: Float[np.ndarray, "queries columns"], F: Float[np.ndarray, "rows"], keep: int
    ) -> tuple[Int[np.ndarray, "queries keep"], Float[np.ndarray, "queries keep"]]:
        """The same, by matrix products on JAX's default device."""
        chunks, n, _ = self._on_the_device.shape
        heights = np.full(chunks * n, np.inf, dtype=np.float32)
        heights[: len(F)] = F
        slopes = jnp.asarray(g, jnp.float32)
        scores, rows = _scan(slopes, self._on_the_device, heights.reshape(chunks, n), keep)
        return np.asarray(rows, dtype=np.int64), -np.asarray(scores, dtype=np.float64)

    def _rank(
        self, queries: Affine, rows: Int[np.ndarray, "queries some"], k: int, left: _Left
    ) -> tuple[Int[np.ndarray, "queries k"], Float[np.ndarray, "queries k"]]:
        """The k nearest of the candidates by float64 distances; -1 where none is left."""
        known, rows = rows >= 0, np.maximum(rows, 0)
        distances = np.empty(rows.shape)
        step = max(1, (1 << 22) // (rows.shape[1] * self.x.shape[1]))
        for begin in range(0, len(rows), step):
            part = slice(begin, begin + step)
            asked = Affine(*(each[part] for each in queries))
            b = self.x[rows[part]].astype(np.float64)
            distances[part] = asked.to_own(b, left.F[rows[part]])
        distances[~known] = np.inf
        order = np.lexsort((left.turns[rows], distances))[:, :k]
        distances = np.take_along_axis(distances, order, axis=1)
        rows = np.take_along_axis(rows, order, axis=1)
        return np.where(np.isinf(distances), -1, rows), distances

    def _expand(
        self,
        rows: Int[np.ndarray, "queries some"],
        distances: Float[np.ndarray, "queries some"],
        k: int,
        left: _Left,
    ) -> Neighbours:
        """From distinct rows to tasks; those of rows that are equally far come in their turns."""
        each = np.where(rows >= 0, left.counts[rows], 0)
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
        rank = np.arange(len(query)) - np.searchsorted(query, query, side="left")
        best = order[rank < k]
        return Neighbours(tasks[best].reshape(len(rows), k), far[best].reshape(len(rows), k))


class _Candidates:
    """The best few rows seen so far for each query."""

    def __init__(self, n_queries: int, keep: int) -> None:
        self.rows = np.zeros((n_queries, keep), dtype=np.int64)
        self.scores = np.full((n_queries, keep), np.inf)
        self._heap: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._heaped = 0

    def offer(self, begin: int, scores: Float[np.ndarray, "n queries"]) -> None:
        """Remember which of the rows from ``begin`` on are good enough for each query."""
        limit, keep = self.scores[:, -1].astype(np.float32), self.scores.shape[1]
        if np.isinf(limit[0]) and len(scores) > keep:
            limit = np.partition(scores, keep - 1, axis=0)[keep - 1]
        row, query = np.divmod(np.flatnonzero(scores <= limit), scores.shape[1])
        self._heap.append((query, scores[row, query].astype(np.float64), row + begin))
        self._heaped += len(row)
        if self._heaped > self.scores.size:
            self.settle()

    def settle(self) -> None:
        """Keep the best of what was offered."""
        known = np.nonzero(self.scores < np.inf)
        heap = [(known[0], self.scores[known], self.rows[known]), *self._heap]
        query, score, row = (np.concatenate(parts) for parts in zip(*heap, strict=True))
        self._heap, self._heaped = [], 0
        order = np.lexsort((row, score, query))
        query, score, row = query[order], score[order], row[order]
        rank = np.arange(len(query)) - np.searchsorted(query, query, side="left")
        good = (rank < self.scores.shape[1]) & (score < np.inf)
        self.rows[query[good], rank[good]] = row[good]
        self.scores[query[good], rank[good]] = score[good]


@partial(jax.jit, static_argnames="keep")
def _scan(
    g: Float[Array, "queries columns"],
    items: Float[Array, "chunks n columns"],
    heights: Float[Array, "chunks n"],
    keep: int,
) -> tuple[Float[Array, "queries keep"], Int[Array, "queries keep"]]:
    """The ``keep`` largest g·b − F(b) of each query over the items of all chunks."""
    n_chunks, n, _ = items.shape

    def step(
        best: tuple[Array, Array], numbered: tuple[Array, Array, Array]
    ) -> tuple[tuple[Array, Array], None]:
        i, chunk, F = numbered
        scores = jnp.matmul(g, chunk.T, precision="highest") - F
        top, place = jax.lax.top_k(scores, min(keep, n))
        all_scores = jnp.concatenate([best[0], top], axis=1)
        all_items = jnp.concatenate([best[1], place + i * n], axis=1)
        kept, which = jax.lax.top_k(all_scores, keep)
        return (kept, jnp.take_along_axis(all_items, which, axis=1)), None

    start = (
        jnp.full((len(g), keep), -jnp.inf, g.dtype),
        jnp.zeros((len(g), keep), jnp.int32),
    )
    numbers = jnp.arange(n_chunks, dtype=jnp.int32)
    return jax.lax.scan(step, start, (numbers, items, heights))[0]
