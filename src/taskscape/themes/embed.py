"""From themes and tasks to Dirichlet posteriors, for millions of tasks.

The log-likelihood of a sample under the image-themes is computed once, however many tasks hold it,
and so is the evidence of a class where tasks take all of its samples. Most classes settle after a
few sweeps and some need a hundred, so the settled ones leave the batch.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.model import (
    ClassFits,
    EStepState,
    Themes,
    begin_classes,
    class_evidence,
    collapsed_elbo,
    e_step,
    first_gamma,
    infer_tasks,
    log_likelihood,
    scale_likelihood,
    sweep_classes,
    task_bound,
    whiten,
)
from taskscape.model.conditional import SWEEPS_AT_ONCE
from taskscape.model.params import Scalar
from taskscape.progress import progress_bar
from taskscape.tasks import TaskBatch, TaskSet
from taskscape.themes.data import padded_size
from taskscape.themes.prepare import PreparedSamples, all_rows

__all__ = ["LikelihoodTable", "embed"]

T = TypeVar("T")
_ROUNDS = 2
"""Rounds of sweeps between two looks for settled classes."""
_LEAST, _SHRINK = 256, 4
"""Classes that still move go on in a smaller batch once they are this many times fewer. Every size
is compiled for, so there are few, and none that is too small to pay for it."""
_FEW = _LEAST * _SHRINK**2
"""Up to so many, filling up to one of three sizes takes less time than compiling for another."""
_ROWS_AT_ONCE = 8192
_CELLS_AT_ONCE = 1 << 22
"""Numbers that a chunk of tasks holds: classes × (samples + task-themes) × image-themes."""
_TASKS_AT_ONCE = 8192
_TIMES_ON_ACCELERATORS = 32
"""How much larger chunks are where there is an accelerator to keep busy."""
_LITERAL_TOL = 1e-5
"""Mean change of λ at which the paper's E-step ends."""


class _Part(NamedTuple):
    """Posteriors of a chunk of tasks under one member."""

    lam: Float[np.ndarray, "tasks L"]
    elbo: Float[np.ndarray, "tasks"]
    sweeps: Int[np.ndarray, "tasks"]
    gamma: Float[np.ndarray, "tasks C K"] | None


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
        self.lost: Int[np.ndarray, "lost"] = rows[~np.asarray(jnp.isfinite(self.values).all(1))]
        """Rows of the pool so far from an image-theme that the likelihood is no number."""

    def find(
        self, chunk: "_Chunk"
    ) -> tuple[Int[np.ndarray, "tasks way N"], Bool[np.ndarray, "tasks way N"]]:
        """Where the samples that tasks drew are in the table."""
        assert chunk.drawn is not None
        mask = chunk.drawn.support_mask
        return np.where(mask, self.where[chunk.drawn.support], 0), mask


_log_lik = jax.jit(log_likelihood)


def embed(
    members: Sequence[Themes],
    tasks: TaskSet,
    prepared: PreparedSamples,
    *,
    tol: float = 1e-6,
    max_iter: int = 500,
    keep_gamma: bool = False,
    literal: bool = False,
    model: str = "",
    delta: float | None = None,
    description: str = "embedding tasks",
) -> Embeddings:
    """The Dirichlet posterior of every task under every member: a function of the task alone.

    The sweeps over a class end when less than ``tol`` of its samples moves between themes.
    ``literal`` uses the posterior of the paper, in which a class's mixture does not depend on its
    task-theme. ``model`` and ``delta`` are kept in the header.

    Paper: alg:online_ldcc, procedure E-step, for tasks not learned from.
    """
    of_members = [
        list(_parts(themes, tasks, prepared, tol, max_iter, keep_gamma, literal, description))
        for themes in members
    ]

    def joined(name: str) -> np.ndarray:
        return np.stack([np.concatenate([getattr(p, name) for p in m]) for m in of_members])

    return Embeddings.of(
        tasks,
        joined("lam"),
        model=model,
        elbo=joined("elbo"),
        sweeps=joined("sweeps"),
        gamma=joined("gamma") if keep_gamma else None,
        delta=delta,
    )


def _parts(
    themes: Themes,
    tasks: TaskSet,
    prepared: PreparedSamples,
    tol: float,
    max_iter: int,
    keep_gamma: bool,
    literal: bool,
    description: str,
) -> Iterator[_Part]:
    """The posteriors under one member, a chunk of tasks at a time."""
    classes = tasks.class_ids
    table = LikelihoodTable(themes, prepared, classes)
    _refuse_lost(table, tasks)
    fit = partial(_fit_classes, table, themes, tol, max_iter)
    once = fit(*_all_samples(table, classes)) if tasks.takes_everything and not literal else None
    with progress_bar(description, len(tasks)) as advance:
        for chunk in _chunks(tasks, _size(tasks, themes, once is not None), once is None):
            if literal:
                part = _literally(chunk, table, themes, max_iter)
            elif once is not None:
                part = _agree(once, np.searchsorted(classes, chunk.classes), chunk, themes)
            else:
                index, mask = table.find(chunk)
                real = chunk.class_mask
                place = (np.cumsum(real) - 1).reshape(real.shape)
                part = _agree(fit(index[real], mask[real]), place, chunk, themes)
            yield part if keep_gamma else part._replace(gamma=None)
            advance(len(chunk))


