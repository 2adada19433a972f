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

from taskscape.compare.posteriors import AffineKL, affine_kl, side_by_side, sum_members
from taskscape.compare.rows import distinct_rows
from taskscape.embeddings.blocks import boxes, log_beta, with_sums

_BOX = 512
"""Tasks of a box."""
THREADS = max(1, min(4, os.cpu_count() or 1))
"""How many threads a search uses."""

_SPARE = 8
"""Candidates beyond the k-th that are ranked again, since matrix products round."""
_MORE = 4
"""So many times more candidates where the k-th cannot be told from what was passed over."""
_QUERIES = 1024
_BOUNDS_AT_ONCE = 1 << 22
_SCORES_AT_ONCE = 1 << 21
"""How many scores are held at once when some rows meet many queries."""


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


def one_blas_thread() -> AbstractContextManager[object]:
    """Keep BLAS to one thread where threads of our own run small matrix products."""
    return threadpool_limits(1, user_api="blas")


class Sides(NamedTuple):
    """The least or the greatest of each coordinate in each box, and ln Γ of it.

    The coordinates are λ and its sum, for one member after another.
    """

    at: Float[np.ndarray, "coordinates boxes"]
    log_gamma: Float[np.ndarray, "coordinates boxes"]

    @staticmethod
    def of(sides: Float[np.ndarray, "boxes members sides"]) -> "Sides":
        """These sides, with what bounds need of them."""
        at = np.ascontiguousarray(sides.reshape(len(sides), -1).T)
        return Sides(at, gammaln(at))


def least_kl(
    queries: AffineKL, weights: Float[np.ndarray, "members"], low: Sides, high: Sides
) -> Float[np.ndarray, "queries boxes"]:
    r"""What the divergence from each query to any task of a box is at least.

    With the Bregman divergence d of ln Γ and the sums s of λ,

    .. math:: KL[a \| b] = \sum_l d(b_l, a_l) - d(s_b, s_a), \quad
        d(y, x) = \ln\Gamma(y) - \ln\Gamma(x) - \psi(x) (y - x) \ge 0,

    where d grows with the distance of y from x: the sides of a box bound every term.
    """
    bounds = np.zeros((len(queries.lam), low.at.shape[1]))
    coordinates = _coordinates(queries, len(weights))
    n_sides = coordinates.shape[1] // len(weights)
    for i, weight in enumerate(np.repeat(weights, n_sides)):
        a = coordinates[:, i, None]
        to_low, to_high = (
            side.log_gamma[i] - psi(a) * side.at[i] + (psi(a) * a - gammaln(a))
            for side in (low, high)
        )
        is_sum = i % n_sides == n_sides - 1
        if is_sum:
            bounds -= weight * np.maximum(to_low, to_high)
        else:
            to_low *= a < low.at[i]
            to_high *= a > high.at[i]
            bounds += weight * (to_low + to_high)
    return bounds


