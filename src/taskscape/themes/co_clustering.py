"""The paper's model, a continuous Latent Dirichlet Co-Clustering, as an estimator."""

import os
import warnings
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from taskscape.arguments import (
    Seed,
    check_flag,
    check_kind,
    check_seed,
    check_whole,
    public,
    python_number,
)
from taskscape.compare import mean_distance, member_agreement
from taskscape.devices import one_thread
from taskscape.distributed.mesh import all_devices, losses_named
from taskscape.embeddings import Embeddings, Factor
from taskscape.embeddings.factors import TASK_THEMES
from taskscape.errors import DataError
from taskscape.io.arrays import arrays_of
from taskscape.io.values import from_plain
from taskscape.model import Themes
from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet
from taskscape.themes.config import FitConfig
from taskscape.themes.data import TaskSource, check_enough
from taskscape.themes.embed import embed
from taskscape.themes.health import Health, check_health
from taskscape.themes.loop import Callback, Fit, check_no_checkpoint, run_fits
from taskscape.themes.prepare import PrepareConfig, PreparedSamples, check_prepare, preparation_for
from taskscape.themes.steps import FitState, state_from_arrays
from taskscape.themes.task_model import HealthWarning, TaskModel, Tasks, as_tasks, seed_of, usual

_HEALTH_TASKS = 2000
_MOST_RESTARTS = 1000
_USUAL_TASKS = 500
_EVALUATED_AT_LEAST = 100
"""With fewer tasks to test on, these alone do not tell what is usual."""
_CLASSES_HELD_OUT = "tasks of held-out classes"
_TASKS_SET_ASIDE = "tasks of the classes learned from (in-sample)"
_VALIDATION = "validation tasks"


