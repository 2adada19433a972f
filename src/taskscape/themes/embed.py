"""From themes and tasks to Dirichlet posteriors, for millions of tasks.

The log-likelihood of a sample under the image-themes is computed once, however many tasks hold it,
and so is the evidence of a class where tasks take all of its samples. Tasks are taken in pieces.
Most classes settle after a few sweeps and some need a hundred, so those that still move go on by
themselves (``side_by_side``).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jaxtyping import Array, Bool, Float, Int

from taskscape.compiling import compiled
from taskscape.devices import cores, free_bytes
from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.model import (
    EStepState,
    FixedPoint,
    TaskPosterior,
    Themes,
    collapsed_elbo,
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
from taskscape.model.estep import advance as advance_e_step
from taskscape.model.estep import begin as begin_e_step
from taskscape.model.estep import cold_start
from taskscape.model.fixed_point import begin
from taskscape.model.params import Scalar
from taskscape.pools.cache import mapped_scratch
from taskscape.progress import progress_bar
from taskscape.tasks import TaskSet
from taskscape.themes.data import padded_size
from taskscape.themes.places import SamplePlaces, class_rows
from taskscape.themes.prepare import PreparedSamples
from taskscape.themes.side_by_side import (
    Begun,
    block_size,
    in_order,
    on_cpu,
    solve,
    take,
)

__all__ = ["LikelihoodTable", "embed"]

_TASKS_ON_ACCELERATORS = (1024, 4, 1 << 18)
"""In the smallest piece, so many times more in the next, and in the largest, which keeps a GPU
busy: few sizes, since every size is compiled for."""
_BYTES_ON_CPU = 1 << 29
"""In all pieces under way; where a device has a memory of its own, an eighth of what is free in it
is in each."""
_LEAST_BYTES = 1 << 25
"""In a piece, however many cores there are: of smaller ones, the last classes take longest."""
_FIRST_TASKS = 256
"""On a CPU, in a piece that goes alone, so that programs are compiled once."""
_LEAST_CLASSES = 128
_ROWS_AT_ONCE = 8192
_KEEP_BELOW_BYTES = 1 << 30
"""Of a table of likelihoods in memory; a larger one lies in a file."""
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
        at_once = _ROWS_AT_ONCE if on_cpu() else 8 * _ROWS_AT_ONCE
        shape, dtype = (len(self.rows), themes.K), themes.mu.dtype
        self.on_host = on_cpu() or not _fits_on_device(4 * len(self.rows) * themes.K)
        host = _room(shape, dtype) if self.on_host else None
        parts, finite = [], []
        for start in range(0, len(self.rows), at_once):
            rows = self.rows[start : start + at_once]
            filled = np.resize(rows, padded_size(len(rows)))
            part = _log_lik(prepared.to_device(filled), whitening)
            if host is None:
                parts.append(part[: len(rows)])
                finite.append(jnp.isfinite(parts[-1]).all(1))
            else:
                host[start : start + len(rows)] = np.asarray(part)[: len(rows)]
                finite.append(np.isfinite(host[start : start + len(rows)]).all(1))
        self.values: Float[Array | np.ndarray, "rows K"] = (
            jnp.concatenate(parts) if host is None else host
        )
        self.lost: Int[np.ndarray, "lost"] = self.rows[~np.concatenate(finite)]
        """Rows of the pool so far from an image-theme that the likelihood is no number."""

    def at(self, index: Int[Array | np.ndarray, "N A"]) -> Float[Array | np.ndarray, "N A K"]:
        """The log-likelihoods of the samples in some places."""
        return self.values[np.asarray(index)] if self.on_host else _at(self.values, index)


def _fits_on_device(size: int) -> bool:
    """Whether a table of so many bytes leaves most of the device's memory free."""
    free = free_bytes(jax.devices()[0])
    return free is None or size <= free // 4


