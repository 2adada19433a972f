"""The fit as a loop of steps; whoever runs it sees every step and may stop, log or save."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np

from taskscape.model import (
    ConditionalPosterior,
    ThemeStatistics,
    penalised_bound,
    relative_prior,
)
from taskscape.tasks import TaskSet
from taskscape.themes.config import FitConfig
from taskscape.themes.data import FitBatch, TaskSource, gather
from taskscape.themes.mending import flaws, mend
from taskscape.themes.prepare import PreparedSamples
from taskscape.themes.start import starts
from taskscape.themes.steps import (
    FitState,
    batch_part,
    cold_posterior,
    held_out_bound,
    maximise,
    step,
)

__all__ = ["Fit", "FitInfo"]

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
    """Batch only: where the E-step of every task goes on from."""

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
    ) -> "list[Fit]":
        """Fits about to begin, from the best starts that the classes of the source suggest."""
        first = source.tasks if isinstance(source.tasks, TaskSet) else source.batch(0, 4096)
        return [
            Fit(source, held_out, prepared, config, state)
            for state in starts(source.without_held_out(first), prepared, config, n)
        ]

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

    def learn(self, t: int) -> FitInfo:
        """Learn from mini-batch ``t`` of the source, without looking at held-out tasks."""
        size = self.batch_size
        batch = gather(self.source.batch(t, size), self.prepared, self._shape())
        self.state, told = step(self.state, batch, self.config.of_steps())
        return FitInfo(
            t=self.updates,
            tasks=self.updates * size,
            elbo=float(told.elbo),
            most_tasks=None if (most := self.most_updates()) is None else most * size,
            usage=tuple(np.asarray(told.usage).round(6).tolist()),
            sweeps=float(told.sweeps),
            rho=float(told.rho),
        )

    def settled(self) -> FitState:
        """The state with its present themes taken as the best, as after a partial fit."""
        return replace(self.state, best=self.state.themes)

    def _mini_batches(self) -> Iterator[FitInfo]:
        most = self.most_updates()
        judged = self._held_out_batches()
        while True:
            t = self.updates
            info = self.learn(t)
            last = most is not None and t + 1 >= most
            if last or (t + 1) % self.config.evaluate_every == 0:
                info = self._look(info, judged, last)
            if last and not info.done:
                info = replace(info, done="the asked number of tasks is reached")
            yield info

    def _held_out_batches(self) -> list[FitBatch]:
        """The held-out tasks, in the shape of mini-batches where they fit: one program for both."""
        shape = self._shape()
        own = (len(self.held_out), self.held_out.max_way, self.held_out.max_shot)
        if shape[0] > _HELD_OUT_PER_BATCH or shape[1] < own[1] or shape[2] < own[2]:
            shape = (min(_HELD_OUT_PER_BATCH, own[0]), *own[1:])
        size = shape[0]
        parts = [self.held_out[i : i + size] for i in range(0, len(self.held_out), size)]
        batches = [gather(part, self.prepared, shape) for part in parts]
        room = max(len(batch.x) for batch in batches)
        return [
            batch if len(batch.x) == room else gather(part, self.prepared, shape, room)
            for part, batch in zip(parts, batches, strict=True)
        ]

    def _look(self, info: FitInfo, judged: list[FitBatch], last: bool) -> FitInfo:
        """Judge the themes by the held-out tasks, keep the best, mend dead and duplicate themes."""
        settings = self.config.of_steps()
        sums = [held_out_bound(self.state.themes, batch, settings) for batch in judged]
        bound = float(sum(float(s) for s, _ in sums) / sum(float(n) for _, n in sums))
        flawed, best = (
            flaws(self.state),
            (-int(self.state.best_flaws), float(self.state.best_bound)),
        )
        rose = (-flawed, bound - self.config.min_gain) > best
        better = (-flawed, bound) > best
        stale = 0 if rose else int(self.state.stale) + 1
        self.state = replace(
            self.state,
            best=self.state.themes if better else self.state.best,
            best_bound=jnp.asarray(bound, self.state.shift.dtype)
            if better
            else self.state.best_bound,
            best_flaws=jnp.asarray(flawed, jnp.int32) if better else self.state.best_flaws,
            stale=jnp.asarray(stale, jnp.int32),
        )
        revived = 0
        if not last and self.config.update != "paper":
            self.state, revived = mend(self.state, settings)
            if revived:
                self.posteriors = None  # they have no place for it, and would leave it dead
        done = "the held-out bound no longer rises" if stale >= self.config.patience else ""
        return replace(info, held_out=bound, revived=revived, done="" if revived else done)

    # -- batch ----------------------------------------------------------------------------------

    def _passes(self) -> Iterator[FitInfo]:
        most = self.most_updates()
        assert most is not None
        judged = self._held_out_batches()
        n_tasks = self.source.n_tasks or 0
        while True:
            t = self.updates
            stats, bound = self._full_pass(self._shape())
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
            info = self._look(info, judged, t + 1 >= most)
            if t + 1 >= most and not info.done:
                info = replace(info, done="the asked number of passes is reached")
            yield info

    def _full_pass(self, shape: tuple[int, int, int]) -> tuple[ThemeStatistics, float]:
        size = shape[0]
        total: ThemeStatistics | None = None
        parts, bound = [], 0.0
        for i, tasks in enumerate(self.source.all_batches(size)):
            batch = gather(tasks, self.prepared, shape)
            part = slice(i * size, (i + 1) * size)
            if self.posteriors is None:
                start = cold_posterior(self.state, batch)
            else:
                start = jax.tree.map(lambda leaf, p=part: leaf[p], self.posteriors)
            stats, posterior, elbo = batch_part(self.state, batch, start, self.config.of_steps())
            total = stats if total is None else total + stats
            parts.append(posterior)
            bound += float(elbo)
        assert total is not None
        self.posteriors = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
        return total, bound
