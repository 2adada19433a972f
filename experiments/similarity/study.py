"""What a study of similarity is about: the tasks of a split, their accuracy, how hard they are.

And how well a number for each task tells its accuracy, beyond difficulty, and how surely.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt16

from experiments.lab import Store, accuracy_of, count_right
from experiments.recipes import LEARNER_PRESETS, PIXEL_COMPONENTS, nearest_centroid, train_and_test
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.pools.cache import cache_key
from taskscape.similarity import TaskHardness
from taskscape.statistics import (
    Resamples,
    make_resamples,
    noise_ceiling,
    partial_spearman,
    spearman,
)
from taskscape.study.represent import difficulty
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.themes.prepare import PrepareConfig, choose_config, prepared_pool

__all__ = [
    "CONTROLS",
    "AccuracyTarget",
    "Measured",
    "SimilarityStudy",
    "Sizes",
    "association",
    "measured_accuracies",
    "measured_difficulty",
]

CONTROLS = ("separation", "smallest separation", "hardness", "nearest centroid")
"""Measures of a task's own difficulty, in the order in which they are controlled for."""
_MOST_TO_ENUMERATE = 20_000
_OTHER_DRAWS = 1 << 16
"""Draws of samples that no learner is evaluated on."""


@dataclass(frozen=True)
class Sizes:
    """How many tasks of each kind; ``few`` is for measures that cost much per pair of tasks."""

    tasks: int | None = None
    """Of the split; None: every combination of classes, or 5,000 if they are more than 20,000."""
    fit_tasks: int = 20_000
    reference: int = 10_000
    """Training tasks that distances are measured to."""
    few_tasks: int = 2_000
    few_reference: int = 500
    learner_tasks: int = 10_000
    episodes: int = 20
    probe_updates: int = 2_000

    @staticmethod
    def scaled(scale: float) -> "Sizes":
        """Smaller sizes, none of them below what still tells something."""

        def of(full: int, least: int) -> int:
            return min(full, max(least, round(scale * full)))

        whole = Sizes()
        return Sizes(
            tasks=None if scale >= 1 else of(10_000, 1_000),
            fit_tasks=of(whole.fit_tasks, 4_000),
            reference=of(whole.reference, 2_000),
            few_tasks=of(whole.few_tasks, 500),
            few_reference=of(whole.few_reference, 200),
            learner_tasks=of(whole.learner_tasks, 2_000),
            probe_updates=of(whole.probe_updates, 500),
        )


