"""TaskThemes: fit and embed behind one scikit-learn-style estimator."""

import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from taskscape.arguments import Seed, check_flag, check_kind, check_number, check_seed, check_whole
from taskscape.compare import member_agreement
from taskscape.distributed.mesh import all_devices
from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.model import Covariance, Themes
from taskscape.pools import ClassPool
from taskscape.storage import load_arrays, save_arrays
from taskscape.tasks import TaskSet, TaskStream
from taskscape.tasks.taskset import single_class_tasks
from taskscape.themes.config import FitConfig
from taskscape.themes.data import TaskSource, check_enough
from taskscape.themes.embed import embed
from taskscape.themes.health import Health, check_health
from taskscape.themes.loop import Callback, Fit, Restarts, check_no_checkpoint
from taskscape.themes.prepare import PrepareConfig, PreparedSamples, check_prepare, preparation_for
from taskscape.themes.steps import FitState
from taskscape.themes.stored import from_disk, to_disk

Tasks = TaskSet | TaskStream
_HEALTH_TASKS = 2000
_MOST_RESTARTS = 1000
_USUAL_TASKS = 500
_JUDGED_AT_LEAST = 100
"""With fewer tasks to judge by, these alone do not tell what is usual."""
_CLASSES_HELD_OUT = "tasks of held-out classes"
_TASKS_SET_ASIDE = "tasks of the classes learned from (in-sample)"
_VALIDATION = "validation tasks"
FAR_BELOW = 8.0
"""Robust standard deviations below the training tasks at which a task's bound is far outside."""


class HealthWarning(UserWarning):
    """The fit works, but something about the representation needs attention."""


class OutlierTasksWarning(UserWarning):
    """Tasks that the model explains far worse than the tasks it learned from."""


