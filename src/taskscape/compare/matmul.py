"""Nearest tasks by matrix products over everything, on whichever device JAX has."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from taskscape.compare.index import Found, TaskIndex
from taskscape.compare.posteriors import expected_log, log_beta

__all__ = ["rank_again", "search_by_matmul"]

_ITEMS = 1 << 17
_QUERIES = 1 << 10
_SPARE = 16
_FLOAT32_STEP = 2.0**-23


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


def search_by_matmul(
    a: Float[np.ndarray, "members queries L"],
    lam: Float[np.ndarray, "members tasks L"],
    k: int,
    weights: Float[np.ndarray, "members"],
) -> Found:
    """The k nearest tasks of each query: candidates in float32, the order in float64.

    A query whose k nearest the float32 products cannot tell from the rest for certain, because
    many tasks are almost equally far, is searched again in float64.
    """
    n_tasks = lam.shape[1]
    k = min(k, n_tasks)
    keep = min(k + _SPARE, n_tasks)
    flat = np.concatenate(list(lam), axis=1)
    F = (log_beta(lam).T * weights).sum(axis=1)
    shift, level = flat.mean(axis=0), F.mean()  # centring keeps float32's digits for differences
    chunk = min(_ITEMS, n_tasks)
    n_chunks = -(-n_tasks // chunk)
    items = np.zeros((n_chunks * chunk, flat.shape[1] + 1), dtype=np.float32)
    items[:n_tasks, :-1] = flat - shift
    items[:n_tasks, -1] = level - F
    items[n_tasks:, -1] = -np.finfo(np.float32).max / 4
    on_device = jnp.asarray(items.reshape(n_chunks, chunk, -1))
    log_phi = np.concatenate(list(expected_log(a) * weights[:, None, None]), axis=1)
    g = np.concatenate([log_phi, np.ones((len(log_phi), 1))], axis=1).astype(np.float32)
    reach = np.abs(items[:n_tasks]).max(axis=0)
    indices = np.empty((len(g), k), dtype=np.int64)
    distances = np.empty((len(g), k))
    unsure = np.zeros(len(g), dtype=bool)
    for start in range(0, len(g), _QUERIES):
        some = slice(start, start + _QUERIES)
        scores, found = (np.asarray(x) for x in _scan(jnp.asarray(g[some]), on_device, keep))
        indices[some], distances[some] = rank_again(a[:, some], lam, found, k, weights)
        own = (a[:, some] * expected_log(a[:, some])).sum(-1) - log_beta(a[:, some])
        constant = weights @ own + level - log_phi[some] @ shift
        error = _FLOAT32_STEP * (g.shape[1] + 2) * (np.abs(g[some]) @ reach + np.abs(constant))
        least_left = constant - scores[:, -1].astype(np.float64) - 2 * error
        unsure[some] = (distances[some, -1] >= least_left) & (keep < n_tasks)
    if unsure.any():
        again = TaskIndex(lam).search(a[:, unsure], k, weights)
        indices[unsure], distances[unsure] = again
    return Found(indices, distances)


def rank_again(
    a: Float[np.ndarray, "members queries L"],
    lam: Float[np.ndarray, "members tasks L"],
    candidates: Int[np.ndarray, "queries some"],
    k: int,
    weights: Float[np.ndarray, "members"],
) -> tuple[Int[np.ndarray, "queries k"], Float[np.ndarray, "queries k"]]:
    """The k nearest of the candidates by float64 distances computed pair by pair."""
    distances = np.zeros(candidates.shape)
    for e, weight in enumerate(weights):
        b = lam[e][candidates]
        own = a[e][:, None]
        linear = ((own - b) * expected_log(own)).sum(-1)
        distances += weight * (log_beta(b) - log_beta(own) + linear)
    distances = np.maximum(distances, 0.0)
    order = np.lexsort((candidates, distances))[:, :k]
    return (
        np.take_along_axis(candidates.astype(np.int64), order, axis=1),
        np.take_along_axis(distances, order, axis=1),
    )
