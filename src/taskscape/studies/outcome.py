"""What training on chosen tasks is worth: from trials to gains over random choice."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from taskscape.statistics import Interval, gain_interval, losing_share, mean_interval

__all__ = ["RANDOM", "Gain", "Outcome", "SelectionTrial", "gains_of", "outcomes"]

RANDOM = "random"
"""The rule that all others are compared with."""


@dataclass(frozen=True)
class SelectionTrial:
    """Mean test accuracy of a learner trained on tasks that a rule chose."""

    learner: str
    rule: str
    """A rule of :mod:`taskscape.select`, with another notion of distance where it has one."""
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
    def clear(self) -> bool:
        """Whether the interval leaves out zero, to the tenth of a point that is shown of it."""
        return Interval(self.value, self.low, self.high).clear_to(3)


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


def outcomes(trials: Sequence[SelectionTrial], confidence: float = 0.95) -> list[Outcome]:
    """One outcome for each learner, rule and budget, in the order in which they came.

    ``confidence`` is that of the intervals of gains.
    """
    groups: dict[tuple[str, str, int], list[SelectionTrial]] = {}
    for trial in trials:
        groups.setdefault((trial.learner, trial.rule, trial.budget), []).append(trial)
    return [
        _outcome(
            own, [] if rule == RANDOM else groups.get((learner, RANDOM, budget), []), confidence
        )
        for (learner, rule, budget), own in groups.items()
    ]


def gains_of(trials: Sequence[SelectionTrial]) -> tuple[Gain, ...]:
    """What every rule is worth against random choice, where both were tried."""
    return tuple(o.gain for o in outcomes(trials) if o.gain is not None)


def _outcome(
    own: Sequence[SelectionTrial], random: Sequence[SelectionTrial], confidence: float
) -> Outcome:
    learner, rule, budget = own[0].learner, own[0].rule, own[0].budget
    own, random = ([t for t in trials if math.isfinite(t.accuracy)] for trials in (own, random))
    ours, theirs = (np.array([t.accuracy for t in trials]) for trials in (own, random))
    gain = share = None
    if len(ours) and len(theirs):
        known = all(t.without_class for t in (*own, *random))
        without = (_without(own), _without(random)) if known else None
        difference = gain_interval(ours, theirs, without, confidence)
        gain = Gain(learner, rule, budget, difference.value, difference.low, difference.high)
        share = losing_share(ours.tolist(), theirs.tolist())
    return Outcome(
        learner,
        rule,
        budget,
        n_trials=len(ours),
        accuracy=mean_interval(ours) if len(ours) else Interval(math.nan),
        spread=float(ours.std(ddof=1)) if len(ours) > 1 else math.nan,
        gain=gain,
        losing_share=share,
    )


def _without(trials: Sequence[SelectionTrial]) -> Float[np.ndarray, "classes"]:
    return np.mean([t.without_class for t in trials], axis=0)
