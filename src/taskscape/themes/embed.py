"""From themes and tasks to Dirichlet posteriors, for millions of tasks.

The log-likelihood of a sample under the image-themes is computed once, however many tasks hold it,
and so is the evidence of a class where tasks take all of its samples. Tasks are taken in pieces.
Most classes settle after a few sweeps and some need a hundred, so those that still move continue by
themselves (``side_by_side``).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from taskscape.compiling import compiled
from taskscape.devices import cores, free_bytes
from taskscape.errors import DataError
from taskscape.model import (
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
from taskscape.model.fixed_point import begin
from taskscape.model.params import Count, Scalar
from taskscape.pools.cache import mapped_scratch
from taskscape.progress import progress_bar
from taskscape.tasks import TaskSet
from taskscape.themes.data import padded_size
from taskscape.themes.places import SamplePlaces, class_rows
from taskscape.themes.prepare import PreparedSamples
from taskscape.themes.side_by_side import Begun, block_size, in_order, on_cpu, solve, take

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
_LITERAL_TASKS = 512
"""In a piece at most, all of which are swept until the last of them has settled."""


class SampleTable(SamplePlaces):
    """Some numbers of every sample of some classes of a pool, computed once."""

    def __init__(
        self,
        prepared: PreparedSamples,
        classes: Int[np.ndarray, "some"],
        width: int,
        numbers_of: Callable[[Float[Array, "S D"]], Float[Array, "S width"]],
        rows: Int[np.ndarray, "rows"] | None = None,
    ) -> None:
        super().__init__(prepared.pool, classes, rows)
        at_once = _ROWS_AT_ONCE if on_cpu() else 8 * _ROWS_AT_ONCE
        free = free_bytes(jax.local_devices()[0])  # most of it stays so
        too_large = free is not None and 4 * len(self.rows) * width > free // 4
        self.on_host = on_cpu() or too_large
        host: Float[np.ndarray, "rows width"] | None = None
        parts, finite = [], []
        for start in range(0, len(self.rows), at_once):
            rows = self.rows[start : start + at_once]
            one_size = at_once if len(self.rows) > at_once else padded_size(len(rows))
            part = numbers_of(prepared.to_device(rows, one_size))
            if not self.on_host:
                parts.append(part[: len(rows)])
                finite.append(jnp.isfinite(parts[-1]).all(1))
                continue
            if host is None:
                shape = len(self.rows), width
                small = math.prod(shape) * part.dtype.itemsize <= _KEEP_BELOW_BYTES
                host = np.empty(shape, part.dtype) if small else mapped_scratch(shape, part.dtype)
            host[start : start + len(rows)] = np.asarray(part)[: len(rows)]
            finite.append(np.isfinite(host[start : start + len(rows)]).all(1))
        self.values: Float[Array | np.ndarray, "rows width"] = (
            jnp.concatenate(parts) if host is None else host
        )
        self.lost: Int[np.ndarray, "lost"] = self.rows[~np.concatenate(finite)]
        """Rows of the pool so far from what was learned that a number of them is none."""

    def at(
        self, index: Int[Array | np.ndarray, "*some"]
    ) -> Float[Array | np.ndarray, "*some width"]:
        """The numbers of the samples in some places."""
        return self.values[np.asarray(index)] if self.on_host else _at(self.values, index)


def likelihoods(
    themes: Themes, prepared: PreparedSamples, classes: Int[np.ndarray, "some"]
) -> SampleTable:
    """Log-likelihood under every image-theme of all samples of some classes of a pool."""
    whitening = whiten(themes.mu, themes.Sigma)
    return SampleTable(prepared, classes, themes.K, lambda x: _log_lik(x, whitening))


_log_lik = jax.jit(log_likelihood)


@jax.jit
def _at(values: Float[Array, "rows K"], index: Int[Array, "*some"]) -> Float[Array, "*some K"]:
    return values[index]


class TaskPosteriors(NamedTuple):
    """The posteriors of tasks under every member of an ensemble."""

    lam: Float[np.ndarray, "members tasks L"]
    elbo: Float[np.ndarray, "members tasks"]
    """The bound in nats per sample: how well each member explains each task."""
    sweeps: Int[np.ndarray, "members tasks"]
    """Sweeps that the E-step took for the slowest class of the task."""
    gamma: Float[np.ndarray, "members tasks way K"] | None
    """Concentrations of each class's mixture of image-themes, where asked for."""


