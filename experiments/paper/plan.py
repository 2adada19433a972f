"""What the paper's experiments consist of: counts, versions of the model, tuned learners."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from experiments.lab import Store
from experiments.recipes import LEARNER_PRESETS, PREFERRED_SIZES
from taskscape.embeddings import Posterior
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.themes import CoClustering, TaskThemes

__all__ = ["FIGURES", "VERSIONS", "Experiment", "Fig2Plan", "SelectionPlan", "learner_settings"]

FIGURES = ("fig2-mini-imagenet", "fig3", "fig4", "fig2-omniglot", "fig4-omniglot")
"""In the order of their value; the paper does not have the last."""

VERSIONS: Mapping[str, Mapping[str, Any]] = {
    "literal": {"prepare": None, "update": "paper", "max_passes": 3},
    "ours": {"n_restarts": 5, "ensemble": 5},
    "sized": {"n_restarts": 5, "ensemble": 5},
}
"""Settings of :meth:`taskscape.TaskThemes.paper`: the paper to the letter, what we recommend at the
paper's size, and the same at the size that validation classes prefer."""

_PAPER_SIZE = {"task_themes": 4, "image_themes": 8}


@dataclass(frozen=True)
class Fig2Plan:
    """Accuracy of the learners against distance, 5-way 1-shot."""

    pool: str
    train_split: str
    test_tasks: int
    """A sample, or all combinations of test classes where these are no more."""
    measured_from: int
    """Training tasks that distances are averaged over."""
    n_query: int = 15
    episodes: int = 20
    fit_tasks: int = 20_000
    learner_tasks: int = 10_000
    batch_size: int = 4
    seeds: tuple[int, ...] = (0, 1)

    def scaled(self, scale: float) -> "Fig2Plan":
        """The same with fewer of everything, for a machine without a GPU."""
        return replace(
            self,
            test_tasks=_less(self.test_tasks, scale, 100),
            measured_from=_less(self.measured_from, scale, 1000),
            episodes=_less(self.episodes, scale, 2),
            fit_tasks=_less(self.fit_tasks, scale, 500),
            learner_tasks=_less(self.learner_tasks, scale, 100),
            seeds=self.seeds if scale == 1 else self.seeds[:1],
        )


@dataclass(frozen=True)
class SelectionPlan:
    """Accuracy of learners trained on few tasks that a rule chose."""

    way: int = 5
    budgets: tuple[int, ...] = (1000,)
    random_trials: int = 50
    rule_trials: int = 5
    candidates: int = 100_000
    test_tasks: int = 15_504
    fit_tasks: int = 20_000
    n_shot: int = 5
    n_query: int = 15
    batch_size: int = 4
    pool: str = "mini_imagenet"
    train_split: str = "train+val"
    within_group: bool = False
    """Whether all classes of a task are from one group, such as an alphabet."""

    @property
    def title(self) -> str:
        """What tells the plans of a figure apart."""
        return f"{self.way}-way, within groups" if self.within_group else f"{self.way}-way"

    def scaled(self, scale: float) -> "SelectionPlan":
        """The same with fewer of everything, for a machine without a GPU."""
        return replace(
            self,
            budgets=tuple(sorted({_less(b, scale, 20) for b in self.budgets})),
            random_trials=_less(self.random_trials, scale, 3),
            rule_trials=_less(self.rule_trials, scale, 2),
            candidates=_less(self.candidates, scale, 1000),
            test_tasks=_less(self.test_tasks, scale, 100),
            fit_tasks=_less(self.fit_tasks, scale, 500),
        )


PlanT = TypeVar("PlanT", Fig2Plan, SelectionPlan)


