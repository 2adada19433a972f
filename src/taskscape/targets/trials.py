"""Ways of choosing tried on a target: learners trained on what each chooses, and tested."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from taskscape.select.known import RANDOM
from taskscape.targets.advisor import Outlook

ALL = "all"
"""Training on every candidate."""
_SOURCE = "source: "


def source_way(group: str) -> str:
    """The name of training on the candidates of one group alone."""
    return f"{_SOURCE}{group}"


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


def try_ways(
    outlook: Outlook,
    learner: str,
    asked: Sequence[tuple[str, int, int]],
    *,
    seed: int = 0,
) -> list[WayTrials]:
    """Train a learner by each way, with a budget and a number of trials, all side by side.

    Trial t of every way begins with the same weights. Besides the ways of
    :func:`taskscape.targets.ways.choose` there are ``"all"`` candidates, and those of one source.
    """
    sources, target = outlook.sources, outlook.target
    of = np.asarray(sources.group_of)
    lists, seeds = [], []
    for way, budget, trials in asked:
        for trial in range(trials):
            if way == ALL:
                rows = np.arange(len(sources.tasks))
            elif way.startswith(_SOURCE):
                rows = np.flatnonzero(of == way.removeprefix(_SOURCE))
            else:
                rows = outlook.choose(way, budget, seed=seed + trial)
            lists.append(rows)
            seeds.append(seed + trial)
    folds = target.folds()
    tests = [t for t in (target.queries, folds) if t is not None]
    evaluated = sources.train_and_test(learner, lists, seeds, tests) if tests else []
    results, end = [], 0
    for way, budget, trials in asked:
        own = slice(end, end + trials)
        accuracy = held_out = held_out_accuracy = None
        if target.queries is not None:
            accuracy = np.stack([e.accuracy for e in evaluated[0][own]])
        if folds is not None:
            held_out = np.array([float(e.log_likelihood.mean()) for e in evaluated[-1][own]])
            held_out_accuracy = np.stack([e.accuracy for e in evaluated[-1][own]])
        results.append(
            WayTrials(way, budget, tuple(lists[own]), accuracy, held_out, held_out_accuracy)
        )
        end += trials
    return results


def random_of(trials: Sequence[WayTrials], budget: int) -> WayTrials:
    """The trials of random choice with that budget."""
    return next(t for t in trials if t.way == RANDOM and t.budget == budget)
