"""Figures 3 and 4: what learners make of few training tasks, chosen by a rule or at random."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from experiments.paper.plan import (
    VERSIONS,
    Experiment,
    SelectionPlan,
    as_cell,
    learner_settings,
)
from experiments.recipes import LEARNER_PRESETS, train_and_test
from taskscape.distributed.engine import map_work
from taskscape.embeddings import Posterior
from taskscape.meta import MAML, learner_and_training
from taskscape.pools import ClassPool
from taskscape.select import select
from taskscape.similarity import Task2Vec, Task2VecConfig
from taskscape.statistics import without_each_class
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.tasks.sampling import draw_tasks
from taskscape.themes.prepare import unit_length

__all__ = ["CHOICES", "Choice", "SelectionFigure", "choices_of", "learners_of"]

_USUAL_LEARNERS = {
    "fig3": tuple(LEARNER_PRESETS["paper 5-shot"]),
    "fig4": ("protonet", "maml", "maml-untuned"),
    "fig4-omniglot": ("protonet", "maml"),
}


@dataclass(frozen=True)
class Choice:
    """A way to choose training tasks: a rule, and the similarity measure it goes by."""

    rule: str
    measure: str

    def __str__(self) -> str:
        return self.rule if self.measure == "" else f"{self.rule} ({self.measure})"


CHOICES = (
    Choice("random", ""),
    Choice("nearest", "ours"),
    Choice("coverage", "ours"),
    Choice("classes", "ours"),
    Choice("facility", "ours"),
    Choice("nearest", "sized"),
    Choice("coverage", "sized"),
    Choice("nearest", "task2vec"),
    Choice("nearest", "literal"),
)
"""In the order in which they are run; the paper has the first, and its own version of nearest."""


PROBES: Mapping[str, Mapping[str, float]] = {
    "omniglot": {"inner_rate": 0.1, "learning_rate": 3e-3},
}
"""Where Task2Vec's probe is trained in another way than by default, as validation classes prefer
(experiments/results/learning-probe.jsonl); those of mini-ImageNet prefer the default."""


def probe_of(pool: str) -> Task2VecConfig:
    """Task2Vec's probe, as it was tuned for a pool."""
    learner, training = learner_and_training("maml", PROBES.get(pool, {}))
    assert isinstance(learner, MAML)
    default = Task2VecConfig()
    return replace(default, learner=learner, train=replace(default.train, **training))


def learners_of(figure: str) -> tuple[str, ...]:
    """The learners that have settings for a figure."""
    preset = "paper images" if figure == "fig4-omniglot" else "paper 5-shot"
    return tuple(LEARNER_PRESETS[preset])


def choices_of(figure: str, versions: Sequence[str]) -> tuple[Choice, ...]:
    """The ways to choose that a figure compares; the costliest rule only in one of them."""
    return tuple(
        c
        for c in CHOICES
        if (c.measure not in VERSIONS or c.measure in versions)
        and (figure == "fig3" or c.rule != "facility")
    )


