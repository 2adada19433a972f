"""Facility location: the set of tasks that is together nearest to all test tasks."""

import numpy as np
from jaxtyping import Bool, Float, Int

from taskscape.errors import DataError
from taskscape.progress import progress_bar
from taskscape.select.run import Run

__all__ = ["facility"]

_MOST_NUMBERS = 40_000_000


def facility(run: Run, candidates: int | None, max_test: int) -> None:
    r"""Greedy maximisation of how much nearer the chosen set is to the test tasks.

    .. math:: f(S) = \sum_t w_t \left( \max_{d} D_{td} - \min_{d \in S} D_{td} \right)

    f is monotone and submodular, so with unit costs and without ``max_shared`` the greedy set
    reaches at least 1 - 1/e of the best value of its size, over the candidates and the test tasks
    that were looked at (Nemhauser, Wolsey and Fisher 1978). Where costs differ, the next task is
    the one with the largest gain for its cost, which guarantees nothing. Gains are not computed
    anew but corrected for the test tasks whose nearest chosen task has changed, which are few after
    the first choices. Once every test task has its nearest candidate, f cannot grow; the rule then
    starts again with the candidates that are left.
    """
    n_chosen = min(run.left // max(1, int(run.costs.min())), run.source.n_train)
    size = min(candidates or max(2000, 4 * n_chosen), run.source.n_train)
    if size < n_chosen:
        raise DataError(f"candidates={size} is less than the {n_chosen} tasks to choose.")
    order = np.lexsort((np.arange(run.source.n_test), run.test_keys))
    order = order[run.weights[order] > 0]
    tests = order[: max(1, min(max_test, _MOST_NUMBERS // size))]
    pool = _preselect(run, tests, size)
    distances = run.source.block(tests, pool)
    weights = run.weights[tests] / run.weights[tests].sum()
    waiting = np.ones(len(pool), dtype=bool)
    with progress_bar("selecting tasks", run.left) as advance:
        while not run.done and waiting.any():
            before = run.left
            _one_layer(run, pool, distances, weights, waiting)
            advance(before - run.left)


def _preselect(run: Run, tests: Int[np.ndarray, "some"], size: int) -> Int[np.ndarray, "pool"]:
    """The tasks that are among the nearest of some test task, best ranks first, in key order."""
    k = max(1, -(-2 * size // len(tests)))
    while True:
        k = min(k, run.source.n_train)
        found = run.source.nearest(tests, k, run.unused, run.tie_keys).indices
        rank = np.full(run.source.n_train, k)
        np.minimum.at(rank, found, np.broadcast_to(np.arange(found.shape[1]), found.shape))
        pool = np.flatnonzero(rank < k)
        if len(pool) >= size or k == run.source.n_train:
            break
        k *= 2
    best = np.lexsort((run.tie_keys[pool], rank[pool]))[:size]
    pool = pool[best]
    return pool[np.argsort(run.tie_keys[pool], kind="stable")]


def _one_layer(
    run: Run,
    pool: Int[np.ndarray, "pool"],
    distances: Float[np.ndarray, "tests pool"],
    weights: Float[np.ndarray, "tests"],
    waiting: Bool[np.ndarray, "pool"],
) -> None:
    """Choose until every test task has its nearest of the candidates that were waiting."""
    reached = distances[:, waiting].max(axis=1)
    negligible = 1e-12 * float(reached @ weights)
    costs = run.costs[pool]
    gains = weights @ np.maximum(reached[:, None] - distances, 0.0)
    chosen = 0
    while waiting.any() and not run.done:
        j = int(np.argmax(np.where(waiting, gains / costs, -np.inf)))
        if gains[j] <= negligible and chosen:
            return
        waiting[j] = False
        if not run.take(int(pool[j]), float(gains[j] / costs[j])):
            continue
        chosen += 1
        nearer = np.flatnonzero(distances[:, j] < reached)
        was, now = reached[nearer, None], distances[nearer, j, None]
        there = distances[nearer]
        gains -= weights[nearer] @ (np.maximum(was - there, 0.0) - np.maximum(now - there, 0.0))
        reached[nearer] = now[:, 0]
