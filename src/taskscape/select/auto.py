"""Which rule to use? The one that helped on validation tasks, or chance where none did."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Int

from taskscape.arguments import check_number, check_whole
from taskscape.errors import DataError
from taskscape.meta import Architecture, Learner, TrainConfig, make_learner
from taskscape.select.known import RANDOM, RULES
from taskscape.select.trials import train_and_test
from taskscape.statistics import gain_interval
from taskscape.tasks import TaskSet

Scorer: TypeAlias = Callable[[Sequence[Int[np.ndarray, "_"]]], Any]
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
    """Tasks to choose in a trial; by default as many as are asked for, at most 500."""
    confidence: float = 0.95

    def budget(self, n: int) -> int:
        """How many tasks to choose in each trial of a selection of ``n``."""
        if self.n is None:
            return min(n, _SMALL_BUDGET)
        if not 1 <= self.n <= n:
            raise DataError(f"trial.n={self.n} must lie between 1 and n={n}.")
        return self.n


@dataclass(frozen=True, eq=False)
class LearnerScorer:
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
        for name in ("train", "validation"):
            if getattr(self, name).n_query == 0:
                raise DataError(
                    f"{name} tasks of the scorer have no queries; make them with n_query=15, say."
                )

    def check(self, **expected: int) -> None:
        """Raise an error unless it has as many tasks as there are distances for."""
        for name, n in expected.items():
            if len(getattr(self, name)) != n:
                raise DataError(
                    f"the scorer has {len(getattr(self, name))} {name} tasks, and distances are "
                    f"known of {n}; both must be the same tasks in the same order."
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


def choose_rule(
    choose: Callable[[str, int], Int[np.ndarray, "_"]],
    scorer: Scorer,
    rules: Sequence[str],
    trial: TrialOptions,
    seed: int = 0,
) -> tuple[str, dict[str, Any]]:
    """Try the rules and pick the one that surely helps most; and plain values that say why.

    ``choose(rule, seed)`` selects for the validation tasks. Every rule, and random choice, is tried
    with ``trial.trials`` seeds. A rule helps if the lower end of a one-sided interval of its gain
    over random choice (:func:`taskscape.statistics.gain_interval`, over trials) is above zero. The
    confidence is shared among the rules tried (Bonferroni): trying more rules must not make it
    easier for one to win by luck. Of those that help, the one whose lower end is highest is taken;
    if none does, random choice.
    """
    if not rules or not set(rules) <= {*RULES} - {RANDOM}:
        known = ", ".join(r for r in RULES if r != RANDOM)
        raise DataError(f"rules={list(rules)}: give some of {known} to try against random choice.")
    check_whole(trial.trials, "trials", _LEAST_TRIALS)
    check_number(trial.confidence, "confidence", 0.5, 1, open_="high")
    seeds = range(seed, seed + trial.trials)
    scores = {rule: _scores(choose, scorer, rule, seeds) for rule in (RANDOM, *rules)}
    level = 1 - (1 - trial.confidence) / len(rules)  # of one side
    gains = {
        rule: gain_interval(scores[rule], scores[RANDOM], confidence=2 * level - 1)
        for rule in rules
    }
    best = max(gains, key=lambda rule: gains[rule].low)
    gain, low = gains[best].value, gains[best].low
    why = (
        f"{best} beat random choice on the validation tasks by {gain:.4f}, at least {low:.4f} with "
        f"{100 * trial.confidence:.0f} % confidence."
        if low > 0
        else "no rule beat random choice on the validation tasks by more than the noise "
        f"(the nearest to it: {best}, {gain:+.4f}, at least {low:+.4f})."
    )
    tried = [{"rule": RANDOM, "scores": scores[RANDOM].tolist(), "gain": 0.0, "low": 0.0}]
    tried += [
        {"rule": rule, "scores": scores[rule].tolist(), "gain": gain.value, "low": gain.low}
        for rule, gain in gains.items()
    ]
    record = {"confidence": trial.confidence, "why": why, "tried": tried}
    return best if low > 0 else RANDOM, record


def _scores(
    choose: Callable[[str, int], Int[np.ndarray, "_"]],
    scorer: Scorer,
    rule: str,
    seeds: Sequence[int],
) -> Float[np.ndarray, "trials"]:
    scores = np.asarray(scorer([choose(rule, seed) for seed in seeds]), dtype=np.float64)
    if scores.shape != (len(seeds),) or not np.isfinite(scores).all():
        raise DataError(
            f"scorer returned {np.array2string(scores, threshold=5)} for {len(seeds)} trials of "
            f"rule {rule!r}; expected a finite score for each."
        )
    return scores