def _refuse_lost(table: LikelihoodTable, tasks: TaskSet) -> None:
    """Name a sample whose likelihood is no number, and a task that holds it, if there is one."""
    if not len(table.lost):
        return
    pool, row = tasks.pool, int(table.lost[0])
    c, n = pool.locate_row(row)
    task = int(np.flatnonzero((tasks.classes == c).any(axis=1))[0])
    more = f" There are {len(table.lost):,} such samples." if len(table.lost) > 1 else ""
    raise DataError(
        f"task {task} has class {pool.class_names[c]!r}, whose sample {n} lies "
        "so far from what the model was fitted on that its likelihood is no number (largest "
        f"value {np.abs(pool.take(np.array([row]))).max():g}). Mend it or leave it out.{more}"
    )


@dataclass(frozen=True)
class _Chunk:
    """Some tasks: their classes and, where tasks draw samples of their own, those."""

    classes: Int[np.ndarray, "tasks way"]
    class_mask: Bool[np.ndarray, "tasks way"]
    samples: Int[np.ndarray, "tasks"]
    drawn: TaskBatch | None

    def __len__(self) -> int:
        return len(self.classes)

    @staticmethod
    def of(tasks: TaskSet, draw: bool) -> "_Chunk":
        if draw:
            drawn = tasks.batch(slice(None))
            samples = drawn.support_mask.sum(axis=(1, 2))
            return _Chunk(drawn.classes, drawn.class_mask, samples, drawn)
        classes = tasks.classes.astype(np.int64)
        counts = np.where(classes >= 0, tasks.pool.counts[classes], 0)
        return _Chunk(classes, classes >= 0, counts.sum(axis=1), None)


