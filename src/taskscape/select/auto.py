"""Which rule to use? The one that helped on validation tasks, or chance where none did."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Int

from taskscape.arguments import check_number, check_whole
from taskscape.errors import DataError
from taskscape.meta import Architecture, Learner, TrainConfig, make_learner
from taskscape.select.known import RANDOM, RULES
from taskscape.select.selection import Selection
from taskscape.select.trials import train_and_test
from taskscape.statistics import gain_interval
from taskscape.tasks import TaskSet

Judge: TypeAlias = Callable[[Sequence[Int[np.ndarray, "_"]]], Any]
"""Given the training tasks of several trials, as lists of indices, returns a score for each: how
well a learner trained on them does on the validation tasks. Higher is better."""

_SMALL_BUDGET = 500
_LEAST_TRIALS = 3


@dataclass(frozen=True)
class TrialOptions:
    """How ``rule="auto"`` tries the rules."""

    rules: tuple[str, ...] | None = None
    """Which to try; by default all that what is known of the training tasks allows."""
    trials: int = 5
    """Trainings of each rule, with other seeds."""
    n: int | None = None
    """Tasks to choose in a trial; by default as many as are asked for, at most 500. With a budget
    in samples: samples, by default as many as are asked for."""
    confidence: float = 0.95

    def budget(self, n: int, unit: str = "tasks") -> int:
        """How many tasks (or samples) to choose in each trial of a selection of ``n``."""
        if self.n is None:
            return min(n, _SMALL_BUDGET) if unit == "tasks" else n
        if not 1 <= self.n <= n:
            raise DataError(f"trial.n={self.n} must lie between 1 and n={n}.")
        return self.n


def rules_to_try(trial: TrialOptions, classes_known: bool) -> tuple[str, ...]:
    """The rules that are tried against random choice."""
    if trial.rules is not None:
        return trial.rules
    return tuple(
        name
        for name, rule in RULES.items()
        if name != RANDOM and (classes_known or not rule.needs_classes)
    )


@dataclass(frozen=True, eq=False)
class LearnerJudge:
    """Scores lists of training tasks by training a learner on each.

    The trials of one call are trained side by side, with seeds 0, 1, … in every call, so that all
    rules start from the same weights. A score is the mean accuracy over the validation tasks, whose
    classes must be new to the learner.
    """

    learner: Learner | str
    network: Architecture
    train: TaskSet
    """The training tasks, with queries, over the pool that the learner takes."""
    validation: TaskSet
    """The validation tasks, likewise."""
    epochs: int = 1
    batch_size: int = 4
    episodes: int = 1
    training: Mapping[str, Any] = field(default_factory=dict)
    """Other settings of :class:`taskscape.meta.TrainConfig`, such as ``learning_rate``."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, tasks in (("train", self.train), ("validation", self.validation)):
            if tasks.n_query == 0:
                raise DataError(
                    f"{name} tasks of the judge have no queries; make them with n_query=15, say."
                )

    def check(self, n_train: int, n_validation: int) -> None:
        """Raise an error unless it has as many tasks as there are distances for."""
        for name, tasks, n in (
            ("train", self.train, n_train),
            ("validation", self.validation, n_validation),
        ):
            if len(tasks) != n:
                raise DataError(
                    f"the judge has {len(tasks)} {name} tasks, and distances are known of {n}; "
                    "both must be the same tasks in the same order."
                )

    def __call__(self, chosen: Sequence[Int[np.ndarray, "_"]]) -> Float[np.ndarray, "trials"]:
        """The score of each list of training tasks."""
        most = max(len(rows) for rows in chosen)
        (evaluations,) = train_and_test(
            make_learner(self.learner) if isinstance(self.learner, str) else self.learner,
            self.network,
            [self.train[rows] for rows in chosen],
            [self.validation],
            TrainConfig.one_pass(most, self.batch_size, self.epochs, **self.training),
            seeds=[self.seed + trial for trial in range(len(chosen))],
            seed=self.seed,
            episodes=self.episodes,
        )
        return np.array([float(e.accuracy.mean()) for e in evaluations])


