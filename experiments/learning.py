"""How well the meta-learners do on a pool: settings tuned on validation classes, then tested.

    python -m experiments learning --pool mini_imagenet --tune --minutes 20 --out found.jsonl

A cell is a learner, its settings and a seed. Test classes are looked at only with the chosen
settings.
"""

import itertools
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments.lab import Lab, option
from experiments.recipes import hold_out, nearest_centroid
from experiments.spread import weight_spread
from taskscape.errors import DataError
from taskscape.meta import (
    BMAML,
    LEARNERS,
    Architecture,
    Evaluation,
    Learner,
    TrainConfig,
    evaluate_many,
    find_learner,
    learner_and_training,
    network_for,
    train_many,
)
from taskscape.meta.gaussian_weights import GaussianLearner
from taskscape.meta.networks import Mlp
from taskscape.pools import ClassPool, load_pool
from taskscape.similarity import Task2VecConfig
from taskscape.similarity.task2vec import probe_network
from taskscape.statistics import class_interval
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.themes.places import all_rows
from taskscape.themes.prepare import choose_config, prepared_pool, unit_length

__all__ = ["LearningSettings", "LearningSizes", "LearningStudy", "measure", "run"]


@dataclass(frozen=True)
class LearningSizes:
    """The tasks, and how many of them."""

    n_way: int = 5
    n_shot: int = 5
    n_query: int = 15
    train_way: int = 5
    train_tasks: int = 10_000
    epochs: int = 1
    batch_size: int = 4
    tune_tasks: int = 10_000
    val_tasks: int = 500
    test_tasks: int | None = option(
        "by default every combination of test classes, or 10,000 where they are more than 20,000",
        None,
    )
    episodes: int = 1
    patience: int | None = None


@dataclass(frozen=True)
class LearningSettings:
    """What to study, and how."""

    pool: str = option("a known data set or a path")
    rotations: bool = option("rotated characters as further classes (omniglot)", False)
    hold_out: int = option("groups of training classes kept for validation", 0)
    learners: tuple[str, ...] = option("", tuple(LEARNERS), commas=True)
    seeds: tuple[int, ...] = option("of the training", (0,))
    tune: bool = option("choose settings on the validation classes first", False)
    tune_by: str = option(
        "the score on validation tasks that chooses",
        "accuracy",
        choices=("accuracy", "log_likelihood"),
    )
    fixed: Mapping[str, Mapping[str, Any]] = option("fix a setting", factory=dict, flag="set")
    grid: Mapping[str, Mapping[str, Any]] = option("values to try, [a, b, …]", factory=dict)
    widths: tuple[int, ...] = option("hidden layers of the mlp", (128,), nargs="*")
    scale: float = option("factor on unit-length features", 8.0)
    power: float | None = option("power of the features before unit length", None)
    pca: int | None = option("principal components of the features, before unit length", None)
    filters: int = option("filters of conv4", 64)
    probe: bool = option(
        "what Task2Vec's probe sees, and looks like: prepared features, three hidden layers", False
    )
    sizes: LearningSizes = LearningSizes()


