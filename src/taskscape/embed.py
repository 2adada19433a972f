"""From themes and tasks to Dirichlet posteriors, for millions of tasks.

The log-likelihood of a sample under the image-themes is computed once, however many tasks hold it.
Most tasks settle after a few sweeps and some need a hundred, so the settled ones leave the batch.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from taskscape.fit.data import padded_size
from taskscape.model import (
    EStepState,
    TaskPosterior,
    Themes,
    begin,
    cold_start,
    collapsed_elbo,
    e_step,
    log_likelihood,
    move,
    scale_likelihood,
    scaled_sweep,
    whiten,
)
from taskscape.model.params import Scalar
from taskscape.prepare import PreparedSamples, all_rows
from taskscape.progress import progress_bar
from taskscape.tasks import TaskSet

__all__ = ["Embedding", "LikelihoodTable", "embed"]

T = TypeVar("T")
_SWEEPS = 4
"""Sweeps between two looks for settled tasks."""
_PATIENCE = (24, 96)
"""Tasks that need more sweeps are put off, and done together when the others are through."""
_ROWS_AT_ONCE = 8192
_CELLS_AT_ONCE = 1 << 22
"""Log-likelihoods of a chunk of tasks: (tasks, classes, samples, themes)."""
_TASKS_AT_ONCE = 8192
_FEW = (128, 512)
"""Up to _TASKS_AT_ONCE tasks go in chunks of one size, from which no task leaves early: compiling
for another size would take longer than sweeping over some settled tasks in vain."""
_TIMES_ON_ACCELERATORS = 32
"""How much larger chunks are where there is an accelerator to keep busy."""


@dataclass(frozen=True, eq=False)
class Embedding:
    """Tasks in the space of task-themes, with how well the model explains them."""

    lam: Float[np.ndarray, "tasks L"]
    """Dirichlet concentrations: λ of the paper."""
    elbo: Float[np.ndarray, "tasks"]
    """Nats per sample."""
    sweeps: Int[np.ndarray, "tasks"]
    """Sweeps that the E-step took."""
    gamma: Float[np.ndarray, "tasks C K"] | None = None
    """Concentrations of each class's mixture of image-themes, where asked for."""

    def __len__(self) -> int:
        return len(self.lam)


class LikelihoodTable:
    """Log-likelihood under every image-theme of all samples of some classes of a pool."""

    def __init__(
        self, themes: Themes, prepared: PreparedSamples, classes: Int[np.ndarray, "some"]
    ) -> None:
        pool = prepared.pool
        rows = all_rows(pool, classes)
        self.where = np.full(len(pool.samples), -1, dtype=np.int32)
        self.where[rows] = np.arange(len(rows), dtype=np.int32)
        self.starts = self.where[pool.starts]
        self.counts = pool.counts.astype(np.int32)
        whitening = whiten(themes)
        parts = []
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            x = prepared.take(rows[start : start + _ROWS_AT_ONCE])
            padded = np.zeros((padded_size(len(x)), x.shape[1]), dtype=np.float32)
            padded[: len(x)] = x
            parts.append(_log_lik(jnp.asarray(padded, dtype=float), whitening)[: len(x)])
        self.values: Float[Array, "rows K"] = jnp.concatenate(parts)


_log_lik = jax.jit(log_likelihood)


