"""From themes and tasks to Dirichlet posteriors, for millions of tasks.

The log-likelihood of a sample under the image-themes is computed once, however many tasks hold it,
and so is the evidence of a class where tasks take all of its samples. Tasks are taken in pieces;
each stays on the device from the draw of its samples to its posterior. Most classes settle after a
few sweeps and some need a hundred, so those that still move go on in ever smaller batches.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from taskscape.devices import cores, free_bytes
from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.model import (
    ClassFits,
    FixedPoint,
    Themes,
    collapsed_elbo,
    e_step,
    even_lam,
    first_gamma,
    fitted_classes,
    log_likelihood,
    relative_likelihood,
    sweep_classes,
    sweep_tasks,
    task_bound,
    update_eta_given_evidence,
    whiten,
)
from taskscape.model.conditional import TASK_ROUNDS, TASK_TOL
from taskscape.model.fixed_point import begin, settle
from taskscape.model.params import Count, Scalar
from taskscape.progress import progress_bar
from taskscape.tasks import TaskSet
from taskscape.themes.data import padded_size
from taskscape.themes.places import SamplePlaces, class_rows
from taskscape.themes.prepare import PreparedSamples

__all__ = ["LikelihoodTable", "embed"]

T = TypeVar("T")
_SHRINK = 4
"""What still moves goes on in a batch that many times smaller, once it fits. Pieces have one of few
sizes, each so many times the one below, since every size is compiled for."""
_TASKS_ON_CPU, _TASKS_ON_ACCELERATORS = (16, 1024), (1024, 1 << 18)
"""In the smallest and the largest piece: what fits into a CPU's cache, or keeps a GPU busy."""
_BYTES_ON_CPU = 1 << 28
"""In a piece at most; where a device has a memory of its own, an eighth of what is free in it."""
_LEAST_TOGETHER = 128
"""Classes or tasks in a batch at least: smaller ones are not quicker."""
_ROWS_AT_ONCE = 8192
_LITERAL_TOL = 1e-5
"""Mean change of λ at which the paper's E-step ends."""


class _Part(NamedTuple):
    """Posteriors of a piece of the tasks under one member."""

    lam: Float[np.ndarray, "tasks L"]
    elbo: Float[np.ndarray, "tasks"]
    sweeps: Int[np.ndarray, "tasks"]
    gamma: Float[np.ndarray, "tasks C K"] | None


class LikelihoodTable(SamplePlaces):
    """Log-likelihood under every image-theme of all samples of some classes of a pool."""

    def __init__(
        self, themes: Themes, prepared: PreparedSamples, classes: Int[np.ndarray, "some"]
    ) -> None:
        super().__init__(prepared.pool, classes)
        whitening = whiten(themes)
        at_once = _ROWS_AT_ONCE if jax.default_backend() == "cpu" else 8 * _ROWS_AT_ONCE
        parts = []
        for start in range(0, len(self.rows), at_once):
            rows = self.rows[start : start + at_once]
            filled = np.resize(rows, padded_size(len(rows)))
            parts.append(_log_lik(prepared.to_device(filled), whitening)[: len(rows)])
        self.values: Float[Array, "rows K"] = jnp.concatenate(parts)
        self.lost: Int[np.ndarray, "lost"] = self.rows[
            ~np.asarray(jnp.isfinite(self.values).all(1))
        ]
        """Rows of the pool so far from an image-theme that the likelihood is no number."""


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
    """The posteriors under one member, a piece of the tasks at a time."""
    classes = tasks.class_ids
    table = LikelihoodTable(themes, prepared, classes)
    _refuse_lost(table, tasks)
    samples = 0 if tasks.takes_everything and not literal else tasks.max_shot
    sizes = _piece_sizes(tasks.max_way, samples, themes)
    if literal:
        posterior = partial(_literally, table=table, themes=themes, max_iter=max_iter)
    elif tasks.takes_everything:
        once = _fit_whole_classes(table, classes, themes, tol, max_iter)
        place = np.zeros(len(tasks.pool), dtype=np.int32)
        place[classes] = np.arange(len(classes), dtype=np.int32)
        posterior = partial(
            _of_whole_classes, fits=once, place=place, themes=themes, keep_gamma=keep_gamma
        )
    else:
        posterior = partial(
            _of_samples,
            table=table,
            themes=themes,
            tol=tol,
            max_iter=max_iter,
            keep_gamma=keep_gamma,
        )
    shape = tasks.max_way, tasks.max_shot

    def of_piece(start: int) -> _Part:
        piece = tasks[start : start + sizes[-1]]
        size = next(size for size in sizes if size >= len(piece))
        return _on_host(posterior(piece, shape, size), piece, keep_gamma)

    with progress_bar(description, len(tasks)) as advance:
        for part in _in_order(of_piece, range(0, len(tasks), sizes[-1])):
            yield part
            advance(len(part.lam))