@dataclass(frozen=True)
class SimilarityStudy:
    """The tasks of one split of a pool, whose accuracy is to be predicted."""

    pool: ClassPool
    """The samples as they came."""
    split: str = "test"
    sizes: Sizes = Sizes()
    n_way: int = 5
    n_query: int = 15
    fit_way: tuple[int, int] = (5, 10)
    embed_shot: int = 16
    """Labelled samples per class that tasks are embedded from."""
    network: str = "mlp"
    """What learns: ``"mlp"`` on features or principal components, ``"conv4"`` on images."""

    def identity(self) -> dict[str, Any]:
        """What of the study enters the identity of its cells."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            **plain,
            "pool": {"name": self.pool.name, "fingerprint": self.pool.fingerprint},
            "sizes": asdict(self.sizes),
            "fit_way": list(self.fit_way),
        }

    @cached_property
    def tasks(self) -> TaskSet:
        """The tasks of the split, each a different set of classes, as they are embedded."""
        n = self.sizes.tasks
        possible = math.comb(len(self.prepared.classes_in(self.split)), self.n_way)
        tasks = sample_tasks(
            self.prepared, "all" if possible <= _MOST_TO_ENUMERATE else n or 5_000, unique=True,
            split=self.split, seed=2, n_way=self.n_way, n_shot=self.embed_shot,
        )  # fmt: skip
        if n is None or n >= len(tasks):
            return tasks
        return tasks[np.sort(np.random.default_rng(2).permutation(len(tasks))[:n])]

    @cached_property
    def few(self) -> Int[np.ndarray, "few"]:
        """The tasks that costly measures are computed for."""
        n = min(self.sizes.few_tasks, len(self.tasks))
        return np.sort(np.random.default_rng(3).permutation(len(self.tasks))[:n])

    @cached_property
    def prepared(self) -> ClassPool:
        """The pool with its samples prepared once, as the default preparation does."""
        return prepared_pool(self.pool, choose_config(self.pool, self.pool.classes_in("train")))

    def fit_tasks(self, seed: int) -> TaskSet:
        """Training tasks to fit a model on."""
        return sample_tasks(
            self.prepared, self.sizes.fit_tasks, n_way=self.fit_way, n_shot=self.embed_shot,
            split="train", seed=1000 + seed,
        )  # fmt: skip

    def reference(self, seed: int) -> TaskSet:
        """Training tasks to measure distances to, of as many classes as the tasks of the split."""
        return sample_tasks(
            self.prepared, self.sizes.reference, n_way=self.n_way, n_shot=self.embed_shot,
            split="train", seed=2000 + seed,
        )  # fmt: skip

    # -- what is measured -----------------------------------------------------------------------

    @cached_property
    def learning_pool(self) -> ClassPool:
        """What the learners see: images, or feature vectors of unit length."""
        if self.network == "conv4":
            if not self.pool.is_images:
                raise DataError(f"network='conv4' is for images; {self.pool.name!r} has features.")
            return self.pool
        if self.pool.is_images:
            return prepared_pool(self.pool, PrepareConfig(pca=PIXEL_COMPONENTS), unit_length=True)
        return prepared_pool(self.pool, PrepareConfig(l2=True, centre=False, pca=None))

    def settings(self, learner: str) -> dict[str, Any]:
        """How a learner is set for the kind of samples that it sees."""
        kind = "components" if self.pool.is_images else "features"
        kind = "images" if self.network == "conv4" else kind
        return dict(LEARNER_PRESETS[f"similarity {kind}"].get(learner, {}))

    def asked(self) -> TaskSet:
        """The tasks as learners meet them, with one labelled sample per class."""
        return replace(self.tasks, pool=self.learning_pool).with_samples(1, self.n_query)

    def difficulty(self) -> Float[np.ndarray, "tasks 4"]:
        """What :data:`CONTROLS` names; more is harder.

        Nearest centroids see what learners see, on other draws of samples; the others look at
        prepared features.
        """
        hard = TaskHardness(prepare=None).fit(self.tasks).embed(self.tasks)[:, 0]
        other = self.asked().redrawn(_OTHER_DRAWS)
        right = nearest_centroid(other, self.sizes.episodes).accuracy_by_episode.astype(np.float64)
        apart = difficulty(self.prepared, self.tasks)
        return np.concatenate([apart, np.stack([hard, -right.mean(axis=1)], axis=1)], axis=1)


class Measured(NamedTuple):
    """What a study measures before anything is compared with it."""

    accuracies: dict[str, dict[int, Float[np.ndarray, "tasks episodes"]]]
    """By learner and seed of its training."""
    difficulty: Float[np.ndarray, "tasks 4"]


def measured_accuracies(
    store: Store, study: SimilarityStudy, name: str, seeds: Sequence[int]
) -> dict[int, Float[np.ndarray, "tasks episodes"]]:
    """Accuracy of a learner on each task in each episode, 1-shot, for each seed of its training.

    Kept beside the ledger, as counts of right answers; seeds that were measured before, with the
    same data and settings, are read.
    """
    about = _key(study, study.settings(name))
    files = {s: f"accuracy-{study.split}-{name}-{s}-{about}" for s in seeds}
    missing = [s for s, file in files.items() if not store.has_arrays(file)]
    for seed, right in (_right(study, name, missing) if missing else {}).items():
        store.keep(files[seed], right=right)

    def read(seed: int) -> Float[np.ndarray, "tasks blocks"]:
        kept = store.arrays(files[seed], lambda: {"right": _right(study, name, [seed])[seed]})
        return accuracy_of(kept["right"], study.n_way * study.n_query, study.sizes.episodes)

    return {seed: read(seed) for seed in seeds}


def measured_difficulty(store: Store, study: SimilarityStudy) -> Float[np.ndarray, "tasks 4"]:
    """How hard each task is (:meth:`SimilarityStudy.difficulty`), kept beside the ledger."""
    kept = store.arrays(
        f"difficulty-{study.split}-{_key(study)}",
        lambda: {"difficulty": study.difficulty().astype(np.float32)},
    )
    return kept["difficulty"].astype(np.float64)


def _key(study: SimilarityStudy, *more: Any) -> str:
    """Tells apart what is measured; how many tasks distances look at has no part in it."""
    sizes = [study.sizes.tasks, study.sizes.episodes, study.sizes.learner_tasks]
    return cache_key(study.identity() | {"sizes": sizes}, *more)[:8]


def _right(
    study: SimilarityStudy, name: str, seeds: Sequence[int]
) -> dict[int, UInt16[np.ndarray, "tasks blocks"]]:
    """How many queries learners answer rightly; those of all seeds are trained side by side."""
    training = [
        sample_tasks(
            study.learning_pool, study.sizes.learner_tasks, n_way=study.n_way, n_shot=1,
            n_query=study.n_query, split="train", seed=3000 + s,
        )
        for s in seeds
    ]  # fmt: skip
    every = train_and_test(
        name, study.settings(name), training, study.asked(), seeds=seeds,
        episodes=study.sizes.episodes, scale=1.0,
    )  # fmt: skip
    queries = study.n_way * study.n_query
    return {
        s: count_right(e.accuracy_by_episode, queries) for s, e in zip(seeds, every, strict=True)
    }


# -- what is said of a number for each task ------------------------------------------------------

_GIVEN = {"spearman": 0, "partial": 1, "partial_more": 3, "partial_all": 4}
"""By name, how many of the measures of difficulty a rank correlation is given."""


@dataclass(frozen=True, eq=False)
class AccuracyTarget:
    """Measured accuracies of tasks, with what is controlled for and what is left out in turn."""

    accuracy: Float[np.ndarray, "tasks"]
    difficulty: Float[np.ndarray, "tasks controls"]
    resamples: Resamples
    ceiling: float
    n_classes: int

    @staticmethod
    def of(
        accuracies: Float[np.ndarray, "tasks episodes"],
        difficulty: Float[np.ndarray, "tasks controls"],
        classes: Int[np.ndarray, "tasks way"],
    ) -> "AccuracyTarget":
        """Tasks with their classes, so that intervals leave out classes."""
        accuracy = accuracies.mean(axis=1)
        resamples = make_resamples(classes.astype(np.int64), len(classes))
        return AccuracyTarget(
            accuracy,
            difficulty,
            resamples,
            noise_ceiling(accuracies)[1],
            len(np.unique(classes[classes >= 0])),
        )


def association(x: Float[np.ndarray, "tasks"], target: AccuracyTarget) -> dict[str, Any]:
    """Rank correlation of ``x`` with accuracy, alone and given difficulty, with 95 % intervals.

    ``partial`` is given the first measure of difficulty, ``partial_more`` the first three,
    ``partial_all`` all four.
    """
    y, given = target.accuracy, target.difficulty

    def rho(rows: Int[np.ndarray, "_"], n: int) -> float:
        return partial_spearman(x[rows], y[rows], given[rows, :n])

    rhos = {
        name: target.resamples.interval(partial(rho, n=n), correlation=True)
        for name, n in _GIVEN.items()
    }
    return {
        **{name: [_number(v) for v in (r.value, r.low, r.high)] for name, r in rhos.items()},
        "with_difficulty": _number(spearman(x, target.difficulty[:, 0])),
        "ceiling": round(target.ceiling, 4),
        "mean_accuracy": round(float(target.accuracy.mean()), 4),
        "n_tasks": len(x),
        "n_classes": target.n_classes,
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 4)
