"""The nearest tasks in a catalogue on disk, exactly, reading few of its blocks."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from taskscape.compare.index import (
    THREADS,
    Neighbours,
    Sides,
    least_kl,
    one_blas_thread,
    slack_of,
)
from taskscape.compare.posteriors import (
    AffineKL,
    affine_kl,
    log_beta,
    side_by_side,
    sum_members,
)
from taskscape.embeddings import LamShard, Statistics
from taskscape.embeddings.blocks import boxes
from taskscape.engine import map_work

__all__ = ["nearest_in_shards"]

_QUERIES = 256
"""Queries that are looked for together: near ones, which need the same blocks."""
_PAIRS = 1 << 20


def nearest_in_shards(
    a: Float[np.ndarray, "members queries L"],
    shards: list[LamShard],
    k: int,
    weights: Float[np.ndarray, "members"],
) -> Neighbours:
    """The k nearest tasks of each query in files whose blocks hold near tasks.

    The block that looks best to a query, by its box, gives a limit: what lies farther than the
    k-th task in it is none of the k nearest. Then every file, and every block of it, whose box is
    within the limit of some query is looked into, the most promising first.
    """
    n_queries = a.shape[1]
    k = min(k, sum(shard.statistics.tasks for shard in shards))
    indices = np.empty((n_queries, k), dtype=np.int64)
    distances = np.empty((n_queries, k))
    order, starts = boxes(side_by_side(a), _QUERIES)
    batches = [order[begin:end] for begin, end in pairwise(starts)]

    work = map_work(
        _look_for, [a[:, batch] for batch in batches], shared=(shards, k, weights),
        description="nearest tasks", threads=THREADS,
    )  # fmt: skip
    with one_blas_thread():
        for batch, near in zip(batches, work, strict=True):
            indices[batch], distances[batch] = near.indices, near.distances
    return Neighbours(indices, distances)


def _look_for(
    a: Float[np.ndarray, "members queries L"],
    shards: list[LamShard],
    k: int,
    weights: Float[np.ndarray, "members"],
) -> Neighbours:
    """The k nearest tasks of a few queries."""
    search = _Search(affine_kl(a, weights), weights, k, shards)
    search.look_into(shards)
    return Neighbours(search.indices, search.distances)


class _Search:
    """The best tasks seen so far of some queries."""

    def __init__(
        self,
        queries: AffineKL,
        weights: Float[np.ndarray, "members"],
        k: int,
        shards: list[LamShard],
    ) -> None:
        self.queries, self.weights = queries, weights
        self.slack = slack_of(queries, weights, *_sides([shard.statistics for shard in shards]))
        self.indices = np.full((len(queries.g), k), -1, dtype=np.int64)
        self.distances = np.full((len(queries.g), k), np.inf)
        self.limit = np.full(len(queries.g), np.inf)

    def bounds(self, statistics: list[Statistics]) -> Float[np.ndarray, "queries blocks"]:
        """How near a task of each block can be at least."""
        least = least_kl(self.queries, self.weights, *_sides(statistics))
        return least - self.slack[:, None]

    def look_into(self, shards: list[LamShard]) -> None:
        """Look for near tasks in all the files that may hold some."""
        bounds = self.bounds([shard.statistics for shard in shards])
        best = np.argmin(bounds, axis=1)
        for i in np.unique(best):
            self._first_look(shards[i], np.flatnonzero(best == i))
        for i in np.argsort(bounds.min(axis=0), kind="stable"):
            which = np.flatnonzero(bounds[:, i] <= self.limit)
            if len(which):
                for begin, lam, near in self._blocks(shards[i], which):
                    self._take_in(begin, lam, near)

    def _first_look(self, shard: LamShard, which: Int[np.ndarray, "some"]) -> None:
        """Set the limit of each query by the block of a file that looks best to it."""
        file, k = shard.open(), self.indices.shape[1]
        assert file.statistics is not None
        best = np.argmin(self.bounds([file.statistics])[which], axis=1)
        for i in np.unique(best):
            lam = file.block(int(i), shard.columns).lam.astype(np.float64)
            if lam.shape[1] < k:
                continue
            some = which[best == i]
            scores = np.partition(self._scores(lam, some), k - 1, axis=1)[:, k - 1]
            self.limit[some] = scores + self.slack[some]

    def _blocks(
        self, shard: LamShard, which: Int[np.ndarray, "some"]
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """The blocks of a file that are within the limit of some of these queries, and of which."""
        file = shard.open()
        assert file.statistics is not None
        bounds = self.bounds([file.statistics])[which]
        for i in np.argsort(bounds.min(axis=0), kind="stable"):
            near = which[bounds[:, i] <= self.limit[which]]
            if len(near):
                lam = file.block(int(i), shard.columns).lam.astype(np.float64)
                yield shard.begin + int(i) * file.statistics.block, lam, near

    def _scores(
        self, lam: Float[np.ndarray, "members rows L"], which: Int[np.ndarray, "some"]
    ) -> Float[np.ndarray, "some rows"]:
        F = sum_members(log_beta(lam), self.weights)
        return self.queries.some(which).to_all(side_by_side(lam), F)

    def _take_in(
        self, begin: int, lam: Float[np.ndarray, "members rows L"], which: Int[np.ndarray, "some"]
    ) -> None:
        """Keep those of the rows, whose places start at ``begin``, that are among the best."""
        step = max(1, _PAIRS // lam.shape[1])
        for start in range(0, len(which), step):
            some = which[start : start + step]
            scores = self._scores(lam, some)
            limit = self.limit[some] + self.slack[some]
            query, row = np.nonzero(scores <= limit[:, None])
            query = some[query]
            b = lam[:, row]
            F = sum_members(log_beta(b), self.weights)
            far = self.queries.some(query).to_own(side_by_side(b)[:, None], F[:, None])[:, 0]
            self._keep(query, row + begin, far)

    def _keep(
        self,
        query: Int[np.ndarray, "pairs"],
        item: Int[np.ndarray, "pairs"],
        distance: Float[np.ndarray, "pairs"],
    ) -> None:
        """The k best of each query, of equally far ones those that come first."""
        touched = np.unique(query)
        k = self.indices.shape[1]
        old = np.repeat(touched, k)
        query = np.concatenate([old, query])
        item = np.concatenate([self.indices[touched].ravel(), item])
        distance = np.concatenate([self.distances[touched].ravel(), distance])
        order = np.lexsort((item, distance, query))
        query, item, distance = query[order], item[order], distance[order]
        rank = np.arange(len(query)) - np.searchsorted(query, query, side="left")
        good = rank < k
        self.indices[query[good], rank[good]] = item[good]
        self.distances[query[good], rank[good]] = distance[good]
        self.limit[touched] = np.minimum(self.limit[touched], self.distances[touched, -1])


def _sides(statistics: list[Statistics]) -> tuple[Sides, Sides]:
    """The least and the greatest coordinates of all blocks."""
    low, high = [known.low for known in statistics], [known.high for known in statistics]
    return Sides.of(np.concatenate(low)), Sides.of(np.concatenate(high))