def slack_of(
    queries: AffineKL, weights: Float[np.ndarray, "members"], low: Sides, high: Sides
) -> Float[np.ndarray, "queries"]:
    """By how much two distances to tasks in the boxes can differ from rounding alone.

    Distances, scores and bounds add up the same terms in different ways, and the rounding of a sum
    is in proportion to how large its terms are.
    """
    a = _coordinates(queries, len(weights))
    # within a box ln Γ goes no lower than -0.13
    log_gamma = 1 + np.maximum(np.abs(low.log_gamma), np.abs(high.log_gamma)).max(axis=1)
    terms = np.abs(psi(a)) * (a + high.at.max(axis=1)) + np.abs(gammaln(a)) + log_gamma
    steps = 2 * (a.shape[1] + 8) * np.finfo(np.float64).eps
    return steps * (terms @ np.repeat(weights, a.shape[1] // len(weights)))


def _coordinates(queries: AffineKL, members: int) -> Float[np.ndarray, "queries coordinates"]:
    """Where queries lie between the sides of boxes."""
    by_member = queries.lam.reshape(len(queries.lam), members, -1)
    return with_sums(by_member).reshape(len(queries.lam), -1)


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


class _Left(NamedTuple):
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
    """ln B of each row, summed over members; infinite where none is left."""


class TaskIndex:
    """Training tasks sorted into boxes, for exact search by KL divergence.

    With F = ln B and g = E_a[ln φ], the divergence from a query a to a task b is F(b) - g·b up to
    a constant: a maximum-inner-product search over (b, F(b)) in L + 1 dimensions. The sides of a
    box of tasks bound the divergence to all of them from below (:func:`least_kl`), and boxes that
    cannot hold one of the k nearest are never looked into. An ensemble is the same search in
    members times as many dimensions. Tasks with equal λ are kept as one row.
    """

    def __init__(
        self,
        lam: Float[np.ndarray, "members tasks L"],
        tie_keys: UInt64[np.ndarray, "tasks"] | None = None,
    ) -> None:
        """Tasks at equal distance are given in the order of ``tie_keys``, then of their places."""
        self.n_members, self.n_tasks, self.L = lam.shape
        flat = side_by_side(lam)
        rows = distinct_rows(flat)
        x = flat[rows.first]
        sides = with_sums(self._by_member(x))
        order, self._starts = boxes(np.log(sides.reshape(len(x), -1)), _BOX)
        self.x, sides = x[order], sides[order]
        self.log_beta = log_beta(self._by_member(self.x))
        self._low, self._high = (
            Sides.of(side)
            for side in (
                np.minimum.reduceat(sides, self._starts[:-1], axis=0),
                np.maximum.reduceat(sides, self._starts[:-1], axis=0),
            )
        )
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        self.row_of_task = place[rows.kind]
        self._turn_of_task = np.arange(self.n_tasks)
        if tie_keys is not None:
            self._turn_of_task[np.argsort(tie_keys, kind="stable")] = np.arange(self.n_tasks)
        self.tasks_by_row = np.lexsort((self._turn_of_task, self.row_of_task))

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
        left = self._left(weights, unused)
        k = min(k, len(left.tasks))
        if not k:
            nothing = np.empty((lam.shape[1], 0))
            return Neighbours(nothing.astype(np.int64), nothing)
        kinds = distinct_rows(side_by_side(lam))
        rows, distances = self._search_rows(lam[:, kinds.first], k, weights, left)
        near = self._expand(rows, distances, k, left)
        return Neighbours(near.indices[kinds.kind], near.distances[kinds.kind])

    def _left(
        self, weights: Float[np.ndarray, "members"], unused: Bool[np.ndarray, "tasks"] | None
    ) -> _Left:
        """What may be found: all tasks, or those that are still ``unused``."""
        tasks = self.tasks_by_row
        if unused is not None:
            tasks = tasks[unused[tasks]]
        counts = np.bincount(self.row_of_task[tasks], minlength=len(self.x))
        begins = np.cumsum(counts) - counts
        turns = np.full(len(counts), self.n_tasks)
        turns[counts > 0] = self._turn_of_task[tasks[begins[counts > 0]]]
        F = np.where(counts > 0, sum_members(self.log_beta.T, weights), np.inf)
        return _Left(tasks, counts, begins, turns, F)

    def _search_rows(
        self,
        lam: Float[np.ndarray, "members queries L"],
        k: int,
        weights: Float[np.ndarray, "members"],
        left: _Left,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The nearest distinct rows of distinct queries, and how far they are."""
        k = min(k, len(left.F))
        at_once = max(32, min(_QUERIES, _BOUNDS_AT_ONCE // (len(self._starts) - 1)))
        order, starts = boxes(side_by_side(lam), at_once)
        rows = np.empty((len(order), k), dtype=np.int64)
        distances = np.empty((len(order), k))

        def search(i: int) -> None:
            batch = order[starts[i] : starts[i + 1]]
            queries = affine_kl(lam[:, batch], weights)
            near = self._search_batch(queries, k, k + _SPARE, weights, left)
            rows[batch], distances[batch] = near

        with one_blas_thread(), ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(search, range(len(starts) - 1)))
        return rows, distances

    def _bounds(
        self, queries: AffineKL, weights: Float[np.ndarray, "members"], F: np.ndarray
    ) -> Float[np.ndarray, "queries boxes"]:
        """Below F(b) - g · b of everything in each box; infinite for boxes that are used up."""
        bounds = least_kl(queries, weights, self._low, self._high) - queries.constant[:, None]
        dead = np.isinf(np.minimum.reduceat(F, self._starts[:-1]))
        bounds[:, dead] = np.inf
        return bounds

    def _search_batch(
        self,
        queries: AffineKL,
        k: int,
        keep: int,
        weights: Float[np.ndarray, "members"],
        left: _Left,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Look into the most promising boxes of each query, then into those that still could.

        Of each query ``keep`` candidates are ranked. Where one that was passed over may be as near
        as the k-th, more of them are.
        """
        slack = slack_of(queries, weights, self._low, self._high)
        candidates = _Candidates(len(queries.g), min(keep, len(left.F)))
        bounds = self._bounds(queries, weights, left.F) - slack[:, None]
        n_boxes = bounds.shape[1]
        n_best = -(-2 * candidates.items.shape[1] * n_boxes // len(left.F))
        while True:
            limit = np.minimum(candidates.limit, np.finfo(np.float64).max)
            promising = bounds <= limit[:, None]
            if not promising.any():
                break
            if n_best < n_boxes:
                last = np.partition(bounds, n_best - 1, axis=1)[:, n_best - 1]
                promising &= bounds <= last[:, None]
            self._look_into(promising, queries, left.F, candidates)
            bounds[promising] = np.inf
            n_best *= 2
        rows, distances = self._rank(candidates, queries, k, left)
        if keep < len(left.F):
            passed_over = candidates.limit + queries.constant - slack
            seen_all = np.isinf(candidates.limit)
            unsure = np.flatnonzero((distances[:, -1] >= passed_over) & ~seen_all)
            at_once = max(1, _SCORES_AT_ONCE // (_MORE * keep))
            for begin in range(0, len(unsure), at_once):
                some = unsure[begin : begin + at_once]
                again = self._search_batch(queries.some(some), k, _MORE * keep, weights, left)
                rows[some], distances[some] = again
        return rows, distances

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
        self, candidates: _Candidates, queries: AffineKL, k: int, left: _Left
    ) -> tuple[np.ndarray, np.ndarray]:
        """Distances computed anew, pair by pair, so that equal tasks have equal distances."""
        rows = np.where(candidates.items >= 0, candidates.items, 0)
        distances = queries.to_own(self.x[rows], left.F[rows])
        distances[candidates.items < 0] = np.inf
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