def embed(
    themes: Themes,
    tasks: TaskSet,
    prepared: PreparedSamples,
    *,
    tol: float = 1e-5,
    max_iter: int = 500,
    keep_gamma: bool = False,
    description: str = "embedding tasks",
) -> Embedding:
    """The Dirichlet posterior of every task, each from a cold start: a function of the task alone.

    Paper: alg:online_ldcc, procedure E-step, for tasks not learned from.
    """
    classes = np.unique(tasks.classes[tasks.classes >= 0])
    table = LikelihoodTable(themes, prepared, classes)
    shape = (tasks.max_way, tasks.max_shot)
    times = 1 if jax.default_backend() == "cpu" else _TIMES_ON_ACCELERATORS
    cells = shape[0] * shape[1] * themes.K
    n = len(tasks)
    few = _FEW[0] <= n <= _TASKS_AT_ONCE
    most = _FEW[1] if few else times * _TASKS_AT_ONCE
    size = max(64, min(most, times * _CELLS_AT_ONCE // cells))
    lam = np.empty((n, themes.L), dtype=np.float32)
    bound, sweeps = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.int32)
    gamma = np.empty((n, shape[0], themes.K), dtype=np.float32) if keep_gamma else None
    pending = np.arange(n)
    with progress_bar(description, n) as advance:
        for limit in (*(m for m in _PATIENCE if m < max_iter), max_iter):
            unsettled = []
            for rows, chunk in _chunks(tasks, pending, table, size, exactly=few):
                done = _settle(chunk, themes, tol, limit, leave=not few)
                per_sample = np.asarray(_bound_per_sample(done.posterior, chunk, themes))
                ready = (done.change[: len(rows)] < tol) | (limit == max_iter)
                unsettled.append(rows[~ready])
                at, settled = rows[ready], np.flatnonzero(ready)
                lam[at], bound[at] = done.posterior.lam[settled], per_sample[settled]
                sweeps[at] = done.iterations[settled]
                if gamma is not None:
                    gamma[at] = done.posterior.gamma[settled]
                advance(len(at))
            pending = np.concatenate(unsettled)
            if not len(pending):
                break
    return Embedding(lam, bound, sweeps, gamma)


def _chunks(
    tasks: TaskSet,
    which: Int[np.ndarray, "m"],
    table: "LikelihoodTable",
    size: int,
    exactly: bool = False,
) -> "Iterator[tuple[Int[np.ndarray, '_'], _Chunk]]":
    """Some of the tasks in pieces of one shape, each with its numbers.

    The samples of a piece are drawn on the host while the device sweeps over the one before.
    """
    room = size if exactly else min(size, padded_size(len(which)))
    shape = (room, tasks.max_way, tasks.max_shot)
    pieces = [which[start : start + shape[0]] for start in range(0, len(which), shape[0])]
    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(_Chunk.of, tasks[pieces[0]], table, shape)
        for i, rows in enumerate(pieces):
            chunk = coming.result()
            if i + 1 < len(pieces):
                coming = ahead.submit(_Chunk.of, tasks[pieces[i + 1]], table, shape)
            yield rows, chunk


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class _Chunk:
    """Some tasks on the device; ``log_lik`` may hold scaled likelihoods instead."""

    log_lik: Float[Array, "M C N K"]
    sample_mask: Bool[Array, "M C N"]
    class_mask: Bool[Array, "M C"]

    @staticmethod
    def of(tasks: TaskSet, table: LikelihoodTable, shape: tuple[int, int, int]) -> "_Chunk":
        if tasks.takes_everything:
            return _Chunk.of_whole_classes(tasks, table, shape)
        batch = tasks.batch(slice(None))
        m, c, n = batch.support.shape
        index = np.zeros(shape, dtype=np.int32)
        index[:m, :c, :n] = np.where(batch.support_mask, table.where[batch.support], 0)
        sample_mask, class_mask = np.zeros(shape, dtype=bool), np.zeros(shape[:2], dtype=bool)
        sample_mask[:m, :c, :n] = batch.support_mask
        class_mask[:m, :c] = batch.class_mask
        return _Chunk(
            _rows_of(table.values, index), jnp.asarray(sample_mask), jnp.asarray(class_mask)
        )

    @staticmethod
    def of_whole_classes(
        tasks: TaskSet, table: LikelihoodTable, shape: tuple[int, int, int]
    ) -> "_Chunk":
        """The same for tasks of all samples: the device numbers the samples of a class itself."""
        classes = np.full(shape[:2], -1, dtype=np.int32)
        classes[: len(tasks)] = tasks.classes
        real = classes >= 0
        starts = np.where(real, table.starts[classes], 0)
        counts = np.where(real, table.counts[classes], 0)
        log_lik, sample_mask = _whole_classes(table.values, starts, counts, shape[2])
        return _Chunk(log_lik, sample_mask, jnp.asarray(real))


@jax.jit
def _rows_of(table: Float[Array, "rows K"], index: Int[Array, "M C N"]) -> Float[Array, "M C N K"]:
    return table[index]


@partial(jax.jit, static_argnames="n")
def _whole_classes(
    table: Float[Array, "rows K"], starts: Int[Array, "M C"], counts: Int[Array, "M C"], n: int
) -> tuple[Float[Array, "M C N K"], Bool[Array, "M C N"]]:
    place = jnp.arange(n)
    mask = place < counts[..., None]
    return table[jnp.where(mask, starts[..., None] + place, 0)], mask


def _settle(
    chunk: _Chunk, themes: Themes, tol: float, max_iter: int, leave: bool = True
) -> EStepState:
    """Sweep until every task stands still; settled tasks leave as soon as a smaller shape fits.

    Unless they are not to ``leave``.

    Sweeps are over scaled likelihoods; the few tasks for which these underflow are done again with
    logarithms.
    """
    state, part = _begin(chunk, themes)
    leaves, tree = jax.tree.flatten(state)
    done = [np.array(leaf) for leaf in leaves]  # copies that can be written to
    trusted = np.ones(len(state.change), dtype=bool)
    ids = np.arange(len(state.change))
    real = np.asarray(chunk.class_mask.any(-1))
    for _ in range(0, max_iter, _SWEEPS):
        state, sound = _sweep(state, part, themes, tol)
        trusted[ids[real & ~np.asarray(sound)]] = False
        moving = (np.asarray(state.change) >= tol) & real & np.asarray(sound)
        if not moving.any():
            break
        if not leave or padded_size(int(moving.sum())) >= len(moving):
            continue
        _write_back(done, state, ids[real], real)
        stay = np.flatnonzero(moving)
        take = _padded(stay)
        real = np.arange(len(take)) < len(stay)
        ids = ids[take]
        state, part = _take((state, part), take)
    _write_back(done, state, ids[real], real)
    again = np.flatnonzero(~trusted)
    if len(again):
        redone = _with_logarithms(_take(chunk, _padded(again)), themes, tol, max_iter)
        _write_back(done, redone, again, slice(0, len(again)))
    return jax.tree.unflatten(tree, [jnp.asarray(leaf) for leaf in done])


def _padded(which: Int[np.ndarray, "m"]) -> Int[np.ndarray, "n"]:
    padded = np.zeros(padded_size(len(which)), dtype=np.int32)
    padded[: len(which)] = which
    return padded


def _write_back(
    done: list[np.ndarray],
    state: EStepState,
    ids: Int[np.ndarray, "m"],
    which: slice | Bool[np.ndarray, "n"],
) -> None:
    for whole, part in zip(done, jax.tree.leaves(state), strict=True):
        whole[ids] = np.asarray(part)[which]


@jax.jit
def _begin(chunk: _Chunk, themes: Themes) -> tuple[EStepState, _Chunk]:
    start = cold_start(chunk.sample_mask, chunk.class_mask, themes.alpha, themes.delta)
    return begin(start), replace(chunk, log_lik=scale_likelihood(chunk.log_lik))


@jax.jit
def _sweep(
    state: EStepState, scaled: _Chunk, themes: Themes, tol: Scalar
) -> tuple[EStepState, Bool[Array, " M"]]:
    def once(
        _: Int[Array, ""], carry: tuple[EStepState, Bool[Array, " M"]]
    ) -> tuple[EStepState, Bool[Array, " M"]]:
        state, sound = carry
        swept, trusted = scaled_sweep(
            state.posterior, scaled.log_lik, scaled.sample_mask, scaled.class_mask,
            themes.alpha, themes.delta,
        )  # fmt: skip
        return move(state, swept, tol), sound & trusted

    return jax.lax.fori_loop(0, _SWEEPS, once, (state, jnp.ones(state.change.shape, bool)))


@partial(jax.jit, static_argnames="max_iter")
def _with_logarithms(chunk: _Chunk, themes: Themes, tol: Scalar, max_iter: int) -> EStepState:
    return e_step(
        chunk.log_lik, chunk.sample_mask, chunk.class_mask, themes.alpha, themes.delta,
        tol, max_iter,
    )  # fmt: skip


@jax.jit
def _take(tree: T, which: Int[Array, " m"]) -> T:
    return jax.tree.map(lambda leaf: leaf[which], tree)


@jax.jit
def _bound_per_sample(
    posterior: TaskPosterior, chunk: _Chunk, themes: Themes
) -> Float[Array, " M"]:
    total = collapsed_elbo(
        posterior, chunk.log_lik, chunk.sample_mask, chunk.class_mask, themes.alpha, themes.delta
    )
    samples = (chunk.sample_mask & chunk.class_mask[..., None]).sum((-1, -2))
    return total / jnp.maximum(samples, 1)