@dataclass(frozen=True)
class LearningStudy:
    """Everything that decides a result but the learner, its settings and the seed."""

    pool: ClassPool
    network: Architecture
    sizes: LearningSizes = LearningSizes()

    def training(self, seed: int, n_tasks: int) -> TaskSet:
        """The training tasks of a seed."""
        return self._tasks("train", n_tasks, 1000 + seed, self.sizes.train_way)

    def validation(self) -> TaskSet:
        """The validation tasks, the same for all."""
        return self._tasks("val", self.sizes.val_tasks, 1, self.sizes.n_way)

    def testing(self) -> TaskSet:
        """The test tasks, the same for all."""
        s = self.sizes
        if s.test_tasks is not None:
            return self._tasks("test", s.test_tasks, 2, s.n_way)
        possible = math.comb(len(self.pool.classes_in("test")), s.n_way)
        return self._tasks("test", "all" if possible <= 20_000 else 10_000, 2, s.n_way)

    def _tasks(self, split: str, n_tasks: int | str, seed: int, n_way: int) -> TaskSet:
        return sample_tasks(
            self.pool, n_tasks, n_way=n_way, n_shot=self.sizes.n_shot, n_query=self.sizes.n_query,
            split=split, seed=seed,
        )  # fmt: skip

    def fit(
        self, name: str, settings: Mapping[str, Any], seeds: Sequence[int], n_tasks: int
    ) -> tuple[Learner, Any, np.ndarray, float]:
        """Train all seeds side by side: the learner, their states, validation scores, seconds."""
        learner, config = learner_and_training(name, settings)
        network, s = self.network, self.sizes
        if "scale" in settings and isinstance(network, Mlp):
            network = replace(network, scale=settings["scale"])
        began = time.perf_counter()
        trained = train_many(
            learner,
            network,
            [self.training(seed, n_tasks) for seed in seeds],
            TrainConfig.one_pass(n_tasks, s.batch_size, s.epochs, patience=s.patience, **config),
            seeds=seeds,
            n_way=max(s.n_way, s.train_way),
            validation=self.validation(),
        )
        seconds = time.perf_counter() - began
        return learner, trained.state, np.nanmax(trained.scores, axis=1), seconds

    def tune(self, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Validation scores of one candidate, trained with seed 0; NaN if it diverges."""
        try:
            learner, states, _, seconds = self.fit(name, settings, [0], self.sizes.tune_tasks)
        except DataError:
            raise
        except Exception as error:  # a candidate that diverges loses; the study continues
            print(f"  {name} {settings}: {error}", file=sys.stderr)
            nothing = dict.fromkeys(("val_accuracy", "val_log_likelihood"), float("nan"))
            return {**nothing, "train_seconds": 0.0}
        scores = evaluate_many(learner, states, self.validation())[0].to_dict()
        return {f"val_{name}": value for name, value in scores.items()} | {"train_seconds": seconds}

    def test(
        self, name: str, settings: Mapping[str, Any], seeds: Sequence[int]
    ) -> list[dict[str, Any]]:
        """Test results of the chosen settings, one for each seed."""
        learner, states, val, seconds = self.fit(name, settings, seeds, self.sizes.train_tasks)
        began = time.perf_counter()
        tasks = self.testing()
        evaluations = evaluate_many(learner, states, tasks, episodes=self.sizes.episodes)
        each = (time.perf_counter() - began) / len(seeds)
        return [
            {
                **result(evaluation, tasks),
                **spread(learner, jax.tree.map(lambda a, t=t: a[t], states), tasks),
                "val_accuracy": float(val[t]),
                "train_seconds": seconds / len(seeds),
                "test_seconds": each,
            }
            for t, evaluation in enumerate(evaluations)
        ]

    def centroid(self) -> dict[str, Any]:
        """The result of nearest class means."""
        tasks = self.testing()
        return result(nearest_centroid(tasks, self.sizes.episodes), tasks)

    def cell(self) -> dict[str, Any]:
        """What of a study enters the identity of its cells."""
        pool = {"name": self.pool.name, "fingerprint": self.pool.fingerprint}
        return {"pool": pool, "network": self.network.config(), **asdict(self.sizes)}


def result(evaluation: Evaluation, tasks: TaskSet) -> dict[str, Any]:
    """Means over the test tasks with the interval that leaves out classes."""
    around = class_interval(evaluation.accuracy, tasks.classes)
    return {**evaluation.to_dict(), "interval": [around.low, around.high], "test_tasks": len(tasks)}


def spread(learner: Learner, state: Any, tasks: TaskSet) -> dict[str, Any]:
    """Means over tasks of how far a Bayesian learner's weights spread; nothing for the others."""
    if not isinstance(learner, GaussianLearner | BMAML):
        return {}
    by_task = weight_spread(learner, state, tasks)
    return {"spread": {name: float(values.mean()) for name, values in by_task.items()}}


def candidates(
    name: str, fixed: Mapping[str, Any], values: Mapping[str, Sequence[Any]] | None = None
) -> Iterator[dict[str, Any]]:
    """The grid of a learner, changed by ``values``, without the settings that are fixed."""
    grid = {
        k: v for k, v in {**find_learner(name).grid, **(values or {})}.items() if k not in fixed
    }
    for choice in itertools.product(*grid.values()):
        yield {**dict(zip(grid, choice, strict=True)), **fixed}


def with_rotations(pool: ClassPool) -> ClassPool:
    """Characters turned by 90°, 180° and 270° as further classes, but none to test on."""
    classes, parents = {}, []
    for c, name in enumerate(pool.class_names):
        ends = ("", "/rot090", "/rot180", "/rot270")
        for quarter, end in enumerate(ends[:1] if (pool.splits or ())[c] == "test" else ends):
            classes[name + end] = np.rot90(pool.samples_of(c), quarter, axes=(1, 2))
            parents.append(c)
    of_parent = {
        what: [values[c] for c in parents]
        for what, values in (("groups", pool.groups), ("splits", pool.splits))
        if values is not None
    }
    return ClassPool.from_classes(classes, name=pool.name, **of_parent)


def measure(study: LearningStudy, settings: LearningSettings, lab: Lab) -> None:
    """Tune and test the learners, cell by cell, until done or until the time is up."""
    about = study.cell()
    lab.results({"what": "nearest_centroid", **about}, study.centroid)
    for name in settings.learners:
        chosen = dict(settings.fixed.get(name, {}))
        if settings.tune:
            chosen = _tuned(study, settings, lab, name, chosen)
        cells = [
            {"what": "test", "learner": name, "settings": chosen, "seed": s, **about}
            for s in settings.seeds
        ]
        if missing := lab.missing(cells):
            results = study.test(name, chosen, [int(c["seed"]) for c in missing])
            for cell, one in zip(missing, results, strict=True):
                lab.add(cell, one)


def _tuned(
    study: LearningStudy, settings: LearningSettings, lab: Lab, name: str, fixed: dict[str, Any]
) -> dict[str, Any]:
    """The candidate with the best score; those that diverged have none."""
    scores: list[tuple[float, dict[str, Any]]] = []
    for candidate in candidates(name, fixed, settings.grid.get(name)):
        cell = {"what": "tune", "learner": name, "settings": candidate, **study.cell()}
        results = lab.results(cell, partial(study.tune, name, candidate))
        scores.append((results[f"val_{settings.tune_by}"], candidate))
    return max((s for s in scores if s[0] == s[0]), key=lambda s: s[0])[1]


def run(settings: LearningSettings, lab: Lab) -> None:
    """Study what the settings ask for."""
    pool = load_pool(settings.pool)
    if settings.rotations:
        pool = with_rotations(pool)
    if settings.hold_out:
        pool = hold_out(pool, settings.hold_out)
    network: Architecture
    if settings.probe:
        train = pool.classes_in("train")
        pool = prepared_pool(pool, choose_config(pool, train))
        network = probe_network(pool.samples[all_rows(pool, train)], Task2VecConfig().widths)
    else:
        if not pool.is_images:
            pool = unit_length(pool, settings.power, settings.pca)
        network = network_for(
            pool, {}, widths=settings.widths, scale=settings.scale, filters=settings.filters
        )
    measure(LearningStudy(pool, network, settings.sizes), settings, lab)