@dataclass(frozen=True)
class RuleScores:
    """How a rule did on validation tasks."""

    rule: str
    scores: tuple[float, ...]
    gain: float = 0.0
    """Mean score above that of random choice."""
    low: float = 0.0
    """What the gain exceeds with the stated confidence."""


@dataclass(frozen=True)
class RuleChoice:
    """The rule to use, and what it was chosen by."""

    rule: str
    tried: tuple[RuleScores, ...]
    """Random choice first."""
    confidence: float

    def why(self) -> str:
        """The choice in a sentence."""
        others = [t for t in self.tried if t.rule != RANDOM]
        best = max(others, key=lambda t: t.low)
        if self.rule == RANDOM:
            return (
                f"no rule beat random choice on the validation tasks by more than the noise "
                f"(the nearest to it: {best.rule}, {best.gain:+.4f}, at least {best.low:+.4f})."
            )
        return (
            f"{best.rule} beat random choice on the validation tasks by {best.gain:.4f}, at least "
            f"{best.low:.4f} with {100 * self.confidence:.0f} % confidence."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for :attr:`Selection.settings`."""
        tried = [{**asdict(t), "scores": list(t.scores)} for t in self.tried]
        return {"confidence": self.confidence, "why": self.why(), "tried": tried}


def choose_rule(
    choose: Callable[[str, int], Selection],
    judge: Judge,
    *,
    rules: Sequence[str],
    trials: int = 5,
    confidence: float = 0.95,
    seed: int = 0,
) -> RuleChoice:
    """Try the rules and pick the one that surely helps most.

    ``choose(rule, seed)`` selects for the validation tasks. Every rule, and random choice, is tried
    with ``trials`` seeds. A rule helps if the lower end of a one-sided interval of its gain over
    random choice (:func:`taskscape.statistics.gain_interval`, over trials) is above zero. The
    confidence is shared among the rules tried (Bonferroni): trying more rules must not make it
    easier for one to win by luck. Of those that help, the one whose lower end is highest is taken;
    if none does, random choice.
    """
    _check(rules, trials, confidence)
    scores = {rule: _scores(choose, judge, rule, trials, seed) for rule in (RANDOM, *rules)}
    level = 1 - (1 - confidence) / len(rules)  # of one side
    base = scores[RANDOM]
    tried = [RuleScores(RANDOM, tuple(base.tolist()))]
    for rule in rules:
        gain = gain_interval(scores[rule], base, confidence=2 * level - 1)
        tried.append(RuleScores(rule, tuple(scores[rule].tolist()), gain.value, gain.low))
    best = max(tried[1:], key=lambda t: t.low)
    return RuleChoice(best.rule if best.low > 0 else RANDOM, tuple(tried), confidence)


def _check(rules: Sequence[str], trials: int, confidence: float) -> None:
    odd = [r for r in rules if r not in RULES or r == RANDOM]
    if odd or not rules:
        known = ", ".join(r for r in RULES if r != RANDOM)
        raise DataError(f"rules={list(rules)}: give some of {known} to try against random choice.")
    check_whole(trials, "trials", _LEAST_TRIALS)
    check_number(confidence, "confidence", 0.5, 1, open_="high")


def _scores(
    choose: Callable[[str, int], Selection], judge: Judge, rule: str, trials: int, seed: int
) -> Float[np.ndarray, "trials"]:
    chosen = [choose(rule, seed + trial).indices for trial in range(trials)]
    scores = np.asarray(judge(chosen), dtype=np.float64)
    if scores.shape != (trials,) or not np.isfinite(scores).all():
        raise DataError(
            f"judge returned {np.array2string(scores, threshold=5)} for {trials} trials of rule "
            f"{rule!r}; expected a finite score for each."
        )
    return scores
