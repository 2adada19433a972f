"""An index of training tasks that finds the nearest by KL exactly, and looks at few of them."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64
from scipy.special import gammaln, psi
from threadpoolctl import threadpool_limits

from taskscape.compare.posteriors import AffineKL, affine_kl, log_beta, side_by_side
from taskscape.compare.rows import boxes, distinct_rows

__all__ = ["THREADS", "Neighbours", "TaskIndex", "one_blas_thread"]

THREADS = max(1, min(4, os.cpu_count() or 1))
"""How many threads a search uses."""

_SPARE = 8
"""_Candidates beyond the k-th that are ranked again, since matrix products round."""
_QUERIES = 1024
_BOUNDS_AT_ONCE = 1 << 22
_ROUNDING = 1e-10
_SCORES_AT_ONCE = 1 << 21
"""How many scores are held at once when some rows meet many queries."""


@dataclass(frozen=True, eq=False, repr=False)
class Neighbours:
    """The k nearest training tasks of each test task, nearest first."""

    indices: Int[np.ndarray, "tasks k"]
    """Places in the training set, counted through all chunks; -1 where there are no more."""
    distances: Float[np.ndarray, "tasks k"]

    def __repr__(self) -> str:
        tasks, k = self.indices.shape
        return f"Neighbours(the {k} nearest of {tasks:,} tasks)"

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, for JSON."""
        return {"indices": self.indices.tolist(), "distances": self.distances.tolist()}


def one_blas_thread() -> AbstractContextManager[object]:
    """Keep BLAS to one thread where threads of our own run small matrix products."""
    return threadpool_limits(1, user_api="blas")


class _Sides(NamedTuple):
    """The least or the greatest of each coordinate in each box, and ln Γ of it."""

    at: Float[np.ndarray, "coordinates boxes"]
    log_gamma: Float[np.ndarray, "coordinates boxes"]


class _Candidates:
    """The best few rows seen so far for each query."""

    def __init__(self, n_queries: int, keep: int) -> None:
        self.items = np.full((n_queries, keep), -1, dtype=np.int64)
        self.scores = np.full((n_queries, keep), np.inf)
        self._heap: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._heaped = 0

    @property
    def limit(self) -> Float[np.ndarray, "queries"]:
        """The score that a row must beat to be among the best of a query."""
        return self.scores[:, -1]

    def offer(
        self, queries: Int[np.ndarray, "some"], begin: int, scores: Float[np.ndarray, "some n"]
    ) -> None:
        """Remember which of the rows from ``begin`` on are good enough for these queries."""
        limit = self.limit[queries]
        keep = self.scores.shape[1]
        hits = np.flatnonzero(scores <= limit[:, None])
        if scores.shape[1] > keep and len(hits) > keep * len(scores):
            limit = np.minimum(limit, np.partition(scores, keep - 1, axis=1)[:, keep - 1])
            hits = np.flatnonzero(scores <= limit[:, None])
        query, place = np.divmod(hits, scores.shape[1])
        self._heap.append((queries[query], scores.ravel()[hits], place + begin))
        self._heaped += len(hits)
        if self._heaped > 4 * self.scores.size + _SCORES_AT_ONCE:
            self.settle()

    def settle(self) -> None:
        """Keep the best of what was offered."""
        old = np.nonzero(self.items >= 0)
        heap = [(old[0], self.scores[old], self.items[old]), *self._heap]
        query, score, item = (np.concatenate(parts) for parts in zip(*heap, strict=True))
        self._heap, self._heaped = [], 0
        real = score < np.inf
        query, score, item = query[real], score[real], item[real]
        order = np.lexsort((item, score, query))
        query, score, item = query[order], score[order], item[order]
        rank = np.arange(len(query)) - np.searchsorted(query, query, side="left")
        good = rank < self.scores.shape[1]
        self.items[query[good], rank[good]] = item[good]
        self.scores[query[good], rank[good]] = score[good]