def embed(
    members: Sequence[Themes],
    tasks: TaskSet,
    prepared: PreparedSamples,
    *,
    tol: float = 1e-6,
    max_iter: int = 500,
    keep_gamma: bool = False,
    literal: bool = False,
) -> TaskPosteriors:
    """The Dirichlet posterior of every task under every member: a function of the task alone.

    The sweeps over a class end when less than ``tol`` of its samples moves between themes.
    ``literal`` uses the posterior of the paper, in which a class's mixture does not depend on its
    task-theme.

    Paper: alg:online_ldcc, procedure E-step, for tasks not learned from.
    """
    of_members = [
        list(_parts(themes, tasks, prepared, tol, max_iter, keep_gamma, literal))
        for themes in members
    ]

    def joined(name: str) -> np.ndarray:
        return np.stack([np.concatenate([getattr(p, name) for p in m]) for m in of_members])

    gamma = joined("gamma") if keep_gamma else None
    return TaskPosteriors(joined("lam"), joined("elbo"), joined("sweeps"), gamma)


def _parts(
    themes: Themes, tasks: TaskSet, prepared: PreparedSamples, tol: float, max_iter: int,
    keep_gamma: bool, literal: bool,
) -> "Iterator[Posteriors]":  # fmt: skip
    """The posteriors under one member on the host, tasks first, a piece of them at a time."""
    table = likelihoods(themes, prepared, tasks.class_ids)
    refuse_lost(table, tasks)
    member = _Member(themes, table, tasks.max_way, tasks.max_shot, tol, max_iter, keep_gamma)
    whole = tasks.takes_everything and not literal
    samples = 0 if whole else tasks.max_shot
    sizes = piece_sizes(4 * tasks.max_way * (2 * samples * themes.K + 12 * themes.L * themes.K))
    posterior: Callable[[TaskSet, int], Posteriors]
    if literal:
        posterior, sizes = member.literally, [min(sizes[0], _LITERAL_TASKS)]
    else:
        posterior = member.of_whole_classes(tasks.class_ids) if whole else member.of_samples

    def of_piece(start: int, stop: int | None = None) -> Posteriors:
        piece = tasks[start : stop or start + sizes[-1]]
        one_shape = literal or not on_cpu()  # blocks on a CPU have one, whatever a piece has
        size = next(n for n in sizes if n >= len(piece)) if one_shape else len(piece)
        return jax.tree.map(lambda x: np.asarray(x)[..., : len(piece)].T, posterior(piece, size))

    with progress_bar("embedding tasks", len(tasks)) as advance:
        first = min(_FIRST_TASKS, sizes[-1], len(tasks)) if on_cpu() else 0
        if first:
            yield of_piece(0, first)
            advance(first)
        for part in in_order(of_piece, range(first, len(tasks), sizes[-1]), pieces_at_once()):
            yield part
            advance(len(part.lam))


def pieces_at_once() -> int:
    """While the last classes of one piece settle, the next one is under way."""
    return 1 + (cores() if on_cpu() else 1)


