"""The best few rows of a search, gathered piece by piece."""

import numpy as np
from jaxtyping import Float, Int

__all__ = ["SCORES_AT_ONCE", "Candidates"]

SCORES_AT_ONCE = 1 << 21
"""How many scores are held at once when some rows meet many queries."""


class Candidates:
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
        if self._heaped > 4 * self.scores.size + SCORES_AT_ONCE:
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
