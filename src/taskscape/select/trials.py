"""What training on chosen tasks is worth: train, test, and compare with random choice."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from taskscape.meta import Architecture, Evaluation, Learner, TrainConfig, evaluate_many, train_many
from taskscape.select.known import RANDOM
from taskscape.statistics import (
    Interval,
    gain_interval,
    losing_share,
    mean_interval,
    without_each_class,
)
from taskscape.tasks import TaskSet

_AT_ONCE = 64
"""Trainings side by side; more take memory without being faster."""


def train_and_test(
    learner: Learner,
    network: Architecture,
    training: Sequence[TaskSet],
    tests: Sequence[TaskSet],
    config: TrainConfig,
    *,
    seeds: Sequence[int],
    episodes: int = 1,
    seed: int = 0,
) -> list[list[Evaluation]]:
    """For each test, the evaluations of a learner that was trained on each set of tasks.

    Trainings run side by side, each with its own of the ``seeds``; ``seed`` is that of the tests.
    """
    n_way = max(tasks.max_way for tasks in (*training, *tests))
    results: list[list[Evaluation]] = [[] for _ in tests]
    for start in range(0, len(training), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        trained = train_many(
            learner, network, training[part], config, seeds=seeds[part], n_way=n_way
        )
        for own, test in zip(results, tests, strict=True):
            own += evaluate_many(
                learner, trained.state, test, seed=seed, episodes=episodes,
                precision=config.precision,
            )  # fmt: skip
    return results


def without_classes(
    accuracy: Float[np.ndarray, "tasks"], classes: Int[np.ndarray, "tasks way"]
) -> tuple[float, ...]:
    """The mean over the tasks without each of the classes.

    Empty where a class is in every task, and so cannot be left out, or where leaving one out leaves
    a single set of classes.
    """
    ids = np.unique(classes[classes >= 0])
    in_all = any((classes == c).any(axis=1).all() for c in ids)
    if in_all or len(ids) <= classes.shape[1] + 1:
        return ()
    return tuple(without_each_class(accuracy, classes).tolist())


def gain_over(
    ours: Float[np.ndarray, "trials tasks"],
    random: Float[np.ndarray, "others tasks"],
    classes: Int[np.ndarray, "tasks way"],
) -> Interval:
    """The gain in accuracy over random choice: over trainings and over classes.

    Over trainings alone where classes cannot be left out.
    """
    left_out = [np.array(without_classes(a.mean(axis=0), classes)) for a in (ours, random)]
    without = (left_out[0], left_out[1]) if len(left_out[0]) else None
    return gain_interval(ours.mean(axis=1), random.mean(axis=1), without)


@dataclass(frozen=True)
class Trial:
    """Mean test accuracy of a learner trained on tasks that a rule chose."""

    learner: str
    rule: str
    """A rule of :mod:`taskscape.select`, with another similarity measure where it has one."""
    budget: int
    trial: int
    accuracy: float
    without_class: tuple[float, ...] = ()
    """The same over the test tasks without each of the test classes; empty where not known."""


@dataclass(frozen=True)
class Gain:
    """How much better a learner is for a rule's choice than for as many tasks at random."""

    learner: str
    rule: str
    budget: int
    value: float
    """Difference of mean test accuracies, rule minus random."""
    low: float
    high: float
    """Its 95 % interval, over trainings and over test classes."""

    @property
    def sign(self) -> int:
        """1 or -1 if the interval leaves out zero, to the tenth of a point that is shown of it."""
        return Interval(self.value, self.low, self.high).sign(3)


@dataclass(frozen=True)
class Outcome:
    """The trials of one learner, rule and budget, in the accuracies' unit.

    Trials without an accuracy (NaN) do not count.
    """

    learner: str
    rule: str
    budget: int
    n_trials: int
    accuracy: Interval
    """The mean over trials, with its 95 % interval over trials."""
    spread: float
    """Standard deviation over trials; NaN for a single one."""
    gain: Gain | None
    """Over random choice; None for random choice itself, and where it was not tried."""
    losing_share: float | None
    """The part of pairs of a trial and a random trial in which the random one is better."""


def outcomes(trials: Sequence[Trial], confidence: float = 0.95) -> list[Outcome]:
    """One outcome for each learner, rule and budget, in the order in which they came.

    ``confidence`` is that of the intervals of gains.
    """
    groups: dict[tuple[str, str, int], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.learner, trial.rule, trial.budget), []).append(trial)
    return [
        _outcome(
            own, [] if rule == RANDOM else groups.get((learner, RANDOM, budget), []), confidence
        )
        for (learner, rule, budget), own in groups.items()
    ]


def gains_of(trials: Sequence[Trial]) -> tuple[Gain, ...]:
    """What every rule is worth against random choice, where both were tried."""
    return tuple(o.gain for o in outcomes(trials) if o.gain is not None)


def _outcome(own: Sequence[Trial], random: Sequence[Trial], confidence: float) -> Outcome:
    learner, rule, budget = own[0].learner, own[0].rule, own[0].budget
    own, random = ([t for t in trials if math.isfinite(t.accuracy)] for trials in (own, random))
    ours, theirs = (np.array([t.accuracy for t in trials]) for trials in (own, random))
    gain = share = None
    if len(ours) and len(theirs):
        known = all(t.without_class for t in (*own, *random))
        left_out = [np.mean([t.without_class for t in trials], axis=0) for trials in (own, random)]
        without = (left_out[0], left_out[1]) if known else None
        difference = gain_interval(ours, theirs, without, confidence)
        gain = Gain(learner, rule, budget, difference.value, difference.low, difference.high)
        share = losing_share(ours.tolist(), theirs.tolist())
    return Outcome(
        learner,
        rule,
        budget,
        n_trials=len(ours),
        accuracy=mean_interval(ours).within(0.0, 1.0) if len(ours) else Interval(math.nan),
        spread=float(ours.std(ddof=1)) if len(ours) > 1 else math.nan,
        gain=gain,
        losing_share=share,
    )