def _size(tasks: TaskSet, themes: Themes, once: bool) -> int:
    """How many tasks to do at once."""
    times = 1 if jax.default_backend() == "cpu" else _TIMES_ON_ACCELERATORS
    each = themes.L if once else (tasks.max_shot + themes.L) * themes.K
    return max(64, min(times * _TASKS_AT_ONCE, times * _CELLS_AT_ONCE // (tasks.max_way * each)))


def _chunks(tasks: TaskSet, size: int, draw: bool) -> Iterator[_Chunk]:
    """The tasks in pieces; the host draws the samples of one while the device is at the last."""
    pieces = [tasks[start : start + size] for start in range(0, len(tasks), size)]
    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(_Chunk.of, pieces[0], draw)
        for i in range(len(pieces)):
            chunk = coming.result()
            if i + 1 < len(pieces):
                coming = ahead.submit(_Chunk.of, pieces[i + 1], draw)
            yield chunk


def _room(n: int) -> int:
    """A size to fill up to: 256, 1,024, 4,096, and then more finely."""
    return next((size for size in (_LEAST, _LEAST * _SHRINK, _FEW) if n <= size), padded_size(n))


# -- classes ------------------------------------------------------------------------------------


def _all_samples(
    table: LikelihoodTable, classes: Int[np.ndarray, "some"]
) -> tuple[Int[np.ndarray, "some N"], Bool[np.ndarray, "some N"]]:
    """Where the samples of whole classes are in the table."""
    place = np.arange(table.counts[classes].max())
    mask = place < table.counts[classes, None]
    return np.where(mask, table.starts[classes, None] + place, 0), mask


def _fit_classes(
    table: LikelihoodTable,
    themes: Themes,
    tol: float,
    max_iter: int,
    index: Int[np.ndarray, "classes N"],
    mask: Bool[np.ndarray, "classes N"],
) -> ClassFits:
    """Single classes under each task-theme, given where their samples are in the table.

    Settled classes leave as soon as few enough are left.
    """
    room = _room(len(index))
    fill = ((0, room - len(index)), (0, 0))
    real = jnp.asarray(np.pad(mask, fill))
    log_lik, p, fits = _begin(table.values, np.pad(index, fill).astype(np.int32), real, themes)
    part = (p, real)
    gamma, sweeps, ids = fits.gamma, np.zeros(room, dtype=np.int32), np.arange(room)
    for _ in range(0, max_iter, _ROUNDS * SWEEPS_AT_ONCE):
        fits = _sweep(fits, *part, themes, tol)
        stay = np.flatnonzero(np.asarray(fits.change) >= tol)
        if not len(stay):
            break
        size = len(ids) // _SHRINK
        if len(stay) > size or size < _LEAST:
            continue
        gamma, sweeps[ids] = _put(gamma, ids, fits.gamma), np.asarray(fits.sweeps)
        take = np.resize(stay, size)  # repeats fill it up: they do the same once more
        ids = ids[take]
        fits, part = _take((fits, part), take)
    gamma, sweeps[ids] = _put(gamma, ids, fits.gamma), np.asarray(fits.sweeps)
    evidence = _evidence(gamma, log_lik, real, themes)
    return ClassFits(gamma, evidence, jnp.zeros(room), jnp.asarray(sweeps))


@jax.jit
def _begin(
    values: Float[Array, "rows K"],
    index: Int[Array, "classes N"],
    mask: Bool[Array, "classes N"],
    themes: Themes,
) -> tuple[Float[Array, "classes N K"], Float[Array, "classes N K"], ClassFits]:
    log_lik = values[index]
    p = scale_likelihood(log_lik)
    return log_lik, p, begin_classes(first_gamma(p, mask, themes.alpha))


@jax.jit
def _sweep(
    fits: ClassFits,
    p: Float[Array, "classes N K"],
    mask: Bool[Array, "classes N"],
    themes: Themes,
    tol: Scalar,
) -> ClassFits:
    def once(_: Int[Array, ""], fits: ClassFits) -> ClassFits:
        return sweep_classes(fits, p, mask, themes.alpha, tol)

    return jax.lax.fori_loop(0, _ROUNDS, once, fits)


@jax.jit
def _evidence(
    gamma: Float[Array, "classes L K"],
    log_lik: Float[Array, "classes N K"],
    mask: Bool[Array, "classes N"],
    themes: Themes,
) -> Float[Array, "classes L"]:
    return class_evidence(gamma, log_lik, mask, themes.alpha)


@jax.jit
def _take(tree: T, which: Int[Array, " m"]) -> T:
    return jax.tree.map(lambda leaf: leaf[which], tree)


@jax.jit
def _put(
    whole: Float[Array, "classes L K"], ids: Int[Array, " m"], part: Float[Array, "m L K"]
) -> Float[Array, "classes L K"]:
    return whole.at[ids].set(part)


# -- tasks --------------------------------------------------------------------------------------


def _agree(
    fits: ClassFits, place: Int[np.ndarray, "tasks way"], chunk: _Chunk, themes: Themes
) -> _Part:
    """What the classes of each task say together; ``place`` says where their fits are."""
    room = _room(len(chunk)) - len(chunk)
    place = np.pad(np.where(chunk.class_mask, place, 0), ((0, room), (0, 0)))
    mask = np.pad(chunk.class_mask, ((0, room), (0, 0)))
    lam, bound, gamma = (
        np.asarray(value)[: len(chunk)] for value in _infer_tasks(fits, place, mask, themes)
    )
    sweeps = np.where(mask, np.asarray(fits.sweeps)[place], 0).max(axis=1)[: len(chunk)]
    return _Part(lam, bound / np.maximum(chunk.samples, 1).astype(np.float32), sweeps, gamma)


@jax.jit
def _infer_tasks(
    fits: ClassFits, place: Int[Array, "M C"], mask: Bool[Array, "M C"], themes: Themes
) -> tuple[Float[Array, "M L"], Float[Array, " M"], Float[Array, "M C K"]]:
    evidence = fits.evidence[place]
    lam, eta = infer_tasks(evidence, mask, themes.delta)
    gamma = jnp.einsum("mcl,mclk->mck", eta, fits.gamma[place], precision="highest")
    return lam, task_bound(evidence, lam, mask, themes.delta), gamma + ~mask[..., None]


def _literally(chunk: _Chunk, table: LikelihoodTable, themes: Themes, max_iter: int) -> _Part:
    """The paper's E-step, from a cold start."""
    index, sample_mask = table.find(chunk)
    fill = (0, _room(len(chunk)) - len(chunk))
    masks = np.pad(sample_mask, (fill, (0, 0), (0, 0))), np.pad(chunk.class_mask, (fill, (0, 0)))
    state, bound = _paper_e_step(
        table.values, np.pad(index, (fill, (0, 0), (0, 0))), *masks, themes, max_iter
    )
    lam, total, sweeps, gamma = (
        np.asarray(value)[: len(chunk)]
        for value in (state.posterior.lam, bound, state.iterations, state.posterior.gamma)
    )
    return _Part(lam, total / np.maximum(chunk.samples, 1).astype(np.float32), sweeps, gamma)


@partial(jax.jit, static_argnames="max_iter")
def _paper_e_step(
    values: Float[Array, "rows K"],
    index: Int[Array, "M C N"],
    sample_mask: Bool[Array, "M C N"],
    class_mask: Bool[Array, "M C"],
    themes: Themes,
    max_iter: int,
) -> tuple[EStepState, Float[Array, " M"]]:
    log_lik, masks = values[index], (sample_mask, class_mask)
    state = e_step(log_lik, *masks, themes.alpha, themes.delta, _LITERAL_TOL, max_iter)
    return state, collapsed_elbo(state.posterior, log_lik, *masks, themes.alpha, themes.delta)
