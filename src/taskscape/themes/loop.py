"""The fit as a loop of steps, which whoever runs it sees; several fits, with their checkpoint."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from taskscape.distributed.engine import interrupts_wait
from taskscape.distributed.mesh import (
    alike,
    anyone,
    first_process,
    on_all_hosts,
    on_one_device,
    one_for_all,
    own_places,
    part_ways,
    same_on_all,
    several_processes,
    split_over_devices,
)
from taskscape.errors import CheckpointError, DataError
from taskscape.io.arrays import CHECKPOINT, arrays_of, load_checkpoint, save_checkpoint
from taskscape.io.files import check_output
from taskscape.io.values import from_plain
from taskscape.model import ConditionalPosterior, ThemeStatistics, penalised_bound, relative_prior
from taskscape.progress import progress_bar
from taskscape.tasks import TaskSet
from taskscape.themes.config import FitConfig
from taskscape.themes.data import FitBatch, TaskSource, gather
from taskscape.themes.health import flaws, repair
from taskscape.themes.prepare import PreparedSamples
from taskscape.themes.side_by_side import in_order
from taskscape.themes.start import starts
from taskscape.themes.steps import (
    FitState,
    batch_part,
    held_out_bound,
    maximise,
    posterior_from_arrays,
    state_from_arrays,
    step,
)

_HELD_OUT_PER_BATCH = 256


@dataclass(frozen=True)
class FitInfo:
    """What a step reports."""

    t: int
    tasks: int
    """Tasks learned from so far, counting repeats."""
    elbo: float
    """Nats per sample of the tasks of this step, before its update."""
    most_tasks: int | None = None
    """Where the fit ends in any case, counted as ``tasks``."""
    held_out: float | None = None
    """Nats per sample of the held-out tasks, after it, when they were looked at."""
    penalised: float | None = None
    """Batch only: the bound with the log-priors, per sample; it never falls."""
    usage: tuple[float, ...] = ()
    """Share of the samples that each image-theme explains."""
    sweeps: float = 0.0
    rho: float = 1.0
    revived: int = 0
    done: str = ""
    """Why the fit ended, on its last step."""


@dataclass
class Fit:
    """One fit from one start: iterate it to run it; ``state`` is always complete.

    >>> # for info in fit: print(info.t, info.elbo)
    """

    source: TaskSource
    held_out: TaskSet
    prepared: PreparedSamples
    config: FitConfig
    state: FitState
    history: list[FitInfo] = field(default_factory=list)
    posteriors: ConditionalPosterior | None = None
    """Batch only: where the E-step of every task continues."""
    mesh: Mesh | None = None
    """Devices that share the tasks; the state is then the same on all of them."""

    def __post_init__(self) -> None:
        self.state = same_on_all(self.state, self.mesh)

    def __iter__(self) -> Iterator[FitInfo]:
        steps = self._passes() if self.config.method == "batch" else self._mini_batches()
        while not (self.history and self.history[-1].done):
            before = self.state, self.posteriors, len(self.history)
            try:
                self.history.append(next(steps))
            except BaseException:  # stopped in mid-step, perhaps to save: as if it had not begun
                self.state, self.posteriors, done = before
                del self.history[done:]
                raise
            yield self.history[-1]

    @staticmethod
    def several(
        source: TaskSource,
        held_out: TaskSet,
        prepared: PreparedSamples,
        config: FitConfig,
        n: int,
        mesh: Mesh | None = None,
    ) -> "list[Fit]":
        """Fits about to begin, from the best starts that the classes of the source suggest."""
        first = source.tasks if isinstance(source.tasks, TaskSet) else source.batch(0, 4096)
        begun = map(one_for_all, starts(source.without_held_out(first), prepared, config, n))
        return [Fit(source, held_out, prepared, config, state, mesh=mesh) for state in begun]

    @property
    def updates(self) -> int:
        """Updates done so far."""
        return int(self.state.t)

    @property
    def batch_size(self) -> int:
        """Tasks in a mini-batch: as asked, or all that there are or that may be used."""
        limits = [self.config.batch_size, self.source.n_tasks]
        if self.config.method == "online":
            limits.append(self.config.max_tasks)
        return min(n for n in limits if n is not None)

    @property
    def _shape(self) -> tuple[int, int, int]:
        """Tasks, classes and samples of a mini-batch."""
        return self.batch_size, self.source.tasks.max_way, self.source.tasks.max_shot

    def most_updates(self) -> int | None:
        """The number of updates after which the fit ends in any case."""
        online = self.config.method == "online"
        size, limits = self.batch_size if online else self.source.n_tasks, []
        if self.config.max_tasks is not None and size is not None:
            limits.append(max(1, self.config.max_tasks // size))
        if not online:
            return min([self.config.max_passes, *limits])
        assert size is not None
        per_pass = self.source.steps_per_pass(size)
        if per_pass is not None:
            streamed = not isinstance(self.source.tasks, TaskSet)
            limits.append(per_pass * (1 if streamed else self.config.max_passes))
        return min(limits, default=None)

    # -- online ---------------------------------------------------------------------------------

    def mini_batch(self, t: int) -> FitBatch:
        """The samples of mini-batch ``t`` of the source."""
        tasks = self.source.batch(t, self.batch_size)
        return gather(tasks, self.prepared, self._shape, mesh=self.mesh)

    def learn(self, batch: FitBatch) -> FitInfo:
        """Learn from a mini-batch, without looking at held-out tasks."""
        size = self.batch_size
        self.state, report = step(self.state, batch, self.config.of_steps())
        return FitInfo(
            t=self.updates,
            tasks=self.updates * size,
            elbo=float(report.elbo),
            most_tasks=None if (most := self.most_updates()) is None else most * size,
            usage=tuple(np.asarray(report.usage).round(6).tolist()),
            sweeps=float(report.sweeps),
            rho=float(report.rho),
        )

    def _mini_batches(self) -> Iterator[FitInfo]:
        most = self.most_updates()
        evaluated = self._held_out_batches()
        t = self.updates
        numbers = count(t) if most is None else range(t, max(t + 1, most))
        for batch in in_order(self.mini_batch, numbers, 1):
            info = self.learn(batch)
            last = most is not None and info.t >= most
            if last or info.t % self.config.evaluate_every == 0:
                info = self._look(info, evaluated, last)
            yield info

    def _held_out_batches(self) -> list[FitBatch]:
        """The held-out tasks, in the shape of mini-batches where they fit: one program for both."""
        shape = self._shape
        own = (len(self.held_out), self.held_out.max_way, self.held_out.max_shot)
        if shape[0] > _HELD_OUT_PER_BATCH or shape[1] < own[1] or shape[2] < own[2]:
            shape = (min(_HELD_OUT_PER_BATCH, own[0]), *own[1:])
        size = shape[0]
        parts = [self.held_out[i : i + size] for i in range(0, len(self.held_out), size)]
        batches = [gather(part, self.prepared, shape, mesh=self.mesh) for part in parts]
        room = max(len(batch.x) for batch in batches)
        return [
            batch if len(batch.x) == room else gather(part, self.prepared, shape, room, self.mesh)
            for part, batch in zip(parts, batches, strict=True)
        ]

    def _look(self, info: FitInfo, evaluated: list[FitBatch], last: bool) -> FitInfo:
        """Test the themes on held-out tasks, keep the best, repair dead and duplicate ones."""
        settings = self.config.of_steps()
        sums = [held_out_bound(self.state.themes, batch, settings) for batch in evaluated]
        bound = float(sum(float(s) for s, _ in sums) / sum(float(n) for _, n in sums))
        if self.mesh is not None:
            self.state = on_one_device(self.state)
        flawed = flaws(self.state)
        best = -int(self.state.best_flaws), float(self.state.best_bound)
        rose = (-flawed, bound - self.config.min_gain) > best
        stale = 0 if rose else int(self.state.stale) + 1
        self.state = replace(self.state, stale=jnp.asarray(stale, jnp.int32))
        if (-flawed, bound) > best:
            self.state = replace(
                self.state,
                best=self.state.themes,
                best_bound=jnp.asarray(bound, self.state.shift.dtype),
                best_flaws=jnp.asarray(flawed, jnp.int32),
            )
        revived = 0
        if not last and self.config.update != "paper":
            self.state, revived = repair(self.state, settings)
            if revived:
                self.posteriors = None  # they have no place for it, and would leave it dead
        self.state = same_on_all(self.state, self.mesh)
        counted = "passes" if self.config.method == "batch" else "tasks"
        done = f"the asked number of {counted} is reached" if last else ""
        if stale >= self.config.patience:
            done = "the held-out bound no longer rises"
        return replace(info, held_out=bound, revived=revived, done="" if revived else done)

    # -- batch ----------------------------------------------------------------------------------

    def _passes(self) -> Iterator[FitInfo]:
        most = self.most_updates()
        assert most is not None
        evaluated = self._held_out_batches()
        n_tasks = self.source.n_tasks or 0
        while True:
            t = self.updates
            stats, bound = self._full_pass(self._shape)
            prior = relative_prior(
                stats, self.state.Psi0, self.config.nu_fraction, self.config.kappa
            )
            samples = float(stats.samples)
            penalised = float(penalised_bound(jnp.asarray(bound), self.state.themes, prior))
            moved = maximise(self.state, stats, self.config.of_steps())
            self.state = replace(self.state, themes=moved, stats=stats, t=self.state.t + 1)
            info = FitInfo(
                t=t + 1,
                tasks=(t + 1) * n_tasks,
                elbo=bound / samples,
                most_tasks=self.config.max_passes * n_tasks,
                penalised=penalised / samples,
                usage=tuple(np.asarray(stats.N_k / stats.samples).round(6).tolist()),
            )
            yield self._look(info, evaluated, t + 1 >= most)

    def _full_pass(self, shape: tuple[int, int, int]) -> tuple[ThemeStatistics, float]:
        size = shape[0]
        total: ThemeStatistics | None = None
        parts, bound = [], 0.0
        for i, tasks in enumerate(self.source.all_batches(size)):
            batch = gather(tasks, self.prepared, shape, mesh=self.mesh)
            start = self._where_it_was(slice(i * size, (i + 1) * size))
            stats, posterior, elbo = batch_part(self.state, batch, start, self.config.of_steps())
            total = stats if total is None else total + stats
            if self.mesh is not None:
                posterior = jax.tree.map(lambda leaf: leaf[:size], on_all_hosts(posterior))
            parts.append(posterior)
            bound += float(elbo)
        assert total is not None
        together = jnp.concatenate if self.mesh is None else np.concatenate
        self.posteriors = jax.tree.map(lambda *leaves: together(leaves), *parts)
        return total, bound

    def _where_it_was(self, tasks: slice) -> ConditionalPosterior | None:
        """The posteriors of some tasks after the pass before, if there was one."""
        if self.posteriors is None:
            return None
        known = jax.tree.map(lambda leaf: leaf[tasks], self.posteriors)
        if self.mesh is None:
            return known
        share = -(-(tasks.stop - tasks.start) // self.mesh.size)

        def of_device(place: int) -> ConditionalPosterior:
            at = np.minimum(np.arange(place * share, (place + 1) * share), len(known.lam) - 1)
            return jax.tree.map(lambda leaf: np.asarray(leaf)[at], known)

        return split_over_devices([of_device(i) for i in own_places(self.mesh)], self.mesh)


Callback = Callable[[FitInfo, int], None]


def run_fits(
    source: TaskSource,
    held_out: TaskSet,
    prepared: PreparedSamples,
    config: FitConfig,
    params: Mapping[str, Any],
    checkpoint: str | os.PathLike[str] | None,
    every: int,
    resume: bool,
    callback: Callback | None,
    mesh: Mesh | None,
) -> list[Fit]:
    """The restarts of one call of ``fit``, but for what a checkpoint holds already."""
    n = int(max(params["n_restarts"], params["ensemble"]))
    given, identity = (source, held_out, prepared, config), _identity(params, source, held_out)
    path = None if checkpoint is None else Path(checkpoint)
    if not alike(identity):
        raise DataError(
            "the processes that share this fit have different settings, data or tasks (with "
            "random_state=None, each draws its own). Start the same in all of them."
        )
    fits: list[Fit] = []
    if resume and path is not None and path.exists():
        fits = _read(path, identity, given, mesh)
    if not alike(str([len(fit.history) for fit in fits])):
        raise CheckpointError(
            f"the processes see different checkpoints at {path}. It must be on a disk that all of "
            "them share."
        )
    fits = fits or Fit.several(*given, n, mesh)

    def save() -> None:
        if path is not None and first_process():
            _write(path, identity, fits)

    def after(info: FitInfo, restart: int) -> None:
        if info.t % every == 0 or info.done:
            save()
        if callback is not None:
            callback(info, restart)

    for i, fit in enumerate(fits):
        label = "fitting" if n == 1 else f"fitting {i + 1}/{n}"
        _finish(fit, label, partial(after, restart=i), save)
    for fit in fits:
        fit.state = on_one_device(fit.state)
    return fits


def _finish(
    fit: Fit, label: str, after: Callable[[FitInfo], None], save: Callable[[], None]
) -> None:
    agreed = False
    with progress_bar(label, fit.most_updates()) as advance:
        try:
            with interrupts_wait(several_processes()) as asked:
                for info in fit:
                    advance(1)
                    after(info)
                    if several_processes() and info.held_out is not None:
                        agreed = anyone(bool(asked))
                    if agreed:
                        raise KeyboardInterrupt
        except KeyboardInterrupt:
            save()
            if agreed:
                part_ways()  # no process leaves before the checkpoint is written
            raise


def _write(path: Path, identity: str, fits: list[Fit]) -> None:
    arrays: dict[str, np.ndarray] = {}
    for i, fit in enumerate(fits):
        arrays |= arrays_of(fit.state, f"fit{i}")
        if fit.posteriors is not None and not (fit.history and fit.history[-1].done):
            arrays |= arrays_of(fit.posteriors, f"posteriors{i}")
    histories = [[asdict(info) for info in fit.history] for fit in fits]
    header = {"what": "fit checkpoint", "identity": identity, "histories": histories}
    save_checkpoint(path, arrays, header)


def _read(
    path: Path,
    identity: str,
    given: tuple[TaskSource, TaskSet, PreparedSamples, FitConfig],
    mesh: Mesh | None,
) -> list[Fit]:
    """The fits as a checkpoint holds them."""
    arrays, header = load_checkpoint(path, "fit", identity)
    fits = []
    for i, history in enumerate(header["histories"]):
        state = state_from_arrays(arrays, f"fit{i}")
        steps = list(from_plain(tuple[FitInfo, ...], history))
        posteriors = posterior_from_arrays(arrays, f"posteriors{i}")
        fits.append(Fit(*given, state, steps, posteriors, mesh))
    return fits


def check_no_checkpoint(path: str | os.PathLike[str]) -> None:
    """Raise an error if what starts again would replace a checkpoint, or anything else."""
    check_output(path, CHECKPOINT)
    if Path(path).exists() and Path(path).stat().st_size:
        raise DataError(
            f"{os.fspath(path)} is the checkpoint of a fit that did not finish. Resume it "
            "with resume=True (on the command line: --resume), or delete it to start again."
        )


def _identity(params: Mapping[str, Any], source: TaskSource, held_out: TaskSet) -> str:
    """A hash of the settings, the pool and the tasks that a checkpoint belongs to."""
    h = hashlib.blake2b(digest_size=16)
    h.update(json.dumps(dict(params), default=str, sort_keys=True).encode())
    h.update(source.pool.fingerprint.encode())
    h.update(f"{source.n_tasks} {source.tasks.max_way} {source.tasks.max_shot}".encode())
    tasks = source.tasks if isinstance(source.tasks, TaskSet) else source.batch(0, 256)
    for part in (tasks, held_out):
        part.add_to_hash(h)
    return h.hexdigest()