@dataclass(frozen=True, eq=False)
class Experiment(Generic[PlanT]):
    """A figure of the paper: its data and counts, and where its results are kept."""

    figure: str
    pool: ClassPool
    plan: PlanT
    store: Store
    seed: int = 0

    def model(self, version: str) -> CoClustering:
        """The paper's model on 5–10-way 16-shot tasks of the training classes."""
        plan, seed = self.plan, self.seed

        def fit(checkpoint: Path) -> CoClustering:
            tasks = sample_tasks(
                self.pool, plan.fit_tasks, n_way=(5, 10), n_shot=16, split=plan.train_split,
                seed=seed,
            )  # fmt: skip
            model = TaskThemes.paper(
                **{**_PAPER_SIZE, **self.size(version), **VERSIONS[version]}, delta=0.5,
                random_state=seed,
            )  # fmt: skip
            return model.fit(tasks, checkpoint=checkpoint, resume=checkpoint.exists())

        name = f"{self.pool.name}-{self.named(version)}-{plan.fit_tasks}-{seed}"
        return self.store.model(name, fit)

    def size(self, version: str) -> Mapping[str, int]:
        """Where a version does not have the paper's size, its own."""
        return PREFERRED_SIZES.get(self.pool.name, {}) if version == "sized" else {}

    def named(self, measure: str) -> str:
        """A version with its size, or another similarity measure, for the names of files."""
        size = self.size(measure)
        return f"{measure}-{size['image_themes']}x{size['task_themes']}" if size else measure

    def embedded(self, version: str, tasks: TaskSet, name: str) -> Posterior:
        """λ of tasks, kept under a name."""

        def make() -> dict[str, np.ndarray]:
            return {"lam": self.model(version).transform(tasks).astype(np.float32)}

        lam = self.store.arrays(name, make)["lam"]
        return Posterior.of(lam, self.model(version).factors_)


def fig2_plan(figure: str, scale: float) -> Fig2Plan:
    """The plan of one of the correlation diagrams."""
    check_scale(scale)
    if figure == "fig2-mini-imagenet":
        return Fig2Plan("mini_imagenet", "train+val", 15_504, 2_000_000).scaled(scale)
    return Fig2Plan("omniglot", "train", 20_000, 1_000_000, 10, 4, learner_tasks=40_000).scaled(
        scale
    )


def selection_plans(figure: str, scale: float) -> tuple[SelectionPlan, ...]:
    """The plans of a figure on task selection.

    Figure 4 has one for each number of ways; on Omniglot, one for tasks with characters of all
    alphabets and one for tasks with characters of one.
    """
    check_scale(scale)
    if figure == "fig3":
        return (SelectionPlan().scaled(scale),)
    if figure == "fig4-omniglot":
        drawings = SelectionPlan(
            budgets=(100, 500, 1000, 5000), random_trials=10, candidates=20_000, test_tasks=2000,
            n_shot=1, n_query=10, pool="omniglot", train_split="train",
        )  # fmt: skip
        return tuple(replace(drawings, within_group=w).scaled(scale) for w in (False, True))
    budgets = (100, 500, 1000, 2000, 5000, 10_000)
    return tuple(
        SelectionPlan(way=way, budgets=budgets, random_trials=10).scaled(scale) for way in (5, 10)
    )


_PRESETS_FOR_TASKS = {
    (5, 100): "paper 5-shot, 100 tasks",
    (5, 1000): "paper 5-shot",
    (5, 10_000): "paper 5-shot, 10,000 tasks",
    (10, 100): "paper 10-way, 100 tasks",
    (10, 1000): "paper 10-way, 1,000 tasks",
    (10, 10_000): "paper 10-way, 10,000 tasks",
}
"""For which ways and numbers of training tasks a preset was tuned."""


def learner_settings(plan: SelectionPlan, learner: str, budget: int) -> Mapping[str, Any]:
    """The settings that were tuned for as many ways, and for the nearest number of tasks.

    A learner that was not tuned for as many ways has those for five.
    """
    if plan.n_shot == 1:
        return LEARNER_PRESETS["paper images"][learner]

    def far(tuned: tuple[int, int]) -> tuple[bool, float]:
        way, tasks = tuned
        return way != plan.way, abs(math.log(tasks / budget))

    tuned_for = [
        at for at, preset in _PRESETS_FOR_TASKS.items() if learner in LEARNER_PRESETS[preset]
    ]
    return LEARNER_PRESETS[_PRESETS_FOR_TASKS[min(tuned_for, key=far)]][learner]


def check_scale(scale: float) -> None:
    """Raise an error unless the scale shrinks."""
    if not 0 < scale <= 1:
        raise DataError(f"scale={scale:g} must be above 0 and at most 1; 1 is the paper's size.")


def as_cell(plan: Fig2Plan | SelectionPlan) -> dict[str, Any]:
    """A plan as plain values, for the identity of cells."""
    return {
        k: list(v) if isinstance(v, tuple) else v
        for k, v in asdict(plan).items()
        if k != "within_group" or v  # older lines do not have it
    }


def _less(n: int, scale: float, least: int) -> int:
    return n if scale == 1 else min(n, max(least, round(n * scale)))