def _room(shape: tuple[int, int], dtype: np.dtype) -> Float[np.ndarray, "rows K"]:
    """Room for a table: in memory, or in a file where it is large; classes are read from there."""
    if math.prod(shape) * dtype.itemsize <= _KEEP_BELOW_BYTES:
        return np.empty(shape, dtype)
    return mapped_scratch(shape, dtype)


_log_lik = jax.jit(log_likelihood)


@jax.jit
def _at(values: Float[Array, "rows K"], index: Int[Array, "N A"]) -> Float[Array, "N A K"]:
    return values[index]


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
        posterior = partial(
            _literally, table=table, themes=themes, max_iter=max_iter, keep_gamma=keep_gamma
        )
    elif tasks.takes_everything:
        once = _fit_whole_classes(table, classes, themes, tol, max_iter, keep_gamma)
        place = np.zeros(len(tasks.pool), dtype=np.int32)
        place[classes] = np.arange(len(classes), dtype=np.int32)
        posterior = partial(_of_whole_classes, fits=once, place=place, themes=themes)
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

    def of_piece(start: int, stop: int | None = None) -> _Part:
        piece = tasks[start : stop or start + sizes[-1]]
        size = len(piece) if on_cpu() else next(n for n in sizes if n >= len(piece))
        return _on_host(posterior(piece, shape, size), piece)

    with progress_bar(description, len(tasks)) as advance:
        first = min(_FIRST_TASKS, sizes[-1], len(tasks)) if on_cpu() else 0
        if first:
            yield of_piece(0, first)
            advance(first)
        for part in in_order(of_piece, range(first, len(tasks), sizes[-1]), _pieces_at_once()):
            yield part
            advance(len(part.lam))


def _pieces_at_once() -> int:
    """While the last classes of one piece settle, the next one is under way."""
    return 1 + (cores() if on_cpu() else 1)