@contextmanager
def without_advice() -> Iterator[None]:
    """Silence the warnings about health and outliers, where results keep the same facts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HealthWarning)
        warnings.simplefilter("ignore", OutlierTasksWarning)
        yield


@dataclass(eq=False, repr=False)
class TaskThemes(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Task-themes of a collection of classification tasks: a continuous LDCC.

    Parameters carry the names of :class:`taskscape.themes.FitConfig`, where each is explained.

    ``prepare``: ``"auto"`` chooses from the data, None takes the samples as they are, or a
    :class:`taskscape.themes.PrepareConfig`. ``n_restarts``: fits from different starts; the best
    by held-out bound is kept, fewer dead or duplicate themes before more; ``ensemble``: how many of
    the best to keep. ``n_held_out``: tasks to judge by, made of a tenth of the classes (whole
    groups where there are some), which are not learned from; with fewer than 30 classes, tasks that
    share their classes with the others (``held_out_`` says which). ``random_state``: the seed that
    shuffles tasks; where a fit starts follows from the classes alone. The same seed, data and
    version give the same result. With None a seed is drawn, and kept as ``random_state_``.

    After ``fit``: ``mu_``, ``Sigma_``, ``alpha_`` (of the best fit), ``members_`` (all kept
    fits), ``elbo_history_`` (tasks seen, held-out nats per sample), ``held_out_`` (on what),
    ``theme_usage_``, ``health_``, ``preparation_``, ``random_state_``, ``n_features_in_``.
    """

    task_themes: int = 4
    image_themes: int = 8
    _: KW_ONLY
    delta: float = 0.5
    covariance: Covariance = "full"
    prepare: PrepareConfig | Literal["auto"] | None = "auto"
    method: Literal["online", "batch"] = "online"
    update: Literal["statistics", "paper"] = "statistics"
    batch_size: int = 256
    tau0: float = 4.0
    tau1: float = 0.7
    tol: float = 3e-4
    max_iter: int = 50
    max_tasks: int | None = None
    max_passes: int = 10
    evaluate_every: int = 10
    patience: int = 5
    min_gain: float = 1e-3
    nu_fraction: float = 1e-3
    kappa: float = 0.02
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
    ) -> "TaskThemes":
        """Learn themes from tasks.

        ``validation`` tasks judge the fit instead of held-out classes. ``callback(info, restart)``
        hears of every step. With ``checkpoint`` the state is written every ``checkpoint_every``
        steps and when interrupted, and ``resume=True`` goes on from there to the same result;
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
            raise DataError("resume=True needs checkpoint, the file to go on from.")
        if resume and self.random_state is None:
            raise DataError(
                "resume=True needs random_state, the seed that the fit began with; with None every "
                "fit draws its own."
            )
        if checkpoint is not None and not resume:
            check_no_checkpoint(checkpoint)
        tasks = _as_tasks(tasks)
        drawn = int(np.random.SeedSequence().generate_state(1)[0])
        seed = drawn if self.random_state is None else int(self.random_state)
        source, held_out, judged_on = self._source(tasks, validation, config, seed)
        classes = np.setdiff1d(tasks.class_ids, list(source.held_out))
        preparation = preparation_for(self.prepare, tasks.pool, classes)
        every = np.union1d(classes, held_out.class_ids)
        prepared = PreparedSamples(tasks.pool, preparation, every)
        finished = Restarts(
            self.get_params(), config, source, held_out, prepared,
            checkpoint, checkpoint_every, callback, all_devices() if distributed else None,
        ).run(resume)  # fmt: skip
        # few dead and duplicate themes, then a high bound
        finished.sort(key=lambda fit: (int(fit.state.best_flaws), -float(fit.state.best_bound)))
        kept = finished[: self.ensemble]
        self.preparation_, self.held_out_, self.random_state_ = preparation, judged_on, seed
        self._set_states([f.state for f in kept])
        self.fit_info_ = kept[0].history
        looks = [(i.tasks, i.held_out) for i in self.fit_info_ if i.held_out is not None]
        self.elbo_history_ = np.array(looks, dtype=np.float64)
        self.n_features_in_ = int(np.prod(tasks.pool.sample_shape))
        self.pool_fingerprint_, self.pool_name_ = tasks.pool.fingerprint, tasks.pool.name
        self._judge(held_out, source, prepared)
        return self

    def _source(
        self, tasks: Tasks, validation: TaskSet | None, config: FitConfig, seed: int = 0
    ) -> tuple[TaskSource, TaskSet, str]:
        """Tasks to learn from, tasks to judge by, and what these are."""
        if validation is None:
            least = max(config.task_themes, 2)
            source, held_out = TaskSource.of(tasks, seed, int(self.n_held_out), least=least)
            judged_on = _CLASSES_HELD_OUT if source.held_out else _TASKS_SET_ASIDE
        else:
            check_enough(tasks)
            _check_validation(validation, tasks.pool)
            source, held_out = TaskSource(tasks.pool, tasks, seed), validation
            judged_on = _VALIDATION
        if source.n_tasks is None and config.method == "batch":
            raise DataError("a stream without end has no full pass; use method='online'.")
        if source.n_tasks is None and config.max_tasks is None:
            raise DataError("a stream without end needs max_tasks, the number of tasks to use.")
        return source, held_out, judged_on

    def partial_fit(self, tasks: Tasks | Iterable[TaskSet], y: None = None) -> "TaskThemes":
        """Learn from further tasks, one online pass, going on from where the fit stands."""
        tasks = _as_tasks(tasks)
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
        self._set_states(states)
        return self

    def _config(self) -> FitConfig:
        values = {f.name: getattr(self, f.name) for f in fields(FitConfig)}
        config = FitConfig(
            **{k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()}
        )
        check_whole(self.n_restarts, "n_restarts", 1, _MOST_RESTARTS)
        check_whole(self.n_held_out, "n_held_out", 1)
        if check_whole(self.ensemble, "ensemble", 1) > self.n_restarts:
            raise DataError(
                f"ensemble={self.ensemble} of n_restarts={self.n_restarts}: keep at most as many "
                "fits as there are restarts."
            )
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

    def _judge(self, held_out: TaskSet, source: TaskSource, prepared: PreparedSamples) -> None:
        some, several = held_out[:_HEALTH_TASKS], len(self.members_) > 1
        learned = source.batch(0, _HEALTH_TASKS if several else _USUAL_TASKS)
        learned = learned[np.flatnonzero((learned.classes >= 0).any(axis=1))]
        seen, known = self._posteriors(some, prepared), self._posteriors(learned, prepared)
        agreement = None
        if several and len(some) > 2:
            agreement = float(member_agreement(seen.lam, known.lam).mean())
        stats = self.states_[0].stats
        classes = np.asarray(stats.w / stats.classes)
        self.health_: Health = check_health(
            self.members_[0], self.theme_usage_, classes, seen.lam[0], self.held_out_, agreement
        )
        self.elbo_reference_ = _usual(seen.elbo[0], known.elbo[0])
        for advice in self.health_.advice:
            warnings.warn(advice, HealthWarning, stacklevel=3)

    # -- using ----------------------------------------------------------------------------------

    def embed(self, tasks: TaskSet, *, tol: float = 1e-6, keep_gamma: bool = False) -> Embeddings:
        """The posterior of each task under every kept fit, with its bound and sweeps."""
        check_is_fitted(self, "states_")
        check_kind(tasks, TaskSet, "tasks", "Make one with sample_tasks.")
        check_number(tol, "tol", 0, open_="low")
        check_flag(keep_gamma, "keep_gamma")
        self._check_pool(tasks.pool)
        if len(tasks) == 0:
            raise DataError("there are no tasks to embed.")
        prepared = PreparedSamples(tasks.pool, self.preparation_, tasks.class_ids)
        embedded = self._posteriors(tasks, prepared, tol, keep_gamma)
        self.warn_of_outliers(embedded)
        return embedded

    def _posteriors(
        self,
        tasks: TaskSet,
        prepared: PreparedSamples,
        tol: float = 1e-6,
        keep_gamma: bool = False,
    ) -> Embeddings:
        return embed(
            self.members_, tasks, prepared, tol=tol, keep_gamma=keep_gamma,
            literal=self.update == "paper", model=self.fingerprint_, delta=float(self.delta),
        )  # fmt: skip

    def get_feature_names_out(self, input_features: None = None) -> np.ndarray:
        """The names of the columns of :meth:`transform`, for pipelines and tables."""
        check_is_fitted(self, "states_")
        return np.array([f"task_theme_{i}" for i in range(len(self.alpha_))], dtype=object)

    def set_output(
        self, *, transform: Literal["default", "pandas", "polars"] | None = None
    ) -> "TaskThemes":
        """What :meth:`transform` returns: an array, or a table with named columns."""
        if transform not in (None, "default") and self.ensemble > 1:
            raise DataError(
                f"transform={transform!r}: an ensemble of {self.ensemble} has λ of shape (members, "
                "tasks, task-themes), which is no table. Use ensemble=1 or transform='default'."
            )
        super().set_output(transform=transform)
        return self

    def transform(
        self, tasks: TaskSet
    ) -> Float[np.ndarray, "tasks L"] | Float[np.ndarray, "members tasks L"]:
        """Dirichlet concentrations λ of each task; (member, task, L) for an ensemble."""
        lam = self.embed(tasks).lam
        return lam[0] if len(lam) == 1 else lam

    def class_weights(
        self, pool: ClassPool, *, n_shot: int = 20
    ) -> Float[np.ndarray, "classes L"] | Float[np.ndarray, "members classes L"]:
        r"""How much each class of a pool belongs to each task-theme: η, in rows that sum to one.

        .. math:: \eta = \lambda - \delta

        for a task of the class alone, known by up to ``n_shot`` of its samples. An ensemble gives
        (member, class, L).
        """
        check_is_fitted(self, "states_")
        check_kind(pool, ClassPool, "pool", "Open one with load_pool.")
        self._check_pool(pool)
        check_whole(n_shot, "n_shot", 1)
        alone = single_class_tasks(pool, np.arange(len(pool)), n_shot)
        prepared = PreparedSamples(pool, self.preparation_, alone.class_ids)
        eta = self._posteriors(alone, prepared).lam - float(self.delta)
        return eta[0] if len(eta) == 1 else eta

    def score(self, tasks: TaskSet, y: None = None) -> float:
        """The bound in nats per sample, averaged over the kept fits."""
        elbo = self.embed(tasks).elbo
        n_samples = np.concatenate([b.support_mask.sum(axis=(1, 2)) for b in tasks.batches(4096)])
        return float(np.mean([np.average(bound, weights=n_samples) for bound in elbo]))

    def _check_pool(self, pool: ClassPool) -> None:
        dims = int(np.prod(pool.sample_shape))
        if dims != self.n_features_in_:
            raise DataError(
                f"samples of {pool!r} have {dims} dimensions; the model was fitted on "
                f"{self.n_features_in_}. Use the same kind of data, size and encoder."
            )

    def outliers(self, embedded: Embeddings) -> Bool[np.ndarray, "tasks"]:
        """Which embedded tasks the model explains far worse than those it learned from."""
        middle, spread = self.elbo_reference_
        return np.asarray(embedded.elbo[0] < middle - FAR_BELOW * spread)

    def warn_of_outliers(self, embedded: Embeddings, called: str = "tasks") -> None:
        """Warn of embedded tasks, called so, that the model explains far worse than its own."""
        bound, (middle, spread) = embedded.elbo[0], self.elbo_reference_
        far = int(self.outliers(embedded).sum())
        if far:
            warnings.warn(
                f"{far:,} of {len(embedded):,} {called} are explained far worse than the tasks the "
                f"model learned from (nats per sample: down to {bound.min():.2f}, there "
                f"{middle:.2f} ± {spread:.2f}). Their λ may look near while the model knows "
                "nothing like them; do not trust their distances.",
                OutlierTasksWarning,
                stacklevel=3,
            )

    @property
    def fingerprint_(self) -> str:
        """Identifies the fitted model: distances mean something within one model only."""
        check_is_fitted(self, "states_")
        h = hashlib.blake2b(digest_size=16)
        parts = [part for t in self.members_ for part in (t.mu, t.Sigma, t.alpha, t.delta)]
        for part in (*parts, self.preparation_.mean, self.preparation_.components):
            h.update(b"" if part is None else np.asarray(part).tobytes())
        return h.hexdigest()

    # -- disk -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a folder: arrays (safetensors) and a header (JSON)."""
        check_is_fitted(self, "states_")
        save_arrays(path, *to_disk(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "TaskThemes":
        """Read a model written by :meth:`save`."""
        arrays, header = load_arrays(path, "task-theme model")
        try:
            return from_disk(cls, arrays, header)
        except KeyError as error:
            raise DataError(
                f"{os.fspath(path)} cannot be read: {error} is missing: the model is damaged."
            ) from error
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            raise DataError(f"{os.fspath(path)} cannot be read: {error}") from error


def _usual(
    seen: Float[np.ndarray, "tasks"], known: Float[np.ndarray, "others"]
) -> tuple[float, float]:
    """The usual bound and its spread, of tasks that judge the fit and of tasks learned from.

    The lower of both and the wider: tasks of a few held-out classes are much like each other.
    """
    parts = [seen, known] if len(seen) >= _JUDGED_AT_LEAST else [np.concatenate([seen, known])]
    middles = [float(np.median(part)) for part in parts]
    spreads = [
        1.4826 * float(np.median(np.abs(part - middle)))
        for part, middle in zip(parts, middles, strict=True)
    ]
    return min(middles), max(*spreads, 1e-3)


def _as_tasks(tasks: Tasks | Iterable[TaskSet]) -> Tasks:
    if isinstance(tasks, TaskSet | TaskStream):
        return tasks
    listed = isinstance(tasks, Iterable) and not isinstance(tasks, np.ndarray)
    sets: list[Any] = list(tasks) if listed else [tasks]
    for each in sets:
        if not isinstance(each, TaskSet):
            raise DataError(
                f"tasks must be a TaskSet, a TaskStream or several TaskSets, not "
                f"{type(each).__name__}. Make them with sample_tasks."
            )
    return TaskSet.concatenate(sets)


def _check_validation(validation: TaskSet, pool: ClassPool) -> None:
    check_kind(validation, TaskSet, "validation", "Make one with sample_tasks.")
    if len(validation) == 0:
        raise DataError("validation has no tasks.")
    if validation.pool is not pool and validation.pool.fingerprint != pool.fingerprint:
        raise DataError(
            f"validation tasks are over {validation.pool!r}, the others over {pool!r}. Make both "
            "from one pool, each with its own split."
        )
