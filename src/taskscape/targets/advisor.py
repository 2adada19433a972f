"""What is known of a pool of sources, to be asked about one target after another.

Ways to choose training tasks go by a similarity measure, by several, or by chance; they are tried
on a target by learners that are trained on what each chooses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import rankdata

from taskscape.errors import DataError
from taskscape.meta import (
    Evaluation,
    TrainConfig,
    find_learner,
    find_network,
    learner_and_training,
    network_for,
)
from taskscape.pools import ClassPool
from taskscape.select import select
from taskscape.select.known import RANDOM
from taskscape.select.trials import train_and_test
from taskscape.similarity import SIMILARITIES, Similarity, make_similarity
from taskscape.similarity.known import PROTOTYPES, THEMES
from taskscape.similarity.registry import ModelSimilarity
from taskscape.similarity.retrieval import Retrieval, retrieval_if_any
from taskscape.targets.known import HALF, RANKS, AdvisorSettings
from taskscape.targets.target import Target, find_target
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.themes.estimator import TaskThemes
from taskscape.themes.prepare import (
    Preparation,
    PrepareConfig,
    learn_preparation,
    prepared_pool,
)
from taskscape.themes.task_model import without_advice

ALL = "all"
"""Training on every candidate."""
_SOURCE = "source: "


def source_way(group: str) -> str:
    """The name of training on the candidates of one group alone."""
    return f"{_SOURCE}{group}"


def measure_of(way: str) -> str:
    """What a way goes by, and what the distances to sources are by: a measure, or ranks."""
    return RANKS if way in (HALF, RANDOM) else way


def n_near(way: str, n: int) -> int:
    """How many of n tasks a way chooses for being near; the rest, the last ones, are by chance."""
    return {RANDOM: 0, HALF: max(1, n // 2)}.get(way, n)


def mean_ranks(
    matrices: Sequence[Float[np.ndarray, "tests trains"]],
) -> Float[np.ndarray, "tests trains"]:
    """For each task of the target, every candidate's mean rank: no measure rules by its scale.

    As a part of the candidates: those of a rank of 0.1 are among the nearest tenth.
    """
    return np.mean([rankdata(m, axis=1) / m.shape[1] for m in matrices], axis=0)


def training_classes(pool: ClassPool) -> ClassPool:
    """The training classes of a pool, or all of them where it has no splits."""
    return pool if pool.splits is None else pool.split("train")


def draw_candidates(pool: ClassPool, settings: AdvisorSettings) -> TaskSet:
    """Tasks of the pool's training classes, within groups where it has some, with queries."""
    s, training = settings, training_classes(pool)
    n_query = max(1, min(s.n_query, int(training.counts.min()) - s.n_shot))
    return sample_tasks(
        training, s.candidates, n_way=s.n_way, n_shot=s.n_shot, n_query=n_query,
        within_group=training.groups is not None, seed=s.seed,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Sources:
    """Candidate training tasks of a pool, and similarity measures fitted to them."""

    settings: AdvisorSettings
    tasks: TaskSet
    """The candidates, with queries."""
    similarities: Mapping[str, Similarity]
    embedded: Mapping[str, Any]

    @staticmethod
    def of(
        pool: ClassPool,
        settings: AdvisorSettings,
        similarities: Mapping[str, Similarity] | None = None,
        model: TaskThemes | None = None,
    ) -> "Sources":
        """Draw candidates of the training classes and fit to them.

        A ``model`` that is fitted already is taken as it is.
        """
        tasks, usual = draw_candidates(pool, settings), (THEMES, PROTOTYPES)
        if similarities is None:
            similarities = {name: make_similarity(name, seed=settings.seed) for name in usual}
        with without_advice():
            fitted = {
                name: ModelSimilarity(model) if model and name == THEMES else measure.fit(tasks)
                for name, measure in similarities.items()
            }
            embedded = {name: measure.embed(tasks) for name, measure in fitted.items()}
        return Sources(settings, tasks, fitted, embedded)

    @property
    def pool(self) -> ClassPool:
        """The classes that the candidates are drawn from."""
        return self.tasks.pool

    @property
    def ranked(self) -> list[str]:
        """The measures whose ranks are averaged: themes and prototypes, or all there are."""
        usual = [name for name in (THEMES, PROTOTYPES) if name in self.similarities]
        return usual or list(self.similarities)

    @cached_property
    def tests(self) -> dict[str, Retrieval]:
        """How often tasks of unseen classes find their own source, by each measure that is ranked.

        Empty where the sources are too few, or too small, to ask.
        """
        s, pool = self.settings, replace(self.pool, splits=None)
        first, *others = [name for name in self.ranked if name in SIMILARITIES] or [THEMES]
        test = retrieval_if_any(
            pool, first, s.n_way, n_shot=min(s.n_shot, int(pool.counts.min())), baselines=others,
            seed=s.seed,
        )  # fmt: skip
        if test is None or not test.measure.by_group:
            return {}
        return {first: test.measure, **test.baselines}

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
        return tuple(sorted(set(self.group_of)))

    def target(self, what: Any, pool: ClassPool | None = None) -> Target:
        """The target that is meant, in the form of the sources; groups are those of ``pool``."""
        return find_target(what, pool or self.pool, **self.settings.target_sizes())

    def look_at(self, target: Target) -> "Outlook":
        """How far the target is from everything, before anything is trained."""
        if among := target.classes_in(self.pool):
            such_as = self.pool.class_names[among[0]]
            raise DataError(
                f"{len(among)} classes of the sources, such as {such_as!r}, are the target's own: "
                f"what is trained on them has seen {target.name!r}. Draw the sources from a pool "
                "without them, or ask advise, which leaves them out."
            )
        distances, gap, explained = {}, None, True
        with without_advice():
            for name, measure in self.similarities.items():
                own: Any = target.tasks
                if name == THEMES and isinstance(measure, ModelSimilarity):
                    own = measure.embed(own)
                    usual, spread = measure.model.elbo_reference_
                    gap = (usual - float(np.median(own.elbo))) / spread
                    explained = gap < measure.model.far_below
                distances[name] = measure.distances(own, self.embedded[name]).matrix()
        return Outlook(self, target, distances, gap, explained)

    def train_and_test(
        self,
        learner: str,
        lists: Sequence[Int[np.ndarray, "_"]],
        seeds: Sequence[int],
        tests: Sequence[TaskSet],
    ) -> list[list[Evaluation]]:
        """A learner trained on each list of candidates, side by side, and tested on each test."""
        s, features = self.settings, self._as_learners_take(self.pool)
        candidates = replace(self.tasks, pool=features)
        settings = find_learner(learner).start("images" if features.is_images else "components")
        kind, training = learner_and_training(learner, settings)
        return train_and_test(
            kind,
            network_for(features, settings, s.network),
            [candidates[rows] for rows in lists],
            [replace(tasks, pool=self._as_learners_take(tasks.pool)) for tasks in tests],
            TrainConfig(s.updates, s.batch_size, precision=s.precision, **training),
            seeds=seeds,
        )

    def _as_learners_take(self, pool: ClassPool) -> ClassPool:
        """The samples of the sources, or of a target, in the form that learners take."""
        if self._preparation is None:
            return pool
        return prepared_pool(pool, self._preparation, unit_length=True)

    @cached_property
    def _preparation(self) -> Preparation | None:
        network = self.settings.network
        if not self.settings.components or (network and find_network(network).images):
            return None
        most = int(np.prod(self.pool.sample_shape))
        config = PrepareConfig(pca=min(self.settings.components, most))
        return learn_preparation(self.pool, np.arange(len(self.pool)), config)


@dataclass(frozen=True)
class Found:
    """How often a task of unseen classes finds its own source, which decides what is said."""

    by_nearest: float
    """By the nearest task of every source; NaN where that could not be tested."""
    by_mean: float
    """By the mean distance to the tasks of every source."""

    @property
    def nearest(self) -> bool:
        """Whether a source is as far as its nearest task."""
        return self.by_nearest >= self.by_mean

    def __str__(self) -> str:
        ways = [("its nearest task", self.by_nearest), ("the mean over its tasks", self.by_mean)]
        if np.isnan(self.by_mean):
            return f"A source is as far as {ways[1][0]}; the sources are too few to test that."
        (first, best), (second, other) = ways if self.nearest else reversed(ways)
        return (
            f"A source is as far as {first}: that finds the own source of unseen classes in "
            f"{100 * best:.0f} %, {second} in {100 * other:.0f} %."
        )


@dataclass(frozen=True, eq=False)
class Outlook:
    """A target as seen from the sources: distances, and how well the image-themes explain it."""

    sources: Sources
    target: Target
    distances: Mapping[str, Float[np.ndarray, "tests trains"]]
    """By similarity measure, from the target's tasks to all candidates."""
    gap: float | None
    """How many spreads the target's tasks are explained worse than is usual; None without a model.
    """
    explained: bool
    """Whether the image-themes know anything like the target."""

    def by_source(self, way: str) -> dict[str, float]:
        """Distance to every group by what a way goes by, the nearest first.

        To the nearest of its candidates or on average over all: by what finds the own source of
        unseen classes more often.
        """
        apart, of = self._distances_by(way), np.asarray(self.sources.group_of)
        over = np.min if self.finds_by(way).nearest else np.mean
        by = {g: float(over(apart[:, of == g], axis=1).mean()) for g in self.sources.groups}
        return dict(sorted(by.items(), key=lambda item: item[1]))

    def finds_by(self, way: str) -> "Found":
        """How often tasks of the sources find their own by what a way goes by."""
        name, tests = measure_of(way), self.sources.tests
        own = [test for n, test in tests.items() if n == name or name == RANKS]
        return Found(*(float(np.mean([getattr(t, of) for t in own])) if own else np.nan
                       for of in ("at_1", "by_mean")))  # fmt: skip

    def choose(self, way: str, n: int, seed: int) -> Int[np.ndarray, "n"]:
        """The candidates that a way chooses for the tasks of the target, by rule ``coverage``.

        Besides ``WAYS`` and similarity measures there are all candidates, and those of one source.
        """
        if way == ALL:
            return np.arange(len(self.sources.tasks))
        if way.startswith(_SOURCE):
            group = way.removeprefix(_SOURCE)
            return np.flatnonzero(np.asarray(self.sources.group_of) == group)
        by_chance = np.random.default_rng([seed, 7]).permutation(len(self.sources.tasks))
        if way == RANDOM:
            return by_chance[:n]
        near = select(
            None, None, n_near(way, n), "coverage", similarity=self._distances_by(way), seed=seed
        ).indices
        rest = by_chance[~np.isin(by_chance, near)]
        return np.concatenate([near, rest[: n - len(near)]])

    def _distances_by(self, way: str) -> Float[np.ndarray, "tests trains"]:
        """The distances that a way goes by."""
        name = measure_of(way)
        if name != RANKS:
            return self.distances[name]
        return mean_ranks([self.distances[measure] for measure in self._ranked])

    @property
    def _ranked(self) -> list[str]:
        """The measures whose ranks are averaged; themes that explain nothing are left out."""
        ranked = self.sources.ranked
        return [name for name in ranked if self.explained or name != THEMES] or ranked

    def try_ways(
        self, learner: str, asked: Sequence[tuple[str, int, int]], seed: int
    ) -> list["WayTrials"]:
        """Train a learner by each way, with a budget and a number of trials, all side by side.

        Trial t of every way begins with the same weights.
        """
        lists = [[self.choose(way, n, seed + t) for t in range(trials)] for way, n, trials in asked]
        seeds = [seed + t for own in lists for t in range(len(own))]
        queries, folds = self.target.queries, self.target.folds()
        tests = [test for test in (queries, folds) if test is not None]
        evaluated: list[list[Evaluation]] = []
        if tests:
            every = [rows for own in lists for rows in own]
            evaluated = self.sources.train_and_test(learner, every, seeds, tests)
        results, end = [], 0
        for (way, n, trials), own in zip(asked, lists, strict=True):
            part, end = slice(end, end + trials), end + trials
            accuracy = held_out = held_out_accuracy = None
            if queries is not None:
                accuracy = np.stack([e.accuracy for e in evaluated[0][part]])
            if folds is not None:
                held_out = np.array([float(e.log_likelihood.mean()) for e in evaluated[-1][part]])
                held_out_accuracy = np.stack([e.accuracy for e in evaluated[-1][part]])
            results.append(WayTrials(way, n, tuple(own), accuracy, held_out, held_out_accuracy))
        return results


@dataclass(frozen=True, eq=False)
class WayTrials:
    """Trainings on what one way chose, and how they did on the target."""

    way: str
    budget: int
    chosen: tuple[Int[np.ndarray, "_"], ...]
    """The candidates of each training."""
    accuracy: Float[np.ndarray, "trials tasks"] | None
    """On every task of the target with queries; None where it has none."""
    held_out: Float[np.ndarray, "trials"] | None
    """Mean log-likelihood of the labelled samples, each left out in turn."""
    held_out_accuracy: Float[np.ndarray, "trials folds"] | None
    """Their accuracy likewise, on every fold of every task."""


def random_of(trials: Sequence[WayTrials], budget: int) -> WayTrials:
    """The trials of random choice with that budget."""
    return next(t for t in trials if t.way == RANDOM and t.budget == budget)