class TaskIndex:
    r"""Training tasks sorted into boxes, for exact search by KL divergence.

    With F = ln B and g = E_a[ln φ], the divergence from a query a to a task b is F(b) - g·b up to
    a constant: a maximum-inner-product search over (b, F(b)) in L + 1 dimensions. It is also a sum
    over themes, with the Bregman divergence d of ln Γ and the sums s of λ,

    .. math:: KL[a \| b] = \sum_l d(b_l, a_l) - d(s_b, s_a), \quad
        d(y, x) = \ln\Gamma(y) - \ln\Gamma(x) - \psi(x) (y - x) \ge 0,

    where d grows with the distance of y from x. So the sides of a box of tasks bound the
    divergence to all of them from below, and boxes that cannot hold one of the k nearest are never
    looked into. An ensemble is the same search in members times as many dimensions. Tasks with
    equal λ are kept as one row.
    """

    def __init__(
        self,
        lam: Float[np.ndarray, "members tasks L"],
        tie_keys: UInt64[np.ndarray, "tasks"] | None = None,
        box_size: int = 512,
    ) -> None:
        """Tasks of equal λ are given in the order of ``tie_keys``, then of their places."""
        self.n_members, self.n_tasks, self.L = lam.shape
        flat = side_by_side(lam)
        rows = distinct_rows(flat)
        x = flat[rows.first]
        coordinates = np.concatenate([x, self._by_member(x).sum(axis=2)], axis=1)
        order, self._starts = boxes(np.log(coordinates), box_size)
        self.x = x[order]
        self.log_beta = log_beta(self._by_member(self.x))
        coordinates = coordinates[order]
        self._low, self._high = (
            _Sides(np.ascontiguousarray(side.T), gammaln(side.T))
            for side in (
                np.minimum.reduceat(coordinates, self._starts[:-1], axis=0),
                np.maximum.reduceat(coordinates, self._starts[:-1], axis=0),
            )
        )
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        self.row_of_task = place[rows.kind]
        self.counts = rows.counts[order]
        if tie_keys is None:
            self.tasks_by_row = np.argsort(self.row_of_task, kind="stable")
        else:
            self.tasks_by_row = np.lexsort((tie_keys, self.row_of_task))

    def _by_member(self, x: Float[np.ndarray, "rows dims"]) -> np.ndarray:
        return x.reshape(len(x), self.n_members, self.L)

    def __len__(self) -> int:
        return self.n_tasks

    def search(
        self,
        lam: Float[np.ndarray, "members queries L"],
        k: int,
        weights: Float[np.ndarray, "members"],
        unused: Bool[np.ndarray, "tasks"] | None = None,
    ) -> Neighbours:
        """The k nearest tasks of each query, or those of them that are still ``unused``."""
        kinds = distinct_rows(side_by_side(lam))
        rows, distances = self._search_rows(lam[:, kinds.first], k, weights, unused)
        near = self._expand(rows, distances, k, unused)
        return Neighbours(near.indices[kinds.kind], near.distances[kinds.kind])

    def _search_rows(
        self,
        lam: Float[np.ndarray, "members queries L"],
        k: int,
        weights: Float[np.ndarray, "members"],
        unused: Bool[np.ndarray, "tasks"] | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The nearest distinct rows of distinct queries, and how far they are."""
        F = self.log_beta @ weights
        if unused is not None:
            alive = np.zeros(len(F), dtype=bool)
            alive[self.row_of_task[unused]] = True
            F = np.where(alive, F, np.inf)
        k = min(k, len(F))
        at_once = max(32, min(_QUERIES, _BOUNDS_AT_ONCE // (len(self._starts) - 1)))
        order, starts = boxes(side_by_side(lam), at_once)
        rows = np.empty((len(order), k), dtype=np.int64)
        distances = np.empty((len(order), k))

        def search(i: int) -> None:
            batch = order[starts[i] : starts[i + 1]]
            queries = affine_kl(lam[:, batch], weights)
            rows[batch], distances[batch] = self._search_batch(queries, k, weights, F)

        with one_blas_thread(), ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(search, range(len(starts) - 1)))
        return rows, distances

    def _bounds(
        self, queries: AffineKL, weights: Float[np.ndarray, "members"], F: np.ndarray
    ) -> Float[np.ndarray, "queries boxes"]:
        """Below F(b) - g · b of everything in each box; infinite for boxes that are used up."""
        bounds = np.repeat(-queries.constant[:, None], self._low.at.shape[1], axis=1)
        n_dims = self.x.shape[1]
        totals = self._by_member(queries.lam).sum(axis=2)
        coordinates = np.concatenate([queries.lam, totals], axis=1)
        weight = np.concatenate([np.repeat(weights, self.L), weights])
        for i in range(len(weight)):
            a = coordinates[:, i, None]
            to_low, to_high = (
                side.log_gamma[i] - psi(a) * side.at[i] + (psi(a) * a - gammaln(a))
                for side in (self._low, self._high)
            )
            if i < n_dims:
                to_low *= a < self._low.at[i]
                to_high *= a > self._high.at[i]
                bounds += weight[i] * (to_low + to_high)
            else:
                bounds -= weight[i] * np.maximum(to_low, to_high)
        dead = np.isinf(np.minimum.reduceat(F, self._starts[:-1]))
        bounds[:, dead] = np.inf
        return bounds

    def _search_batch(
        self, queries: AffineKL, k: int, weights: Float[np.ndarray, "members"], F: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Look into the most promising boxes of each query, then into those that still could."""
        candidates = _Candidates(len(queries.g), min(k + _SPARE, len(F)))
        bounds = self._bounds(queries, weights, F)
        n_boxes = bounds.shape[1]
        n_best = -(-2 * candidates.items.shape[1] * n_boxes // len(F))
        while True:
            limit = np.minimum(candidates.limit + _ROUNDING, np.finfo(np.float64).max)
            promising = bounds <= limit[:, None]
            if not promising.any():
                break
            if n_best < n_boxes:
                last = np.partition(bounds, n_best - 1, axis=1)[:, n_best - 1]
                promising &= bounds <= last[:, None]
            self._look_into(promising, queries, F, candidates)
            bounds[promising] = np.inf
            n_best *= 2
        return self._rank(candidates, queries, k, F)

    def _look_into(
        self,
        promising: Bool[np.ndarray, "queries boxes"],
        queries: AffineKL,
        F: np.ndarray,
        candidates: _Candidates,
    ) -> None:
        """Score the rows of each box for the queries that may find a near task in it."""
        box_of_pair, query_of_pair = np.nonzero(promising.T)
        ends = np.searchsorted(box_of_pair, np.arange(promising.shape[1] + 1))
        for i in np.unique(box_of_pair):
            which = query_of_pair[ends[i] : ends[i + 1]]
            low, high = int(self._starts[i]), int(self._starts[i + 1])
            step = max(1024, _SCORES_AT_ONCE // len(which))
            for begin in range(low, high, step):
                end = min(begin + step, high)
                scores = F[begin:end] - queries.g[which] @ self.x[begin:end].T
                candidates.offer(which, begin, scores)
        candidates.settle()

    def _rank(
        self,
        candidates: _Candidates,
        queries: AffineKL,
        k: int,
        F: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Distances computed anew, pair by pair, so that equal tasks have equal distances."""
        rows = np.where(candidates.items >= 0, candidates.items, 0)
        distances = queries.to_own(self.x[rows], F[rows])
        distances[candidates.items < 0] = np.inf
        order = np.lexsort((rows, distances))[:, :k]
        distances = np.take_along_axis(distances, order, axis=1)
        rows = np.take_along_axis(rows, order, axis=1)
        return np.where(np.isinf(distances), -1, rows), distances

    def _expand(
        self,
        rows: Int[np.ndarray, "queries some"],
        distances: Float[np.ndarray, "queries some"],
        k: int,
        unused: Bool[np.ndarray, "tasks"] | None,
    ) -> Neighbours:
        """From distinct rows to tasks: all tasks of a row before those of the next."""
        tasks, counts = self.tasks_by_row, self.counts
        if unused is not None:
            tasks = tasks[unused[tasks]]
            counts = np.bincount(self.row_of_task[tasks], minlength=len(counts))
        offsets = np.cumsum(counts) - counts
        k = min(k, len(tasks))
        each = np.where(rows >= 0, counts[rows], 0)
        before = np.cumsum(each, axis=1) - each
        taken = np.clip(k - before, 0, each).ravel()
        first = np.repeat(offsets[rows].ravel(), taken)
        within = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
        return Neighbours(
            tasks[first + within].reshape(len(rows), k),
            np.repeat(distances.ravel(), taken).reshape(len(rows), k),
        )