def _bytes_in_piece() -> int:
    return max(_LEAST_BYTES, _BYTES_ON_CPU // _pieces_at_once())


def _piece_sizes(way: int, samples: int, themes: Themes) -> list[int]:
    """How many tasks a piece may hold, ascending, each with so many classes and samples of one."""
    each = 4 * way * (2 * samples * themes.K + 12 * themes.L * themes.K)
    if on_cpu():  # takes blocks of one size, however many tasks a piece has
        return [max(1, _bytes_in_piece() // each)]
    size, times, most = _TASKS_ON_ACCELERATORS
    free = free_bytes(jax.local_devices()[0])
    room = _bytes_in_piece() if free is None else free // 8
    sizes = [size]
    while (size := size * times) <= most and size * each <= room:
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


class _Fits(NamedTuple):
    """What single classes come to, side by side or by tasks (``C M``)."""

    evidence: Float[Array, "L *A"]
    sweeps: Int[Array, "*A"]
    samples: Int[Array, "*A"]
    gamma: Float[Array, "L K *A"] | None


class _Posteriors(NamedTuple):
    """Of the tasks of a piece, side by side."""

    lam: Float[Array, "L M"]
    bound: Float[Array, " M"]
    sweeps: Int[Array, " M"]
    samples: Int[Array, " M"]
    gamma: Float[Array, "K C M"] | None


def _on_host(posteriors: _Posteriors, tasks: TaskSet) -> _Part:
    here = jax.tree.map(lambda x: np.asarray(x)[..., : len(tasks)].T, posteriors)
    elbo = here.bound / np.maximum(here.samples, 1).astype(np.float32)
    return _Part(here.lam, elbo, here.sweeps, here.gamma)


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
    fits = _fit_classes(table, index, mask, themes, tol, max_iter, keep_gamma)
    class_mask = class_rows(tasks, shape[0], size) >= 0
    of_tasks = jax.tree.map(lambda x: x.reshape(*x.shape[:-1], *class_mask.shape), fits)
    return _agree(of_tasks, class_mask, themes)


def _fit_whole_classes(
    table: LikelihoodTable,
    classes: Int[np.ndarray, "some"],
    themes: Themes,
    tol: float,
    max_iter: int,
    keep_gamma: bool,
) -> _Fits:
    """Classes with all of their samples."""
    counts = table.counts[classes]
    room = max(_LEAST_CLASSES, _bytes_in_piece() // (8 * int(counts.max()) * themes.K))

    def of_some(start: int) -> _Fits:
        some = classes[start : start + room]
        n, size = len(some), padded_size(len(some), _LEAST_CLASSES)
        place = np.arange(counts.max())[:, None]
        mask = place < np.pad(table.counts[some], (0, size - n))
        index = np.where(mask, np.pad(table.starts[some], (0, size - n)) + place, 0)
        places = jnp.asarray(index[:, None].astype(np.int32)), jnp.asarray(mask[:, None])
        fits = _fit_classes(table, *places, themes, tol, max_iter, keep_gamma)
        return jax.tree.map(lambda leaf: leaf[..., :n], fits)

    parts = list(in_order(of_some, range(0, len(classes), room), _pieces_at_once()))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=-1), *parts)


def _of_whole_classes(
    tasks: TaskSet,
    shape: tuple[int, int],
    size: int,
    fits: _Fits,
    place: Int[np.ndarray, "classes"],
    themes: Themes,
) -> _Posteriors:
    """The posteriors of tasks that take all samples of their classes, whose fits are at a place."""
    rows = class_rows(tasks, shape[0], size)
    return _agree(take(fits, place[rows]), rows >= 0, themes)


def _fit_classes(
    table: LikelihoodTable,
    index: Int[Array, "N C M"],
    mask: Bool[Array, "N C M"],
    themes: Themes,
    tol: float,
    max_iter: int,
    keep_gamma: bool,
) -> _Fits:
    """Single classes under each task-theme."""
    N, alpha = len(index), themes.alpha
    size = block_size(themes.K * max(N, themes.L))
    places = index.reshape(N, -1), mask.reshape(N, -1)

    def finish(begun: Begun) -> _Fits:
        fits = _finish(begun, alpha)
        return fits if keep_gamma else fits._replace(gamma=None)

    return solve(
        size,
        lambda index, mask: _begin(table.at(index), mask, alpha),
        sweep_classes,
        finish,
        places,
        alpha,
        tol,
        max_iter,
    )


@compiled
def _begin(
    log_lik: Float[Array, "N A K"], sample_mask: Bool[Array, "N A"], alpha: Float[Array, "L K"]
) -> Begun:
    p, log_scale = relative_likelihood(log_lik.swapaxes(1, 2), sample_mask)
    point = begin(first_gamma(p, sample_mask, alpha))
    return Begun(point, (p, sample_mask), (log_scale,))


@compiled
def _finish(begun: Begun, alpha: Float[Array, "L K"]) -> _Fits:
    (p, sample_mask), (log_scale,) = begun.data, begun.rest
    fits = fitted_classes(begun.point, p, log_scale, sample_mask, alpha)
    return _Fits(fits.evidence, fits.sweeps, fits.samples, fits.gamma)


# -- tasks --------------------------------------------------------------------------------------


def _agree(fits: _Fits, class_mask: Bool[np.ndarray, "C M"], themes: Themes) -> _Posteriors:
    """What the classes of each task say together."""
    delta, size = themes.delta, block_size(themes.L * len(class_mask))
    return solve(
        size,
        lambda mask, fits: Begun(_begin_tasks(mask, delta), (fits.evidence, mask), (fits,)),
        sweep_tasks,
        lambda begun: _finish_tasks(begun, delta),
        (class_mask, fits),
        delta,
        TASK_TOL,
        TASK_ROUNDS,
    )


@compiled
def _begin_tasks(class_mask: Bool[Array, "C M"], delta: Float[Array, " L"]) -> FixedPoint:
    return begin(even_lam(class_mask, delta)[None])


@compiled
def _finish_tasks(begun: Begun, delta: Float[Array, " L"]) -> _Posteriors:
    (evidence, class_mask), (fits,) = begun.data, begun.rest
    lam, gamma = begun.point.swept[0], fits.gamma
    if gamma is not None:
        eta, _ = update_eta_given_evidence(evidence, lam, class_mask)
        gamma = (eta[:, None] * gamma).sum(0) + ~class_mask
    return _Posteriors(
        lam=lam,
        bound=task_bound(evidence, lam, class_mask, delta),
        sweeps=jnp.where(class_mask, fits.sweeps, 0).max(0),
        samples=jnp.where(class_mask, fits.samples, 0).sum(0),
        gamma=gamma,
    )


# -- the paper's E-step ---------------------------------------------------------------------------


@register_dataclass
@dataclass(frozen=True, eq=False)
class _PaperPoint:
    """Where the paper's E-step stands, with the tasks side by side."""

    lam: Float[Array, "L M"]
    eta: Float[Array, "L C M"]
    gamma: Float[Array, "K C M"]
    change: Float[Array, " M"]
    sweeps: Int[Array, " M"]

    @staticmethod
    def of(state: EStepState) -> "_PaperPoint":
        q = state.posterior
        return _PaperPoint(q.lam.T, q.eta.T, q.gamma.T, state.change, state.sweeps)

    def by_task(self) -> EStepState:
        return EStepState(
            TaskPosterior(self.lam.T, self.eta.T, self.gamma.T), self.change, self.sweeps
        )


def _literally(
    tasks: TaskSet,
    shape: tuple[int, int],
    size: int,
    table: LikelihoodTable,
    themes: Themes,
    max_iter: int,
    keep_gamma: bool,
) -> _Posteriors:
    """The posteriors as the paper has them, from a cold start."""
    index, sample_mask = table.find(tasks, *shape, size)
    class_mask = class_rows(tasks, shape[0], size) >= 0
    model = themes.alpha, themes.delta

    def begin_tasks(
        index: Int[Array | np.ndarray, "N C M"], *masks: Bool[Array | np.ndarray, "..."]
    ) -> Begun:
        log_lik = table.at(index.reshape(len(index), -1)).reshape(*index.shape, -1)
        return _begin_literally(log_lik, *masks, *model)

    def finish(begun: Begun) -> _Posteriors:
        paper = _finish_literally(begun, *model)
        return paper if keep_gamma else paper._replace(gamma=None)

    return solve(
        block_size(math.prod(index.shape[:-1]) * themes.K),
        begin_tasks,
        _sweep_literally,
        finish,
        (index, sample_mask, class_mask),
        model,
        _LITERAL_TOL,
        max_iter,
    )


@compiled
def _begin_literally(
    log_lik: Float[Array, "N C M K"],
    sample_mask: Bool[Array, "N C M"],
    class_mask: Bool[Array, "C M"],
    alpha: Float[Array, "L K"],
    delta: Float[Array, " L"],
) -> Begun:
    start = begin_e_step(cold_start(sample_mask.T, class_mask.T, alpha, delta))
    return Begun(_PaperPoint.of(start), (log_lik.swapaxes(2, 3), sample_mask, class_mask), ())


def _sweep_literally(
    point: _PaperPoint,
    log_lik: Float[Array, "N C K M"],
    sample_mask: Bool[Array, "N C M"],
    class_mask: Bool[Array, "C M"],
    model: tuple[Float[Array, "L K"], Float[Array, " L"]],
    tol: Scalar,
) -> _PaperPoint:
    given = log_lik.transpose(3, 1, 0, 2), sample_mask.T, class_mask.T, *model
    return _PaperPoint.of(advance_e_step(point.by_task(), *given, tol))


@compiled
def _finish_literally(
    begun: Begun, alpha: Float[Array, "L K"], delta: Float[Array, " L"]
) -> _Posteriors:
    point, (log_lik, sample_mask, class_mask) = begun.point, begun.data
    given = log_lik.transpose(3, 1, 0, 2), sample_mask.T, class_mask.T, alpha, delta
    bound = collapsed_elbo(point.by_task().posterior, *given)
    samples = sample_mask.sum((0, 1), dtype=jnp.int32)
    return _Posteriors(point.lam, bound, point.sweeps, samples, point.gamma)
