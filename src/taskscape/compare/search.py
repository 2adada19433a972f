"""The nearest training tasks of every test task: exact, in memory or streamed."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from taskscape.arguments import check_choice, check_whole
from taskscape.compare.index import (
    THREADS,
    Neighbours,
    Sides,
    TaskIndex,
    one_blas_thread,
    slack_of,
)
from taskscape.compare.means import weights_for
from taskscape.compare.posteriors import (
    Tasks,
    affine_kl,
    check_together,
    read_chunks,
    read_lam,
    side_by_side,
    sum_members,
)
from taskscape.compiling import keep_programs
from taskscape.embeddings.blocks import log_beta, with_sums
from taskscape.errors import DataError
from taskscape.progress import track

keep_programs()

_FEW_QUERIES = 64
"""Up to here sorting a chunk into boxes costs more than looking at all of it."""
_ROWS = 1 << 15
"""Rows that a thread looks at in one go, without an index."""
_ITEMS, _QUERIES = 1 << 17, 1 << 10
"""Tasks and queries of one matrix product on a device."""
_SPARE = 16
"""Candidates in float32 beyond the k-th."""
_FLOAT32_STEP = 2.0**-23


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
    of a catalogue (``Catalogue.lam()``), of which only one is in memory at a time. Tasks at equal
    distance come in the order of ``train``. ``method`` is ``"boxes"`` (look only where a near task
    can be; the fastest on a CPU), ``"matmul"`` (look at everything, on JAX's default device, the
    fastest on a GPU), or ``"auto"``; all give the same tasks.

    >>> near = nearest(np.array([[1.0, 2.0]]), np.array([[5.0, 1.0], [1.0, 2.1]]), k=1)
    >>> near.indices.tolist()
    [[1]]
    """
    a = read_lam(test, "test")
    k = check_whole(k, "k", 1)
    check_choice(method, "method", ("auto", "boxes", "matmul"))
    if method == "auto":
        method = "boxes" if jax.default_backend() == "cpu" else "matmul"
    weights = weights_for(a, train, scales)
    near: Neighbours | None = None
    offset = 0
    for chunk in track(read_chunks(train, "train"), "nearest tasks"):
        check_together(a, chunk)
        search = _Search(a, chunk, min(k, chunk.shape[1]), weights)
        here = search.by_matmul() if method == "matmul" else search.by_boxes()
        near = _merge(near, Neighbours(here.indices + offset, here.distances), k)
        offset += chunk.shape[1]
    if near is None:
        raise DataError("train has no tasks.")
    if offset < k:
        raise DataError(f"k={k} is more than the {offset} training tasks; lower k.")
    return near


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
class _Search:
    """The search for the k nearest tasks of each query, in one of three ways."""

    a: Float[np.ndarray, "members queries L"]
    lam: Float[np.ndarray, "members tasks L"]
    k: int
    weights: Float[np.ndarray, "members"]

    def by_boxes(self) -> Neighbours:
        """Look only where a near task can be; for few queries, at everything."""
        if self.a.shape[1] <= _FEW_QUERIES:
            return self.by_scan()
        return TaskIndex(self.lam).search(self.a, self.k, self.weights)

    def by_scan(self) -> Neighbours:
        """One look at everything, in float64, without an index."""
        a, lam, k, weights = self.a, self.lam, self.k, self.weights
        queries = affine_kl(a, weights)
        g = queries.g
        # of a box around all tasks, with sums that are no smaller and no greater
        box = (Sides.of(with_sums(corner)[None]) for corner in (lam.min(axis=1), lam.max(axis=1)))
        slack = slack_of(queries, weights, *box)

        def look(begin: int) -> list[tuple[Int[np.ndarray, "_"], Float[np.ndarray, "_"]]]:
            """For each query, the rows from ``begin`` on that may be among its k nearest."""
            piece = lam[:, begin : begin + _ROWS]
            F = sum_members(log_beta(piece), weights)
            scores = F - g @ side_by_side(piece).T
            return [_least(*row, k, begin) for row in zip(scores, slack, strict=True)]

        with one_blas_thread(), ThreadPoolExecutor(THREADS) as pool:
            pieces = list(pool.map(look, range(0, lam.shape[1], _ROWS)))
        indices = np.empty((len(g), k), dtype=np.int64)
        distances = np.empty((len(g), k))
        for q in range(len(g)):
            items, scores = (
                np.concatenate(part) for part in zip(*(p[q] for p in pieces), strict=True)
            )
            items = items[_least(scores, slack[q], k, 0)[0]]
            indices[[q]], distances[[q]] = self.rank(slice(q, q + 1), items[None])
        return Neighbours(indices, distances)

    def by_matmul(self) -> Neighbours:
        """On a device, by matrix products: candidates in float32, the order in float64.

        A query whose k nearest the float32 products cannot tell from the rest for certain, because
        many tasks are almost equally far, is searched again in float64.
        """
        a, lam, k, weights = self.a, self.lam, self.k, self.weights
        n_tasks = lam.shape[1]
        keep = min(k + _SPARE, n_tasks)
        queries = affine_kl(a, weights)
        own = queries.constant
        flat, F = side_by_side(lam), sum_members(log_beta(lam), weights)
        # centring keeps float32's digits for differences
        shift, level = flat.mean(axis=0), F.mean()
        chunk = min(_ITEMS, n_tasks)
        n_chunks = -(-n_tasks // chunk)
        items = np.zeros((n_chunks * chunk, flat.shape[1] + 1), dtype=np.float32)
        items[:n_tasks, :-1] = flat - shift
        items[:n_tasks, -1] = level - F
        items[n_tasks:, -1] = -np.finfo(np.float32).max / 4
        on_device = jnp.asarray(items.reshape(n_chunks, chunk, -1))
        g = np.pad(queries.g, ((0, 0), (0, 1)), constant_values=1).astype(np.float32)
        reach = np.abs(items[:n_tasks]).max(axis=0)
        indices = np.empty((len(g), k), dtype=np.int64)
        distances = np.empty((len(g), k))
        unsure = np.zeros(len(g), dtype=bool)
        for start in range(0, len(g), _QUERIES):
            batch = slice(start, start + _QUERIES)
            scores, items_kept = (
                np.asarray(x) for x in _scan(jnp.asarray(g[batch]), on_device, keep)
            )
            indices[batch], distances[batch] = self.rank(batch, items_kept)
            constant = own[batch] + level - queries.g[batch] @ shift
            error = _FLOAT32_STEP * (g.shape[1] + 2) * (np.abs(g[batch]) @ reach + np.abs(constant))
            least_left = constant - scores[:, -1].astype(np.float64) - 2 * error
            unsure[batch] = (distances[batch, -1] >= least_left) & (keep < n_tasks)
        if unsure.any():
            again = TaskIndex(lam).search(a[:, unsure], k, weights)
            indices[unsure], distances[unsure] = again.indices, again.distances
        return Neighbours(indices, distances)

    def rank(
        self, rows: slice, candidates: Int[np.ndarray, "queries some"]
    ) -> tuple[Int[np.ndarray, "queries k"], Float[np.ndarray, "queries k"]]:
        """The k nearest of the candidates by float64 distances computed pair by pair."""
        b = self.lam[:, candidates]
        F = sum_members(log_beta(b), self.weights)
        distances = affine_kl(self.a[:, rows], self.weights).to_own(
            np.concatenate(list(b), axis=-1), F
        )
        order = np.lexsort((candidates, distances))[:, : self.k]
        return (
            np.take_along_axis(candidates.astype(np.int64), order, axis=1),
            np.take_along_axis(distances, order, axis=1),
        )


def _least(
    scores: Float[np.ndarray, "n"], slack: float, k: int, begin: int
) -> tuple[Int[np.ndarray, "some"], Float[np.ndarray, "some"]]:
    """The k smallest and all that rounding could have put behind them."""
    if len(scores) <= k:
        return np.arange(begin, begin + len(scores)), scores
    limit = np.partition(scores, k - 1)[k - 1]
    places = np.flatnonzero(scores <= limit + slack)
    return places + begin, scores[places]


@partial(jax.jit, static_argnames="keep")
def _scan(
    g: Float[Array, "queries dims"], items: Float[Array, "chunks n dims"], keep: int
) -> tuple[Float[Array, "queries keep"], Int[Array, "queries keep"]]:
    """The ``keep`` largest inner products of each query with the items of all chunks."""
    n_chunks, n, _ = items.shape

    def step(
        best: tuple[Array, Array], numbered: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array], None]:
        i, chunk = numbered
        scores = jnp.matmul(g, chunk.T, precision="highest")
        top, place = jax.lax.top_k(scores, min(keep, n))
        all_scores = jnp.concatenate([best[0], top], axis=1)
        all_items = jnp.concatenate([best[1], place + i * n], axis=1)
        kept, which = jax.lax.top_k(all_scores, keep)
        return (kept, jnp.take_along_axis(all_items, which, axis=1)), None

    start = (
        jnp.full((len(g), keep), -jnp.inf, g.dtype),
        jnp.full((len(g), keep), -1, jnp.int32),
    )
    return jax.lax.scan(step, start, (jnp.arange(n_chunks, dtype=jnp.int32), items))[0]
