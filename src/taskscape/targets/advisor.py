"""What is known of a pool of sources, to be asked about one target after another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.meta import Evaluation, TrainConfig, evaluate_many, learner_and_training, train_many
from taskscape.pools import ClassPool
from taskscape.recipes import LEARNER_PRESETS, network_for, prepared_pool, without_advice
from taskscape.similarity import Similarity, make_similarity
from taskscape.similarity.known import TASK_THEMES
from taskscape.similarity.task_themes import ThemeSimilarity
from taskscape.targets.target import Target, find_target
from taskscape.targets.ways import choose
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.themes.estimator import TaskThemes
from taskscape.themes.prepare import Preparation, PrepareConfig, learn_preparation

__all__ = ["AdvisorSettings", "Outlook", "Sources", "learner_settings"]

_FAR = 8.0
"""Spreads below the usual bound at which a model does not explain a target."""


@dataclass(frozen=True)
class AdvisorSettings:
    """How a pool is looked at, and how learners are tried."""

    candidates: int = 2000
    """Training tasks to choose from, drawn within groups, as many of each."""
    n_way: int = 5
    n_shot: int = 5
    n_query: int = 15
    """Most queries of a class."""
    image_themes: int = 16
    task_themes: int = 8
    ensemble: int = 1
    components: int = 64
    """Principal components that learners take, at unit length; 0: the samples themselves."""
    updates: int = 400
    """Of every training, whatever it is trained on."""
    batch_size: int = 4
    precision: str = "float32"
    seed: int = 0

    def target_sizes(self) -> dict[str, Any]:
        """What :func:`find_target` makes of a target."""
        return {
            "n_way": self.n_way, "n_shot": self.n_shot, "n_query": self.n_query,
            "seed": self.seed,
        }  # fmt: skip


def learner_settings(learner: str, pool: ClassPool) -> Mapping[str, Any]:
    """The settings of a learner that were chosen for such samples."""
    kind = "images" if pool.is_images else "components"
    return LEARNER_PRESETS[f"similarity {kind}"].get(learner, {})


@dataclass(frozen=True, eq=False)
class Sources:
    """Candidate training tasks of a pool, and notions of similarity fitted to them."""

    settings: AdvisorSettings
    tasks: TaskSet
    """The candidates, with queries."""
    features: ClassPool
    """The pool as learners take it."""
    preparation: Preparation | None
    similarities: Mapping[str, Similarity]
    embedded: Mapping[str, Float[np.ndarray, "..."]]

    @staticmethod
    def of(
        pool: ClassPool,
        settings: AdvisorSettings,
        similarities: Mapping[str, Similarity] | None = None,
        model: TaskThemes | None = None,
    ) -> "Sources":
        """Draw candidates of the training classes and fit to them.

        A ``model`` of task-themes that is fitted already is taken as it is.
        """
        if pool.splits is not None:
            pool = pool.split("train")
        s = settings
        n_query = max(1, min(s.n_query, int(pool.counts.min()) - s.n_shot))
        tasks = sample_tasks(
            pool, s.candidates, n_way=s.n_way, n_shot=s.n_shot, n_query=n_query,
            within_group=pool.groups is not None, seed=s.seed,
        )  # fmt: skip
        if similarities is None:
            themes = model or TaskThemes(
                s.task_themes, s.image_themes, n_restarts=s.ensemble, ensemble=s.ensemble,
                random_state=s.seed,
            )  # fmt: skip
            similarities = {
                TASK_THEMES: ThemeSimilarity(themes),
                "prototypes": make_similarity("prototypes", seed=s.seed),
            }
        with without_advice():
            fitted = {
                name: notion if model is not None and name == TASK_THEMES else notion.fit(tasks)
                for name, notion in similarities.items()
            }
            embedded = {name: notion.embed(tasks) for name, notion in fitted.items()}
        preparation = None
        if s.components:
            config = PrepareConfig(pca=min(s.components, int(np.prod(pool.sample_shape))))
            preparation = learn_preparation(pool, np.arange(len(pool)), config)
        features = _as_learners_take(pool, preparation)
        return Sources(s, tasks, features, preparation, fitted, embedded)

    @property
    def pool(self) -> ClassPool:
        """The classes that the candidates are drawn from."""
        return self.tasks.pool

    @cached_property
    def group_of(self) -> tuple[str, ...]:
        """The group of every candidate, or the pool's name where it has no groups."""
        groups = self.pool.groups
        if groups is None:
            return (self.pool.name,) * len(self.tasks)
        return tuple(groups[c] for c in self.tasks.classes[:, 0])

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that candidates are from."""
        return tuple(dict.fromkeys(sorted(self.group_of)))

    def target(self, what: Any, pool: ClassPool | None = None) -> Target:
        """The target that is meant; groups are those of ``pool``, by default of the sources."""
        return find_target(what, pool or self.pool, **self.settings.target_sizes())

    def look_at(self, target: Target) -> "Outlook":
        """How far the target is from everything, before anything is trained."""
        distances, bound = {}, None
        with without_advice():
            for name, notion in self.similarities.items():
                if isinstance(notion, ThemeSimilarity) and isinstance(notion.model, TaskThemes):
                    posterior = notion.model.embed(target.tasks)
                    own: Any = posterior.lam.swapaxes(0, 1)
                    if name == TASK_THEMES:
                        bound = float(np.median(posterior.elbo[0]))
                    own = own if own.shape[1] > 1 else own[:, 0]
                else:
                    own = notion.embed(target.tasks)
                distances[name] = notion.distances(own, self.embedded[name]).matrix()
        return Outlook(self, target, distances, bound)

    def train_and_test(
        self,
        learner: str,
        lists: Sequence[Int[np.ndarray, "_"]],
        seeds: Sequence[int],
        tests: Sequence[TaskSet],
    ) -> list[list[Evaluation]]:
        """A learner trained on each list of candidates, side by side, and tested on each test."""
        settings = learner_settings(learner, self.features)
        kind, config = learner_and_training(learner, settings)
        s, candidates = self.settings, replace(self.tasks, pool=self.features)
        trained = train_many(
            kind,
            network_for(self.features, settings),
            [candidates[rows] for rows in lists],
            TrainConfig(
                updates=s.updates, batch_size=s.batch_size, precision=s.precision, **config
            ),
            seeds=list(seeds),
            n_way=max(s.n_way, *(t.max_way for t in tests)),
        )
        return [evaluate_many(kind, trained.state, self.as_learners_take(t)) for t in tests]

    def as_learners_take(self, tasks: TaskSet) -> TaskSet:
        """Tasks of a target over samples in the form that learners take."""
        return replace(tasks, pool=_as_learners_take(tasks.pool, self.preparation))


@dataclass(frozen=True, eq=False)
class Outlook:
    """A target as seen from the sources: distances, and how well the task-themes explain it."""

    sources: Sources
    target: Target
    distances: Mapping[str, Float[np.ndarray, "tests trains"]]
    """By notion of similarity, from the target's tasks to all candidates."""
    bound: float | None
    """The median bound of the target's tasks in nats per sample; None without task-themes."""

    def by_source(self, notion: str) -> dict[str, float]:
        """Mean distance to the candidates of every group, the nearest first."""
        means = self.distances[notion].mean(axis=0)
        of = np.asarray(self.sources.group_of)
        by = {group: float(means[of == group].mean()) for group in self.sources.groups}
        return dict(sorted(by.items(), key=lambda item: item[1]))

    @property
    def gap(self) -> float | None:
        """How many spreads of the usual bound the target lies below it; more is worse."""
        if self.bound is None:
            return None
        notion = self.sources.similarities[TASK_THEMES]
        assert isinstance(notion, ThemeSimilarity)
        usual, spread = notion.model.elbo_reference_
        return (usual - self.bound) / spread

    @property
    def explained(self) -> bool:
        """Whether the task-themes know anything like the target."""
        return self.gap is None or self.gap < _FAR

    def choose(self, way: str, n: int, seed: int) -> Int[np.ndarray, "n"]:
        """The candidates that a way chooses; task-themes that do not explain it are left out."""
        asked = way, n, seed
        if asked not in self._chosen:
            ranked = [name for name in self.ranked if self.explained or name != TASK_THEMES]
            self._chosen[asked] = choose(way, self.distances, n, seed=seed, ranked=ranked)
        return self._chosen[asked]

    @cached_property
    def _chosen(self) -> dict[tuple[str, int, int], Int[np.ndarray, "_"]]:
        return {}

    @property
    def ranked(self) -> tuple[str, ...]:
        """The notions whose ranks are averaged: the task-themes and the prototypes."""
        usual = [name for name in (TASK_THEMES, "prototypes") if name in self.distances]
        return tuple(usual or self.distances)


def _as_learners_take(pool: ClassPool, preparation: Preparation | None) -> ClassPool:
    return pool if preparation is None else prepared_pool(pool, preparation, unit_length=True)
