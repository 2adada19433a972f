"""Figure 2: accuracy of five learners against the distance of test tasks from training tasks."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from taskscape.compare import mean_kl
from taskscape.diagram import CorrelationDiagram, correlation_diagram
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.studies.lab import Store
from taskscape.studies.paper.plan import VERSIONS, Fig2Plan, as_cell
from taskscape.studies.paper.themes import embedded, fitted, measured_from
from taskscape.studies.recipes import (
    LEARNER_PRESETS,
    difficulty,
    draw_tasks,
    train_and_test,
    unit_length,
)
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.themes.prepare import choose_config, learn_preparation

__all__ = ["Fig2"]


@dataclass(frozen=True)
class Fig2:
    """One of the two correlation diagrams."""

    figure: str
    pool: ClassPool
    plan: Fig2Plan
    seed: int = 0

    def tests(self) -> TaskSet:
        """The test tasks, with one labelled sample for each class."""
        return draw_tasks(
            self.pool, self.plan.test_tasks, split="test", n_way=5, n_shot=1,
            n_query=self.plan.n_query, seed=self.seed + 2,
        )  # fmt: skip

    def train(self, store: Store, learners: Sequence[str]) -> None:
        """The accuracies of all learners that are not there yet."""
        for learner in learners:
            self.measure_accuracy(store, learner)

    def prepare(self, store: Store, versions: Sequence[str]) -> None:
        """The distances of all versions that are not there yet."""
        for version in versions:
            lam = self._lam(store, version)
            train = measured_from(store, self.pool, self.plan, version, self.seed)
            cell = self._cell(version)
            if train is not None and not store.finished(cell):
                model = fitted(store, self.pool, self.plan, version, self.seed)
                results = {
                    "health": model.health_.to_dict(),
                    "measured_from": train.n_tasks,
                    "mean_distance": float(mean_kl(lam, train).mean()),
                    "distinct": len(np.unique(np.round(lam[0], 1), axis=0)),
                }
                store.add(cell, results)

    def _lam(self, store: Store, version: str) -> Float[np.ndarray, "members tasks L"]:
        """λ of the test tasks, with all their labelled samples."""
        model = fitted(store, self.pool, self.plan, version, self.seed)
        everything = self.tests().with_samples("all")
        where = f"{self.figure}-{version}-{self.plan.fit_tasks}-{self.seed}-test"
        return embedded(store, model, everything, f"{where}-{len(everything)}")

    def distance(self, store: Store, version: str) -> tuple[Float[np.ndarray, "tasks"], int]:
        """Mean KL from every test task to the training tasks so far, and the number of those."""
        train = measured_from(store, self.pool, self.plan, version, self.seed, finish=False)
        if train is None:
            raise DataError(f"no distances of version {version!r} yet; run --only prepare first.")
        return mean_kl(self._lam(store, version), train), train.n_tasks

    def measure_accuracy(self, store: Store, learner: str) -> None:
        """Train a learner with several seeds on random tasks, and evaluate every test task."""
        settings = self._settings(learner)
        cells = [
            {"figure": self.figure, "what": "accuracy", "learner": learner, "seed": s,
             "settings": dict(settings), "plan": as_cell(self.plan)}
            for s in self.plan.seeds
        ]  # fmt: skip
        if self.has_accuracy(store, learner) and all(map(store.finished, cells)):
            return
        store.check_time()
        began = time.perf_counter()
        pool = self.pool if self.pool.is_images else unit_length(self.pool)
        train = [
            sample_tasks(pool, self.plan.learner_tasks, n_shot=1, n_query=self.plan.n_query,
                         split=self.plan.train_split, seed=1000 + s)
            for s in self.plan.seeds
        ]  # fmt: skip
        every = train_and_test(
            learner, settings, train, replace(self.tests(), pool=pool), seeds=self.plan.seeds,
            batch_size=self.plan.batch_size, scale=8.0, episodes=self.plan.episodes,
        )  # fmt: skip
        seconds = (time.perf_counter() - began) / len(cells)
        for cell, seed, one in zip(cells, self.plan.seeds, every, strict=True):
            by_episode = one.accuracy_by_episode.astype(np.float16)
            store.keep(self._name(learner, seed), accuracy=by_episode)
            store.add(cell, {**one.to_dict(), "seconds": seconds})

    def has_accuracy(self, store: Store, learner: str) -> bool:
        """Whether all seeds of a learner are finished."""
        return all(store.has_arrays(self._name(learner, s)) for s in self.plan.seeds)

    def n_measured(self, store: Store, version: str) -> int:
        """How many training tasks the distances of a version are measured from so far."""
        train = measured_from(store, self.pool, self.plan, version, self.seed, finish=False)
        return 0 if train is None else train.n_tasks

    def _cell(self, version: str) -> dict[str, Any]:
        return {
            "figure": self.figure, "what": "distance", "version": version, "seed": self.seed,
            "plan": as_cell(self.plan), "model": dict(VERSIONS[version]),
        }  # fmt: skip

    def _settings(self, learner: str) -> dict[str, Any]:
        preset = "paper images" if self.pool.is_images else "paper 1-shot"
        return dict(LEARNER_PRESETS[preset][learner])

    def _name(self, learner: str, seed: int) -> str:
        p = self.plan
        size = f"{p.learner_tasks}-{p.test_tasks}-{p.episodes}"
        return f"{self.figure}-accuracy/{learner}-{seed}-{size}"

    def diagram(self, store: Store, learners: Sequence[str], version: str) -> CorrelationDiagram:
        """The diagram of one version, for learners that are finished."""
        tests = self.tests()
        accuracy = {}
        for learner in learners:
            names = [self._name(learner, s) for s in self.plan.seeds]
            seeds = [store.read(n)["accuracy"].astype(np.float64) for n in names]
            accuracy[learner] = np.mean(seeds, axis=0)
        distance, n_train = self.distance(store, version)
        classes = self.pool.classes_in(self.plan.train_split)
        preparation = learn_preparation(self.pool, classes, choose_config(self.pool, classes))
        return correlation_diagram(
            distance,
            accuracy,
            classes=tests,
            difficulty=difficulty(self.pool, tests, preparation),
            distance_label=f"mean KL divergence to {n_train:,} training tasks ({version})",
        )