def _in_order(job: Callable[[int], T], inputs: Sequence[int]) -> Iterator[T]:
    """The results of a job, several at a time: on a CPU as many as there are cores."""
    names = "jax_enable_x64", "jax_default_device"
    precision, device = (jax.config.values[name] for name in names)

    def as_here(item: int) -> T:
        """The job with the settings of the thread that asked for it."""
        with jax.enable_x64(precision), jax.default_device(device):
            return job(item)

    threads = ThreadPoolExecutor(cores() if jax.default_backend() == "cpu" else 2)
    try:
        yield from threads.map(as_here, inputs)
    finally:
        threads.shutdown(cancel_futures=True)


def _piece_sizes(way: int, samples: int, themes: Themes) -> list[int]:
    """How many tasks a piece may hold, ascending, each with so many classes and samples of one."""
    on_cpu = jax.default_backend() == "cpu"
    size, most = _TASKS_ON_CPU if on_cpu else _TASKS_ON_ACCELERATORS
    each = 4 * way * (2 * samples * themes.K + 12 * themes.L * themes.K)
    free = None if on_cpu else free_bytes(jax.devices()[0])
    room = _BYTES_ON_CPU if free is None else free // 8
    sizes = [size]
    while (size := size * _SHRINK) <= most and size * each <= room:
        sizes.append(size)
    return sizes


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


class _Posteriors(NamedTuple):
    """Of the tasks of a piece, on the device."""

    lam: Float[Array, "M L"]
    bound: Float[Array, " M"]
    sweeps: Int[Array, " M"]
    samples: Int[Array, " M"]
    gamma: Float[Array, "M C K"] | None


def _on_host(found: _Posteriors, tasks: TaskSet, keep_gamma: bool) -> _Part:
    lam, bound, sweeps, samples = (np.asarray(value)[: len(tasks)] for value in found[:4])
    gamma = np.asarray(found.gamma)[: len(tasks)] if keep_gamma else None
    return _Part(lam, bound / np.maximum(samples, 1).astype(np.float32), sweeps, gamma)


# -- classes ------------------------------------------------------------------------------------


def _of_samples(
    tasks: TaskSet,
    shape: tuple[int, int],
    size: int,
    table: LikelihoodTable,
    themes: Themes,
    tol: float,
    max_iter: int,
    keep_gamma: bool,
) -> _Posteriors:
    """The posteriors of tasks that draw samples of their classes."""
    index, mask = table.find(tasks, *shape, size)
    fits = _fit_classes(table, index, mask, themes, tol, max_iter)
    class_mask = class_rows(tasks, shape[0], size) >= 0
    way = np.arange(class_mask.size, dtype=np.int32).reshape(class_mask.shape)
    return _agree(fits, way, class_mask, themes, keep_gamma)