class SelectionFigure(Experiment[SelectionPlan]):
    """The experiment for one number of ways.

    Test tasks have a fixed support and fixed queries; whatever chooses sees the support alone, and
    candidates are represented from as many samples.
    """

    def run(
        self, stages: Sequence[str], learners: Sequence[str] | None, versions: Sequence[str]
    ) -> None:
        """Prepare and train what the stages ask for and is not there yet."""
        choices = choices_of(self.figure, versions)
        if "prepare" in stages:
            self.prepare(choices)
        if "train" in stages:
            self.train(learners or _USUAL_LEARNERS[self.figure], choices)

    def candidates(self, pool: ClassPool | None = None) -> TaskSet:
        """The training tasks to choose from."""
        p = self.plan
        return sample_tasks(
            pool or self.pool, p.candidates, n_way=p.way, n_shot=p.n_shot, n_query=p.n_query,
            split=p.train_split, within_group=p.within_group, unique=True, seed=self.seed + 3,
        )  # fmt: skip

    def tests(self) -> TaskSet:
        """The test tasks, each with its support and its queries."""
        p = self.plan
        samples: dict[str, Any] = {
            "n_way": p.way, "n_shot": p.n_shot, "n_query": p.n_query, "seed": self.seed + 4,
        }  # fmt: skip
        if p.within_group:
            return sample_tasks(self.pool, p.test_tasks, split="test", within_group=True, **samples)
        return draw_tasks(self.pool, p.test_tasks, split="test", **samples)

    # -- choosing -------------------------------------------------------------------------------

    def chosen(self, choice: Choice, trial: int) -> Int[np.ndarray, "n"]:
        """Candidates in the order of choice; a smaller budget takes the first of them."""
        most = max(self.plan.budgets)
        if choice.rule == "random":
            order = np.random.default_rng([self.seed, 5, trial]).permutation(self.plan.candidates)
            return order[:most]
        name = f"{self._where(choice.measure)}-{choice.rule}-{most}-{trial}"
        return self.store.arrays(
            f"chosen/{name}", lambda: {"indices": self._choose(choice, trial, most)}
        )["indices"]

    def _choose(self, choice: Choice, trial: int, n: int) -> Int[np.ndarray, "n"]:
        candidates = self.candidates()
        options: dict[str, Any] = {"train_classes": candidates, "seed": self.seed + trial}
        if choice.measure == "task2vec":
            means = self._task2vec_means()[None]
            return select(None, None, n, choice.rule, similarity=means, **options).indices
        return select(*self._lam(choice.measure), n, choice.rule, **options).indices

    def _lam(self, version: str) -> tuple[Posterior, Posterior]:
        where = self._where(version)
        test = self.embedded(version, self.tests(), f"lam/{where}-test-{self.plan.test_tasks}")
        return test, self.embedded(version, self.candidates(), f"lam/{where}-train")

    def _task2vec_means(self) -> Float[np.ndarray, "candidates"]:
        """Mean Task2Vec distance of each candidate from all test tasks."""

        def make() -> dict[str, np.ndarray]:
            candidates = self.candidates()
            measure = Task2Vec(per="layer", config=probe_of(self.plan.pool), seed=self.seed)
            measure.fit(candidates[:1000])
            train, test = measure.embed(candidates), measure.embed(self.tests())
            means = measure.distances(train, test).mean_distance()
            return {"means": means, "train": train, "test": test}

        name = f"task2vec/{self._where('task2vec')}-{self.plan.test_tasks}"
        return self.store.arrays(name, make)["means"]

    def _where(self, measure: str) -> str:
        p = self.plan
        within = "-within-groups" if p.within_group else ""
        return f"{self.named(measure)}-{p.way}way{within}-{p.candidates}-{p.fit_tasks}-{self.seed}"

    # -- training -------------------------------------------------------------------------------

    def cells(self, learner: str, choices: Sequence[Choice]) -> Iterator[dict[str, Any]]:
        """Every trial of a learner, those that compare with each other next to each other."""
        p = self.plan
        plan = {k: v for k, v in as_cell(p).items() if not k.endswith("_trials") and k != "budgets"}
        for budget in p.budgets:
            settings = learner_settings(p, learner, budget)
            for choice in choices:
                tuned = choice.measure == "task2vec" and p.pool in PROBES
                probe = {"probe": dict(PROBES[p.pool])} if tuned else {}
                size = self.size(choice.measure)
                model = {"model": dict(size)} if size else {}
                most = p.random_trials if choice.rule == "random" else p.rule_trials
                for trial in range(most):
                    yield {
                        "figure": self.figure, "what": "selection", "learner": learner,
                        "rule": choice.rule, "measure": choice.measure, "budget": budget,
                        "trial": trial, "settings": dict(settings),
                        "plan": plan, **probe, **model,
                    }  # fmt: skip

    def prepare(self, choices: Sequence[Choice]) -> None:
        """All selections that are not there yet."""
        for choice in choices:
            for trial in range(self.plan.rule_trials):
                self.chosen(choice, trial)

    def train(self, learners: Sequence[str], choices: Sequence[Choice]) -> None:
        """Train and test what is not in the ledger yet, budget by budget."""
        pool = self.pool if self.pool.is_images else unit_length(self.pool)
        candidates, tests = self.candidates(pool), replace(self.tests(), pool=pool)
        for learner in learners:
            for budget in self.plan.budgets:
                missing = [
                    cell
                    for cell in self.cells(learner, choices)
                    if cell["budget"] == budget and not self.store.finished(cell)
                ]
                self._train_on(missing, candidates, tests)

    def _train_on(
        self, cells: Sequence[dict[str, Any]], candidates: TaskSet, tests: TaskSet
    ) -> None:
        """Train and test cells of one budget, some of them side by side, and note the results."""
        if not cells:
            return
        self.store.check_time()
        size = -(-len(cells) // -(-len(cells) // _most_together()))
        groups = [cells[start : start + size] for start in range(0, len(cells), size)]
        work = map_work(
            _trials, [(group, self._indices(group)) for group in groups],
            shared=(size, candidates, tests, self.plan.batch_size), description="trials",
        )  # fmt: skip
        for group, results in zip(groups, work, strict=True):
            for cell, one in zip(group, results, strict=True):
                self.store.add(cell, one)
            if group is not groups[-1]:
                self.store.check_time()

    def _indices(self, cells: Sequence[dict[str, Any]]) -> list[Int[np.ndarray, "n"]]:
        """The candidates that each cell trains on."""
        return [
            self.chosen(Choice(c["rule"], c["measure"]), c["trial"])[: c["budget"]] for c in cells
        ]


def _most_together() -> int:
    """Trials that are trained side by side: few fill the cores, many a GPU."""
    return 10 if jax.default_backend() == "cpu" else 50


def _trials(
    group: tuple[Sequence[dict[str, Any]], Sequence[Int[np.ndarray, "_"]]],
    size: int,
    candidates: TaskSet,
    tests: TaskSet,
    batch_size: int,
) -> list[dict[str, Any]]:
    """What a learner that was trained on the chosen candidates of each cell makes of the tests."""
    cells, chosen = group
    # the last group is filled up with repeats, so that all groups run the same program
    filled = [i % len(cells) for i in range(size)]
    began = time.perf_counter()
    every = train_and_test(
        cells[0]["learner"], cells[0]["settings"],
        [candidates[np.sort(chosen[i])] for i in filled], tests,
        seeds=[cells[i]["trial"] for i in filled], batch_size=batch_size,
    )  # fmt: skip
    seconds = (time.perf_counter() - began) / len(cells)
    results = []
    for _, one in zip(cells, every, strict=False):
        means = without_each_class(one.accuracy, tests.classes)
        without = [round(mean, 6) for mean in means.tolist()]
        results.append({**one.to_dict(), "without_class": without, "seconds": seconds})
    return results