def _bytes_in_piece() -> int:
    return max(_LEAST_BYTES, _BYTES_ON_CPU // pieces_at_once())


def piece_sizes(each: int) -> list[int]:
    """How many tasks a piece may hold, ascending, each of so many bytes."""
    if on_cpu():  # takes blocks of one size, however many tasks a piece has
        return [max(1, _bytes_in_piece() // each)]
    size, times, most = _TASKS_ON_ACCELERATORS
    free = free_bytes(jax.local_devices()[0])
    room = _bytes_in_piece() if free is None else free // 8
    sizes = [size]
    while (size := size * times) <= most and size * each <= room:
        sizes.append(size)
    return sizes


def refuse_lost(table: SampleTable, tasks: TaskSet) -> None:
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
        f"value {np.abs(pool.take(np.array([row]))).max():g}). Repair it or leave it out.{more}"
    )


class Fits(NamedTuple):
    """What single classes come to, side by side or by tasks (``C M``)."""

    evidence: Float[Array, "L *A"]
    sweeps: Int[Array, "*A"]
    samples: Int[Array, "*A"]
    gamma: Float[Array, "L K *A"] | None


class Posteriors(NamedTuple):
    """Of the tasks of a piece, side by side."""

    lam: Float[Array, "L M"]
    elbo: Float[Array, " M"]
    sweeps: Int[Array, " M"]
    gamma: Float[Array, "K C M"] | None


@dataclass(frozen=True, eq=False)
class _Member:
    """Themes and the likelihoods under them, the room that a task needs, and when sweeps end."""

    themes: Themes
    table: SampleTable
    way: int
    shot: int
    tol: float
    max_iter: int
    keep_gamma: bool

    def of_samples(self, tasks: TaskSet, size: int) -> Posteriors:
        """The posteriors of tasks that draw samples of their classes, with room for ``size``."""
        fits = self.fit_classes(*self.table.find(tasks, self.way, self.shot, size))
        class_mask = class_rows(tasks, self.way, size) >= 0
        of_tasks = jax.tree.map(lambda x: x.reshape(*x.shape[:-1], *class_mask.shape), fits)
        return settle_tasks((class_mask, of_tasks), self.themes)

    def of_whole_classes(
        self, classes: Int[np.ndarray, "some"]
    ) -> Callable[[TaskSet, int], Posteriors]:
        """The same for tasks that take all samples of these classes, which are fitted once."""
        counts = self.table.counts[classes]
        place = np.arange(counts.max())[:, None]
        room = max(_LEAST_CLASSES, _bytes_in_piece() // (8 * len(place) * self.themes.K))

        def of_some(start: int) -> Fits:
            part = slice(start, start + room)
            n = len(classes[part])
            fill = (0, padded_size(n, _LEAST_CLASSES) - n)
            mask = place < np.pad(counts[part], fill)
            index = np.where(mask, np.pad(self.table.starts[classes[part]], fill) + place, 0)
            fits = self.fit_classes(jnp.asarray(index.astype(np.int32)), jnp.asarray(mask))
            return jax.tree.map(lambda leaf: leaf[..., :n], fits)

        parts = list(in_order(of_some, range(0, len(classes), room), pieces_at_once()))
        fits = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=-1), *parts)
        of_class = np.zeros(len(self.table.counts), dtype=np.int32)
        of_class[classes] = np.arange(len(classes), dtype=np.int32)

        def of_tasks(tasks: TaskSet, size: int) -> Posteriors:
            rows = class_rows(tasks, self.way, size)
            return settle_tasks((rows >= 0, take(fits, of_class[rows])), self.themes)

        return of_tasks

    def fit_classes(self, index: Int[Array, "N *A"], mask: Bool[Array, "N *A"]) -> Fits:
        """Single classes under each task-theme."""
        problems = (index.reshape(len(index), -1), mask.reshape(len(mask), -1))
        fits = settle_classes(self.table.at, problems, self.themes, self.tol, self.max_iter)
        return fits if self.keep_gamma else fits._replace(gamma=None)

    def literally(self, tasks: TaskSet, size: int) -> Posteriors:
        """The posteriors as the paper has them, from a cold start."""
        index, mask = self.table.find(tasks, self.way, self.shot, size)
        class_mask = class_rows(tasks, self.way, size) >= 0
        paper = _literally(self.table.at(index), mask, class_mask, self.themes, self.max_iter)
        return paper if self.keep_gamma else paper._replace(gamma=None)


def settle_classes(
    at: Callable[..., Any], problems: tuple[Any, ...], themes: Themes, tol: Scalar, max_iter: Count
) -> Fits:
    """Classes under each task-theme, given where their samples are, which are real, and gamma.

    ``at`` has the log-likelihoods of the samples in some places; gamma may be left out.
    """
    alpha, N = themes.alpha, len(problems[0])
    return solve(
        block_size(themes.K * max(N, themes.L)),
        lambda index, mask, *start: _begin(at(index), mask, alpha, *start),
        sweep_classes,
        lambda begun: _finish(begun, alpha),
        problems,
        alpha,
        tol,
        max_iter,
    )


def settle_tasks(problems: tuple[Any, ...], themes: Themes) -> Posteriors:
    """What the classes of each task say together, given their fits and, maybe, lam."""
    delta = themes.delta
    return solve(
        block_size(themes.L * len(problems[0])),
        lambda mask, fits, *start: Begun(
            _begin_tasks(mask, delta, *start), (fits.evidence, mask), (fits,)
        ),
        sweep_tasks,
        lambda begun: _finish_tasks(begun, delta),
        problems,
        delta,
        TASK_TOL,
        TASK_ROUNDS,
    )


@compiled
def _begin(
    log_lik: Float[Array, "N A K"],
    sample_mask: Bool[Array, "N A"],
    alpha: Float[Array, "L K"],
    start: Float[Array, "L K A"] | None = None,
) -> Begun:
    p, log_scale = relative_likelihood(log_lik.swapaxes(1, 2), sample_mask)
    point = begin(first_gamma(p, sample_mask, alpha) if start is None else start)
    return Begun(point, (p, sample_mask), (log_scale,))


@compiled
def _finish(begun: Begun, alpha: Float[Array, "L K"]) -> Fits:
    (p, sample_mask), (log_scale,) = begun.data, begun.rest
    fits = fitted_classes(begun.point, p, log_scale, sample_mask, alpha)
    return Fits(fits.evidence, fits.sweeps, fits.samples, fits.gamma)


@compiled
def _begin_tasks(
    class_mask: Bool[Array, "C M"],
    delta: Float[Array, " L"],
    start: Float[Array, "L M"] | None = None,
) -> FixedPoint:
    return begin((even_lam(class_mask, delta) if start is None else start)[None])


@compiled
def _finish_tasks(begun: Begun, delta: Float[Array, " L"]) -> Posteriors:
    (evidence, class_mask), (fits,) = begun.data, begun.rest
    lam, gamma = begun.point.swept[0], fits.gamma
    if gamma is not None:
        eta, _ = update_eta_given_evidence(evidence, lam, class_mask)
        gamma = (eta[:, None] * gamma).sum(0) + ~class_mask
    samples = jnp.where(class_mask, fits.samples, 0).sum(0)
    return Posteriors(
        lam=lam,
        elbo=task_bound(evidence, lam, class_mask, delta) / jnp.maximum(samples, 1),
        sweeps=jnp.where(class_mask, fits.sweeps, 0).max(0),
        gamma=gamma,
    )


@jax.jit
def _literally(
    log_lik: Float[Array, "N C M K"],
    sample_mask: Bool[Array, "N C M"],
    class_mask: Bool[Array, "C M"],
    themes: Themes,
    max_iter: Count,
) -> Posteriors:
    masks = sample_mask.T, class_mask.T
    given = log_lik.transpose(2, 1, 0, 3), *masks, themes.alpha, themes.delta
    state = e_step(*given, _LITERAL_TOL, max_iter)
    samples = jnp.maximum(sample_mask.sum((0, 1)), 1)
    q, elbo = state.posterior, collapsed_elbo(state.posterior, *given) / samples
    return Posteriors(q.lam.T, elbo, state.sweeps, q.gamma.T)