def _fit_whole_classes(
    table: LikelihoodTable,
    classes: Int[np.ndarray, "some"],
    themes: Themes,
    tol: float,
    max_iter: int,
) -> ClassFits:
    """Classes with all of their samples."""
    counts = table.counts[classes]
    room = max(_LEAST_TOGETHER, (_BYTES_ON_CPU // (8 * int(counts.max()) * themes.K)))
    parts = []
    for start in range(0, len(classes), room):
        some = classes[start : start + room]
        size = padded_size(len(some), _LEAST_TOGETHER)
        place = np.arange(counts.max())[:, None]
        mask = place < np.pad(table.counts[some], (0, size - len(some)))
        index = np.where(mask, np.pad(table.starts[some], (0, size - len(some))) + place, 0)
        found = jnp.asarray(index[:, None].astype(np.int32)), jnp.asarray(mask[:, None])
        fits = _fit_classes(table, *found, themes, tol, max_iter)
        parts.append(_take_first(fits, len(some)))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=-1), *parts)


def _take_first(fits: ClassFits, n: int) -> ClassFits:
    return jax.tree.map(lambda leaf: leaf[..., :n], fits)


def _of_whole_classes(
    tasks: TaskSet,
    shape: tuple[int, int],
    size: int,
    fits: ClassFits,
    place: Int[np.ndarray, "classes"],
    themes: Themes,
    keep_gamma: bool,
) -> _Posteriors:
    """The posteriors of tasks that take all samples of their classes, whose fits are at a place."""
    rows = class_rows(tasks, shape[0], size)
    return _agree(fits, place[rows], rows >= 0, themes, keep_gamma)


def _fit_classes(
    table: LikelihoodTable,
    index: Int[Array, "N C M"],
    mask: Bool[Array, "N C M"],
    themes: Themes,
    tol: float,
    max_iter: int,
) -> ClassFits:
    """Single classes under each task-theme."""
    p, log_scale, real, point = _begin(table.values, index, mask, themes)
    point = _settle(sweep_classes, point, (p, real), themes.alpha, tol, max_iter)
    return _finish(point, p, log_scale, real, themes.alpha)


@jax.jit
def _begin(
    values: Float[Array, "rows K"],
    index: Int[Array, "N C M"],
    mask: Bool[Array, "N C M"],
    themes: Themes,
) -> tuple[Float[Array, "N K A"], Float[Array, " A"], Bool[Array, "N A"], FixedPoint]:
    N = len(index)
    log_lik = jnp.moveaxis(values[index.reshape(N, -1)], -1, 1)
    real = mask.reshape(N, -1)
    p, log_scale = relative_likelihood(log_lik, real)
    return p, log_scale, real, begin(first_gamma(p, real, themes.alpha))


_finish = jax.jit(fitted_classes)


# -- tasks --------------------------------------------------------------------------------------


def _agree(
    fits: ClassFits,
    place: Int[np.ndarray, "C M"],
    class_mask: Bool[np.ndarray, "C M"],
    themes: Themes,
    keep_gamma: bool,
) -> _Posteriors:
    """What the classes of each task say together; ``place`` says where their fits are."""
    evidence, point = _begin_tasks(fits, place, class_mask, themes)
    data = evidence, jnp.asarray(class_mask)
    point = _settle(sweep_tasks, point, data, themes.delta, TASK_TOL, TASK_ROUNDS)
    return _finish_tasks(point, fits, place, *data, themes, keep_gamma)


@jax.jit
def _begin_tasks(
    fits: ClassFits, place: Int[Array, "C M"], class_mask: Bool[Array, "C M"], themes: Themes
) -> tuple[Float[Array, "L C M"], FixedPoint]:
    return fits.evidence[:, place], begin(even_lam(class_mask, themes.delta)[None])


@partial(jax.jit, static_argnames="keep_gamma")
def _finish_tasks(
    point: FixedPoint,
    fits: ClassFits,
    place: Int[Array, "C M"],
    evidence: Float[Array, "L C M"],
    class_mask: Bool[Array, "C M"],
    themes: Themes,
    keep_gamma: bool,
) -> _Posteriors:
    lam, gamma = point.swept[0], None
    if keep_gamma:
        eta, _ = update_eta_given_evidence(evidence, lam, class_mask)
        gamma = (eta[:, None] * fits.gamma[:, :, place]).sum(0) + ~class_mask
        gamma = gamma.transpose(2, 1, 0)
    return _Posteriors(
        lam=lam.T,
        bound=task_bound(evidence, lam, class_mask, themes.delta),
        sweeps=jnp.where(class_mask, fits.sweeps[place], 0).max(0),
        samples=jnp.where(class_mask, fits.samples[place], 0).sum(0),
        gamma=gamma,
    )


