"""What the paper's experiments consist of: counts, and versions of the model."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import Float

from taskscape.compare.posteriors import read_lam
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.studies.lab import Store
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.themes.estimator import TaskThemes

__all__ = ["FIGURES", "VERSIONS", "Experiment", "Fig2Plan", "SelectionPlan"]

FIGURES = ("fig2-mini-imagenet", "fig3", "fig4", "fig2-omniglot")
"""In the order of their value."""

VERSIONS: Mapping[str, Mapping[str, Any]] = {
    "literal": {"prepare": None, "covariance": "full", "update": "paper", "max_passes": 3},
    "ours": {"n_restarts": 5, "ensemble": 5},
}
"""Settings of :class:`taskscape.TaskThemes`: the paper to the letter, and what we recommend."""


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
    """Accuracy of learners trained on few tasks that a rule chose, 5-shot, on mini-ImageNet."""

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

    def model(self, version: str) -> TaskThemes:
        """The paper's model, L = 4 and K = 8, on 5–10-way 16-shot tasks of the training classes."""
        plan, seed = self.plan, self.seed

        def fit(checkpoint: Path) -> TaskThemes:
            tasks = sample_tasks(
                self.pool, plan.fit_tasks, n_way=(5, 10), n_shot=16, split=plan.train_split,
                seed=seed,
            )  # fmt: skip
            model = TaskThemes(4, 8, delta=0.5, random_state=seed, **VERSIONS[version])
            return model.fit(tasks, checkpoint=checkpoint, resume=checkpoint.exists())

        return self.store.model(f"{self.pool.name}-{version}-{plan.fit_tasks}-{seed}", fit)

    def embedded(
        self, version: str, tasks: TaskSet, name: str
    ) -> Float[np.ndarray, "members tasks L"]:
        """λ of tasks, kept under a name."""

        def make() -> dict[str, np.ndarray]:
            return {"lam": self.model(version).transform(tasks).astype(np.float32)}

        return read_lam(self.store.arrays(name, make)["lam"], name)


def fig2_plan(figure: str, scale: float) -> Fig2Plan:
    """The plan of one of the correlation diagrams."""
    check_scale(scale)
    if figure == "fig2-mini-imagenet":
        return Fig2Plan("mini_imagenet", "train+val", 15_504, 2_000_000).scaled(scale)
    return Fig2Plan("omniglot", "train", 20_000, 1_000_000, 10, 8, learner_tasks=40_000).scaled(
        scale
    )


def selection_plans(figure: str, scale: float) -> tuple[SelectionPlan, ...]:
    """The plans of a figure on task selection: one for each number of ways."""
    check_scale(scale)
    if figure == "fig3":
        return (SelectionPlan().scaled(scale),)
    budgets = (100, 500, 1000, 2000, 5000, 10_000)
    return tuple(
        SelectionPlan(way=way, budgets=budgets, random_trials=10).scaled(scale) for way in (5, 10)
    )


def check_scale(scale: float) -> None:
    """Raise an error unless the scale shrinks."""
    if not 0 < scale <= 1:
        raise DataError(f"scale={scale:g} must be above 0 and at most 1; 1 is the paper's size.")


def as_cell(plan: Fig2Plan | SelectionPlan) -> dict[str, Any]:
    """A plan as plain values, for the identity of cells."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(plan).items()}


def _less(n: int, scale: float, least: int) -> int:
    return n if scale == 1 else min(n, max(least, round(n * scale)))
