"""Nearest tasks of a few queries: one look at everything, in float64, without an index."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Float, Int

from taskscape.compare.index import Found
from taskscape.compare.matmul import rank_again
from taskscape.compare.posteriors import expected_log, log_beta
from taskscape.compare.threads import THREADS, one_blas_thread

__all__ = ["search_by_scan"]

_ROWS = 1 << 15
_ROUNDING = 1e-9


def search_by_scan(
    a: Float[np.ndarray, "members queries L"],
    lam: Float[np.ndarray, "members tasks L"],
    k: int,
    weights: Float[np.ndarray, "members"],
) -> Found:
    """The k nearest tasks of each query; of equals those that come first."""
    n_tasks = lam.shape[1]
    k = min(k, n_tasks)
    g = np.concatenate(list(expected_log(a) * weights[:, None, None]), axis=1)

    def look(begin: int) -> list[tuple[Int[np.ndarray, "_"], Float[np.ndarray, "_"]]]:
        """For each query, the rows from ``begin`` on that may be among its k nearest."""
        piece = lam[:, begin : begin + _ROWS]
        F = weights @ log_beta(piece)
        scores = F - g @ np.concatenate(list(piece), axis=1).T
        return [_least(row, k, begin) for row in scores]

    with one_blas_thread(), ThreadPoolExecutor(THREADS) as pool:
        pieces = list(pool.map(look, range(0, n_tasks, _ROWS)))
    indices = np.empty((len(g), k), dtype=np.int64)
    distances = np.empty((len(g), k))
    for q in range(len(g)):
        items, scores = (np.concatenate(part) for part in zip(*(p[q] for p in pieces), strict=True))
        items = items[_least(scores, k, 0)[0]]
        found = rank_again(a[:, q : q + 1], lam, items[None], k, weights)
        indices[q], distances[q] = found[0][0], found[1][0]
    return Found(indices, distances)


def _least(
    scores: Float[np.ndarray, "n"], k: int, begin: int
) -> tuple[Int[np.ndarray, "some"], Float[np.ndarray, "some"]]:
    """The k smallest and all that rounding could have put behind them."""
    if len(scores) <= k:
        return np.arange(begin, begin + len(scores)), scores
    limit = np.partition(scores, k - 1)[k - 1]
    places = np.flatnonzero(scores <= limit + _ROUNDING * (1 + abs(limit)))
    return places + begin, scores[places]