# -- settling -----------------------------------------------------------------------------------


def _settle(
    sweep: Callable[..., FixedPoint],
    point: FixedPoint,
    data: tuple[Any, ...],
    prior: Float[Array, "..."],
    tol: float,
    max_iter: Count,
) -> FixedPoint:
    """Sweep until nothing moves; what still does goes on alone once it is few.

    Nothing of it comes back to the host, which runs ahead.
    """
    fewer = point.change.shape[-1] // _SHRINK
    if fewer < _LEAST_TOGETHER:
        return _sweep_until(sweep, point, data, prior, tol, max_iter, 0)
    point = _sweep_until(sweep, point, data, prior, tol, max_iter, fewer)
    ids, some, their_data = _moving(point, data, tol, fewer)
    left = jnp.maximum(max_iter - some.sweeps.max(), 0)
    return _put(point, ids, _settle(sweep, some, their_data, prior, tol, left))


@partial(jax.jit, static_argnames="sweep")
def _sweep_until(
    sweep: Callable[..., FixedPoint],
    point: FixedPoint,
    data: tuple[Any, ...],
    prior: Float[Array, "..."],
    tol: Scalar,
    max_iter: Count,
    enough: Count,
) -> FixedPoint:
    """Sweep until at most so many still move."""
    return settle(point, lambda now: sweep(now, *data, prior, tol), tol, max_iter, enough)


@partial(jax.jit, static_argnames="size")
def _moving(
    point: FixedPoint, data: tuple[Any, ...], tol: Scalar, size: int
) -> tuple[Int[Array, " m"], FixedPoint, tuple[Any, ...]]:
    """What still moves, at most ``size`` of it, and where it was; what fills up has settled."""
    everything = point.change.shape[-1]
    ids = jnp.nonzero(point.change >= tol, size=size, fill_value=everything)[0]
    some, theirs = jax.tree.map(lambda x: x[..., jnp.minimum(ids, everything - 1)], (point, data))
    return ids, replace(some, change=jnp.where(ids < everything, some.change, 0)), theirs


@jax.jit
def _put(whole: FixedPoint, ids: Int[Array, " m"], some: FixedPoint) -> FixedPoint:
    return jax.tree.map(lambda all_, x: all_.at[..., ids].set(x, mode="drop"), whole, some)


# -- the paper's E-step ---------------------------------------------------------------------------


def _literally(
    tasks: TaskSet,
    shape: tuple[int, int],
    size: int,
    table: LikelihoodTable,
    themes: Themes,
    max_iter: int,
) -> _Posteriors:
    """The posteriors as the paper has them, from a cold start."""
    index, sample_mask = (value.T for value in table.find(tasks, *shape, size))
    class_mask = class_rows(tasks, shape[0], size).T >= 0
    return _paper_e_step(table.values, index, sample_mask, class_mask, themes, max_iter)


@partial(jax.jit, static_argnames="max_iter")
def _paper_e_step(
    values: Float[Array, "rows K"],
    index: Int[Array, "M C N"],
    sample_mask: Bool[Array, "M C N"],
    class_mask: Bool[Array, "M C"],
    themes: Themes,
    max_iter: int,
) -> _Posteriors:
    log_lik, masks = values[index], (sample_mask, class_mask)
    state = e_step(log_lik, *masks, themes.alpha, themes.delta, _LITERAL_TOL, max_iter)
    bound = collapsed_elbo(state.posterior, log_lik, *masks, themes.alpha, themes.delta)
    samples = sample_mask.sum((1, 2), dtype=jnp.int32)
    return _Posteriors(state.posterior.lam, bound, state.iterations, samples, state.posterior.gamma)
