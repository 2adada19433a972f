"""Figure 2: accuracy of five learners against the distance of test tasks from training tasks."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from experiments.lab import accuracy_of, count_right
from experiments.paper.plan import VERSIONS, Experiment, Fig2Plan, as_cell
from experiments.recipes import LEARNER_PRESETS, train_and_test
from taskscape.compare import mean_distance, member_agreement
from taskscape.diagram import CorrelationDiagram, correlation_diagram
from taskscape.distributed.engine import map_work
from taskscape.embeddings import Posterior, Sums
from taskscape.embeddings.factors import split_columns
from taskscape.errors import DataError
from taskscape.meta import Evaluation
from taskscape.pools import ClassPool
from taskscape.study.represent import difficulty
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.tasks.sampling import draw_tasks
from taskscape.themes import CoClustering
from taskscape.themes.health import count_points
from taskscape.themes.prepare import choose_config, learn_preparation, unit_length

__all__ = ["LEARNERS", "Fig2"]

LEARNERS = tuple(LEARNER_PRESETS["paper 1-shot"])


class Fig2(Experiment[Fig2Plan]):
    """One of the two correlation diagrams."""

    def run(
        self, stages: Sequence[str], learners: Sequence[str] | None, versions: Sequence[str]
    ) -> None:
        """Train and prepare what the stages ask for and is not there yet."""
        if "train" in stages:
            self.train(learners or LEARNERS)
        if "prepare" in stages:
            self.prepare(versions)

    def tests(self) -> TaskSet:
        """The test tasks, with one labelled sample for each class."""
        return draw_tasks(
            self.pool, self.plan.test_tasks, split="test", n_way=5, n_shot=1,
            n_query=self.plan.n_query, seed=self.seed + 2,
        )  # fmt: skip

    def train(self, learners: Sequence[str]) -> None:
        """The accuracies of all learners that are not there yet.

        Each is trained with several seeds on random tasks, and evaluated on every test task.
        """
        missing = [learner for learner in learners if not self._is_finished(learner)]
        if not missing:
            return
        self.store.check_time()
        pool = self.pool if self.pool.is_images else unit_length(self.pool)
        work = map_work(
            _accuracies, [(n, self._settings(n)) for n in missing],
            shared=(self.plan, pool, replace(self.tests(), pool=pool)), description="learners",
        )  # fmt: skip
        for learner, (every, seconds) in zip(missing, work, strict=True):
            for cell, one in zip(self._accuracy_cells(learner), every, strict=True):
                right = count_right(one.accuracy_by_episode, 5 * self.plan.n_query)
                self.store.keep(self._name(learner, cell["seed"]), right=right)
                self.store.add(cell, {**one.to_dict(), "seconds": seconds})
            if learner != missing[-1]:
                self.store.check_time()

    def prepare(self, versions: Sequence[str]) -> None:
        """The distances of all versions that are not there yet."""
        for version in versions:
            lam = self._lam(version)
            train = self.measured_from(version, finish=True)
            cell = self._cell(version)
            if train is not None and not self.store.finished(cell):
                results = {
                    "health": self.model(version).health_.to_dict(),
                    "measured_from": train.tasks,
                    "mean_distance": float(mean_distance(lam, train).mean()),
                    "distinct": count_points(split_columns(lam.values, lam.factors)[0]),
                }
                self.store.add(cell, results)

    def _lam(self, version: str) -> Posterior:
        """λ of the test tasks, with all their labelled samples."""
        everything = self.tests().with_samples("all")
        where = f"{self.figure}-{self.named(version)}-{self.plan.fit_tasks}-{self.seed}-test"
        return self.embedded(version, everything, f"{where}-{len(everything)}")

    def measured_from(self, version: str, *, finish: bool = False) -> Sums | None:
        """The training tasks that distances are measured from, with all labelled samples.

        Only their means are needed; each piece is kept, so that millions can be embedded in several
        goes. Without ``finish``, what there is so far, or None.
        """
        p, name = self.plan, self.named(version)
        where = f"{self.pool.name}-{name}-{p.fit_tasks}-{self.seed}-train/{p.measured_from}"
        pieces, done = [], 0
        while done < p.measured_from and self.store.has_arrays(f"{where}-{done}"):
            pieces.append(self.store.arrays(f"{where}-{done}", partial(self._piece, version, done)))
            done += int(pieces[-1]["tasks"])
        if finish and done < p.measured_from:
            self.store.check_time()
            starts = range(done, p.measured_from, _piece_size(version))
            work = map_work(
                _summary, [self._tasks_from(start, version) for start in starts],
                shared=(self.model(version),), description="embedding training tasks",
            )  # fmt: skip
            for start, piece in zip(starts, work, strict=True):
                self.store.keep(f"{where}-{start}", **piece)
                pieces.append(piece)
                done += int(piece["tasks"])
                if done < p.measured_from:
                    self.store.check_time()
        if not pieces:
            return None
        first, *rest = (Sums(int(p["tasks"]), p["values"], p["logs"]) for p in pieces)
        return sum(rest, first)

    def _piece(self, version: str, start: int) -> dict[str, np.ndarray]:
        return _summary(self._tasks_from(start, version), self.model(version))

    def _tasks_from(self, start: int, version: str) -> TaskSet:
        """The training tasks of a piece."""
        most = self.plan.measured_from
        tasks = sample_tasks(
            self.pool,
            most,
            n_shot="all",
            split=self.plan.train_split,
            seed=self.seed + 1,
            stream=True,
        )
        return tasks[start : min(start + _piece_size(version), most)]

    def _accuracy_cells(self, learner: str) -> list[dict[str, Any]]:
        settings = self._settings(learner)
        return [
            {"figure": self.figure, "what": "accuracy", "learner": learner, "seed": s,
             "settings": dict(settings), "plan": as_cell(self.plan)}
            for s in self.plan.seeds
        ]  # fmt: skip

    def _is_finished(self, learner: str) -> bool:
        cells = self._accuracy_cells(learner)
        return self.has_accuracy(learner) and all(map(self.store.finished, cells))

    def has_accuracy(self, learner: str) -> bool:
        """Whether all seeds of a learner are finished."""
        return all(self.store.has_arrays(self._name(learner, s)) for s in self.plan.seeds)

    def _cell(self, version: str) -> dict[str, Any]:
        return {
            "figure": self.figure, "what": "distance", "version": version, "seed": self.seed,
            "plan": as_cell(self.plan), "model": {**VERSIONS[version], **self.size(version)},
        }  # fmt: skip

    def _settings(self, learner: str) -> dict[str, Any]:
        preset = "paper images" if self.pool.is_images else "paper 1-shot"
        return dict(LEARNER_PRESETS[preset][learner])

    def _name(self, learner: str, seed: int) -> str:
        p = self.plan
        size = f"{p.learner_tasks}-{p.test_tasks}-{p.episodes}"
        return f"{self.figure}-accuracy/{learner}-{seed}-{size}"

    def agreement(self, version: str, train: Sums) -> Float[np.ndarray, "pairs"]:
        """How well the fits of a version agree about the distances of the test tasks."""
        return member_agreement(self._lam(version), train)

    def diagram(self, learners: Sequence[str], version: str) -> CorrelationDiagram:
        """The diagram of one version, for learners that are finished.

        Its bins hold a tenth of the tasks each: with many task-themes all distances are about
        alike, and most of the paper's bins, of equal width from 0 on, would be empty.
        """
        train = self.measured_from(version)
        if train is None:
            raise DataError(f"no distances of version {version!r} yet; run --only prepare first.")
        return self.diagram_of(
            mean_distance(self._lam(version), train),
            learners,
            f"mean KL divergence to {train.tasks:,} training tasks ({version})",
        )

    def diagram_of(
        self,
        distance: Float[np.ndarray, "tasks"],
        learners: Sequence[str],
        label: str,
        hard: Float[np.ndarray, "tasks columns"] | None = None,
    ) -> CorrelationDiagram:
        """The diagram of a distance of the test tasks, for learners that are finished.

        ``hard`` is how hard the tasks are, by default by the separation of their classes.
        """
        tests = self.tests()
        accuracy = {}
        for learner in learners:
            kept = [self.store.read(self._name(learner, s))["right"] for s in self.plan.seeds]
            seeds = [accuracy_of(r, 5 * self.plan.n_query, self.plan.episodes) for r in kept]
            accuracy[learner] = np.mean(seeds, axis=0)
        if hard is None:
            classes = self.pool.classes_in(self.plan.train_split)
            preparation = learn_preparation(self.pool, classes, choose_config(self.pool, classes))
            hard = difficulty(self.pool, tests, preparation)
        return correlation_diagram(
            distance, accuracy, classes=tests, difficulty=hard, bins="quantile",
            distance_label=label,
        )  # fmt: skip


def _piece_size(version: str) -> int:
    """Training tasks that are embedded and kept at a time.

    The paper's posterior goes through the samples of every task; ours, only once through those of
    every class.
    """
    return 10_000 if version == "literal" else 250_000


def _accuracies(
    asked: tuple[str, dict[str, Any]], plan: Fig2Plan, pool: ClassPool, tests: TaskSet
) -> tuple[list[Evaluation], float]:
    """What a learner makes of the test tasks for each seed, and the seconds that a seed took."""
    learner, settings = asked
    began = time.perf_counter()
    train = [
        sample_tasks(pool, plan.learner_tasks, n_shot=1, n_query=plan.n_query,
                     split=plan.train_split, seed=1000 + s)
        for s in plan.seeds
    ]  # fmt: skip
    every = train_and_test(
        learner, settings, train, tests, seeds=plan.seeds, batch_size=plan.batch_size,
        episodes=plan.episodes,
    )  # fmt: skip
    return every, (time.perf_counter() - began) / len(plan.seeds)


def _summary(tasks: TaskSet, model: CoClustering) -> dict[str, np.ndarray]:
    """What the mean distance to these tasks needs to know of them."""
    sums = Sums.of(model.embed(tasks).posterior)
    return {k: np.asarray(value) for k, value in vars(sums).items()}