@public
@dataclass(eq=False, repr=False)
class CoClustering(TaskModel):
    """Task-themes of a collection of classification tasks: a continuous LDCC.

    Every image is drawn from one of K Gaussian image-themes, every class mixes image-themes in
    proportions drawn from one of L task-themes, every task mixes task-themes. The posterior of a
    task is a Dirichlet over task-themes, with concentrations λ.

    Parameters carry the names of :class:`taskscape.themes.FitConfig`, where each is explained.

    ``prepare``: ``"auto"`` chooses from the data, None takes the samples as they are, or a
    :class:`taskscape.themes.PrepareConfig`. ``n_restarts``: fits from different starts; the best
    by held-out bound is kept, fewer dead or duplicate themes before more; ``ensemble``: how many of
    the best to keep; there are at least as many restarts. ``n_held_out``: tasks to test on, made
    of a tenth of the classes (whole groups where there are some), which are not learned from; with
    fewer than 30 classes, tasks that share their classes with the others; ``held_out_`` says which.
    ``random_state``: the seed that shuffles tasks; where a fit starts follows from the
    classes alone. The same seed, data and version give the same result. With None a seed is drawn,
    and kept as ``random_state_``.

    After ``fit``: ``mu_``, ``Sigma_``, ``alpha_`` (of the best fit), ``members_`` (all kept
    fits), ``elbo_history_`` (tasks seen, held-out nats per sample), ``held_out_`` (on what),
    ``theme_usage_``, ``health_``, ``preparation_``, ``random_state_``, ``n_features_in_``.
    """

    task_themes: int = FitConfig.task_themes
    image_themes: int = FitConfig.image_themes
    _: KW_ONLY
    delta: float = FitConfig.delta
    prepare: PrepareConfig | Literal["auto"] | None = "auto"
    method: Literal["online", "batch"] = FitConfig.method
    update: Literal["statistics", "paper"] = FitConfig.update
    batch_size: int = FitConfig.batch_size
    tau0: float = FitConfig.tau0
    tau1: float = FitConfig.tau1
    tol: float = FitConfig.tol
    max_iter: int = FitConfig.max_iter
    max_tasks: int | None = FitConfig.max_tasks
    max_passes: int = FitConfig.max_passes
    evaluate_every: int = FitConfig.evaluate_every
    patience: int = FitConfig.patience
    min_gain: float = FitConfig.min_gain
    nu_fraction: float = FitConfig.nu_fraction
    kappa: float = FitConfig.kappa
    n_restarts: int = 1
    ensemble: int = 1
    n_held_out: int = 500
    random_state: Seed | None = 0

    # -- learning -------------------------------------------------------------------------------

    def fit(
        self,
        tasks: Tasks | Iterable[TaskSet],
        y: None = None,
        *,
        validation: TaskSet | None = None,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 50,
        resume: bool = False,
        distributed: bool = False,
    ) -> "CoClustering":
        """Learn themes from tasks.

        ``validation`` tasks test the fit instead of held-out classes. ``callback(info, restart)``
        hears of every step. With ``checkpoint`` the state is written every ``checkpoint_every``
        steps and when interrupted, and ``resume=True`` resumes from there to the same result;
        without it, a file that is there is never replaced. ``distributed`` shares the tasks among
        all devices that JAX sees, of this process and of those that it was joined with
        (:func:`taskscape.distributed.join_processes`), which all make the same call; the first
        one writes.
        """
        config = self._config()
        check_whole(checkpoint_every, "checkpoint_every", 1)
        check_flag(resume, "resume")
        if callback is not None and not callable(callback):
            raise DataError(f"callback={callback!r} must be a function of (info, restart).")
        if resume and checkpoint is None:
            raise DataError("resume=True needs checkpoint, the file to resume from.")
        if resume and self.random_state is None:
            raise DataError(
                "resume=True needs random_state, the seed that the fit began with; with None every "
                "fit draws its own."
            )
        if checkpoint is not None and not resume:
            check_no_checkpoint(checkpoint)
        tasks = as_tasks(tasks)
        seed = seed_of(self.random_state)
        source, held_out, tested_on = self._source(tasks, validation, config, seed)
        classes = np.setdiff1d(tasks.class_ids, list(source.held_out))
        preparation = preparation_for(self.prepare, tasks.pool, classes)
        every = np.union1d(classes, held_out.class_ids)
        prepared = PreparedSamples(tasks.pool, preparation, every)
        mesh = all_devices() if distributed else None
        with losses_named(), one_thread():
            finished = run_fits(
                source, held_out, prepared, config, self.get_params(),
                checkpoint, checkpoint_every, resume, callback, mesh,
            )  # fmt: skip
        # few dead and duplicate themes, then a high bound
        finished.sort(key=lambda fit: (int(fit.state.best_flaws), -float(fit.state.best_bound)))
        kept = finished[: self.ensemble]
        self.preparation_, self.held_out_ = preparation, tested_on
        self._set_states([f.state for f in kept])
        self.fit_info_ = kept[0].history
        looks = [(i.tasks, i.held_out) for i in self.fit_info_ if i.held_out is not None]
        self.elbo_history_ = np.array(looks, dtype=np.float64)
        self._learned_from(tasks.pool, seed)
        self._evaluate(held_out, source, prepared)
        return self

    def _source(
        self, tasks: Tasks, validation: TaskSet | None, config: FitConfig, seed: int = 0
    ) -> tuple[TaskSource, TaskSet, str]:
        """Tasks to learn from, tasks to test on, and what these are."""
        if validation is None:
            least = max(config.task_themes, 2)
            source, held_out = TaskSource.of(tasks, seed, int(self.n_held_out), least=least)
            tested_on = _CLASSES_HELD_OUT if source.held_out else _TASKS_SET_ASIDE
        else:
            check_enough(tasks)
            _check_validation(validation, tasks.pool)
            source, held_out = TaskSource(tasks.pool, tasks, seed), validation
            tested_on = _VALIDATION
        if source.n_tasks is None and config.method == "batch":
            raise DataError("a stream without end has no full pass; use method='online'.")
        if source.n_tasks is None and config.max_tasks is None:
            raise DataError("a stream without end needs max_tasks, the number of tasks to use.")
        return source, held_out, tested_on

    def partial_fit(self, tasks: Tasks | Iterable[TaskSet], y: None = None) -> "CoClustering":
        """Learn from further tasks, one online pass, resuming from where the fit stands."""
        tasks = as_tasks(tasks)
        if not hasattr(self, "states_"):
            return self.fit(tasks)
        config = self._config()
        if config.method != "online":
            raise DataError("partial_fit is online; this model has method='batch'.")
        self._check_pool(tasks.pool)
        if isinstance(tasks, TaskSet) and len(tasks) == 0:
            raise DataError("there are no tasks to learn from.")
        prepared = PreparedSamples(tasks.pool, self.preparation_, tasks.class_ids)
        source = TaskSource(tasks.pool, tasks, self.random_state_)
        if source.n_tasks is None:
            raise DataError("partial_fit needs a task set or a stream with an end.")
        states = []
        for state in self.states_:
            fit = Fit(source, tasks[:1], prepared, config, state)
            for t in range(source.steps_per_pass(fit.batch_size) or 0):
                fit.learn(fit.mini_batch(t))
            states.append(replace(fit.state, best=fit.state.themes))
        factors = self.factors_  # distances stay in the same unit
        self._set_states(states)
        self.factors_ = factors
        return self

    def check_settings(self) -> None:
        """Raise an error unless the settings can work, whatever the tasks."""
        self._config()

    def _config(self) -> FitConfig:
        config = FitConfig(
            **{f.name: python_number(getattr(self, f.name)) for f in fields(FitConfig)}
        )
        check_whole(self.n_restarts, "n_restarts", 1, _MOST_RESTARTS)
        check_whole(self.n_held_out, "n_held_out", 1)
        check_whole(self.ensemble, "ensemble", 1, _MOST_RESTARTS)
        if self.random_state is not None:
            check_seed(self.random_state, "random_state")
        check_prepare(self.prepare)
        return config

    def _set_states(self, states: list[FitState]) -> None:
        self.states_ = states
        self.members_: list[Themes] = [state.best for state in states]
        best, stats = states[0].best, states[0].stats
        self.mu_, self.Sigma_ = np.asarray(best.mu), np.asarray(best.Sigma)
        self.alpha_ = np.asarray(best.alpha)
        self.theme_usage_ = np.asarray(stats.N_k / stats.samples)
        n, L = len(states), len(self.alpha_)
        names = [f"{TASK_THEMES}_{i + 1}" for i in range(n)] if n > 1 else [TASK_THEMES]
        self.factors_ = tuple(Factor(name, "dirichlet", L, 1 / n) for name in names)

    def _evaluate(self, held_out: TaskSet, source: TaskSource, prepared: PreparedSamples) -> None:
        part, several = held_out[:_HEALTH_TASKS], len(self.members_) > 1
        learned = source.batch(0, _HEALTH_TASKS if several else _USUAL_TASKS)
        learned = learned[np.flatnonzero((learned.classes >= 0).any(axis=1))]
        seen, known = self._embed(part, prepared), self._embed(learned, prepared)
        agreement = None
        if several and len(part) > 2:
            agreement = float(member_agreement(seen, known).mean())
        if several:
            self.factors_ = tuple(
                replace(f, scale=float(mean_distance(*2 * [known.factor(f.name)]).mean()) or 1.0)
                for f in self.factors_
            )
        stats = self.states_[0].stats
        classes = np.asarray(stats.w / stats.classes)
        self.health_: Health = check_health(
            self.members_[0], self.theme_usage_, classes, seen.lam[0], self.held_out_, agreement
        )
        parts = [seen.elbo, known.elbo]
        # tasks of a few held-out classes are much like each other, so both say what is usual
        self.elbo_reference_ = usual(
            parts if len(part) >= _EVALUATED_AT_LEAST else [np.concatenate(parts)]
        )
        for advice in self.health_.advice:
            warnings.warn(advice, HealthWarning, stacklevel=3)

    # -- using ----------------------------------------------------------------------------------

    def _embed(self, tasks: TaskSet, prepared: PreparedSamples) -> Embeddings:
        result = embed(self.members_, tasks, prepared, literal=self.update == "paper")
        return Embeddings.of(
            tasks, np.concatenate(list(result.lam), axis=1), self.factors_, model=self.fingerprint_,
            elbo=result.elbo.mean(axis=0), delta=float(self.delta),
        )  # fmt: skip

    def _learned(self) -> list[Any]:
        return [part for t in self.members_ for part in (t.mu, t.Sigma, t.alpha, t.delta)]

    def _own_to_disk(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays: dict[str, np.ndarray] = {}
        for i, state in enumerate(self.states_):
            arrays |= arrays_of(state, f"member{i}")
        return arrays, {
            "members": len(self.states_),
            "elbo_history": self.elbo_history_.tolist(),
            "held_out": self.held_out_,
            "health": self.health_.to_dict(),
        }

    def _own_from_disk(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        self._config()
        members = range(header["members"])
        self._set_states([state_from_arrays(arrays, f"member{i}") for i in members])
        self.elbo_history_ = np.array(header["elbo_history"], dtype=np.float64)
        self.held_out_ = str(header["held_out"])
        self.health_ = from_plain(Health, header["health"])


def _check_validation(validation: TaskSet, pool: ClassPool) -> None:
    check_kind(validation, TaskSet, "validation", "Make one with sample_tasks.")
    if len(validation) == 0:
        raise DataError("validation has no tasks.")
    if validation.pool is not pool and validation.pool.fingerprint != pool.fingerprint:
        raise DataError(
            f"validation tasks are over {validation.pool!r}, the others over {pool!r}. Make both "
            "from one pool, each with its own split."
        )
