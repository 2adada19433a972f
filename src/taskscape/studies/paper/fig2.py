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
from taskscape.meta import (
    Architecture,
    TrainConfig,
    conv4,
    evaluate_many,
    mlp,
    split_settings,
    train_many,
)
from taskscape.pools import ClassPool
from taskscape.studies.learning import unit_length
from taskscape.studies.paper.plan import SETTINGS, VERSIONS, Fig2Plan, as_cell
from taskscape.studies.paper.store import Store
from taskscape.studies.paper.themes import (
    difficulty,
    embedded,
    fitted,
    measured_from,
    test_tasks,
)
from taskscape.tasks import TaskSet, sample_tasks

__all__ = ["Fig2", "network_for"]

_OMNIGLOT: dict[str, dict[str, Any]] = {
    "protonet": {"learning_rate": 1e-3},
    "maml": {"inner_rate": 0.4, "inner_steps": 3, "learning_rate": 1e-3},
    "abml": {"inner_rate": 0.1, "inner_steps": 3},
    "bmaml": {"inner_rate": 1.0, "inner_steps": 3},
    "vampire": {"inner_rate": 0.1, "inner_steps": 3},
}
"""For `conv4`; only the first two were compared with others on validation alphabets."""


@dataclass(frozen=True)
class Fig2:
    """One of the two correlation diagrams."""

    figure: str
    pool: ClassPool
    plan: Fig2Plan
    seed: int = 0

    def tests(self) -> TaskSet:
        """The test tasks, with one labelled sample for each class."""
        return test_tasks(self.pool, self.plan.test_tasks, self.seed + 2, 5, 1, self.plan.n_query)

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
                found = {"health": model.health_.to_dict(), "measured_from": train.n_tasks}
                found["mean_distance"] = float(mean_kl(lam, train).mean())
                found["distinct"] = len(np.unique(np.round(lam[0], 1), axis=0))
                store.add(cell, found)

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
        chosen, config = split_settings(learner, settings)
        train = [
            sample_tasks(pool, self.plan.learner_tasks, n_shot=1, n_query=self.plan.n_query,
                         split=self.plan.train_split, seed=1000 + s)
            for s in self.plan.seeds
        ]  # fmt: skip
        trained = train_many(
            chosen,
            network_for(pool, settings),
            train,
            TrainConfig.one_pass(self.plan.learner_tasks, self.plan.batch_size, **config),
            seeds=self.plan.seeds,
        )
        tests = replace(self.tests(), pool=pool)
        found = evaluate_many(chosen, trained.state, tests, episodes=self.plan.episodes)
        seconds = (time.perf_counter() - began) / len(cells)
        for cell, seed, one in zip(cells, self.plan.seeds, found, strict=True):
            by_episode = one.accuracy_by_episode.astype(np.float16)
            store.keep(self._name(learner, seed), accuracy=by_episode)
            store.add(cell, {**one.to_dict(), "seconds": seconds})

    def has_accuracy(self, store: Store, learner: str) -> bool:
        """Whether all seeds of a learner are finished."""
        return all(store.has_arrays(self._name(learner, s)) for s in self.plan.seeds)

    def n_measured(self, store: Store, version: str) -> int:
        """How many training tasks the distances of a version are measured from so far."""
        some = measured_from(store, self.pool, self.plan, version, self.seed, finish=False)
        return 0 if some is None else some.n_tasks

    def _cell(self, version: str) -> dict[str, Any]:
        return {
            "figure": self.figure, "what": "distance", "version": version, "seed": self.seed,
            "plan": as_cell(self.plan), "model": dict(VERSIONS[version]),
        }  # fmt: skip

    def _settings(self, learner: str) -> dict[str, Any]:
        return dict(_OMNIGLOT[learner] if self.pool.is_images else SETTINGS[1][learner])

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
        return correlation_diagram(
            distance,
            accuracy,
            classes=tests,
            difficulty=difficulty(self.pool, tests, self.plan.train_split),
            distance_label=f"mean KL divergence to {n_train:,} training tasks ({version})",
        )


def network_for(pool: ClassPool, settings: dict[str, Any]) -> Architecture:
    """`conv4` for images; one hidden layer of 128 units for features, as in the paper."""
    if pool.is_images:
        return conv4(pool.sample_shape, 64)
    return mlp(pool.sample_shape[0], (128,), settings.get("scale", 8.0))
