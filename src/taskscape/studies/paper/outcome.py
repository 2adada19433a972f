"""What the trials of a selection say: means, spreads, and gains over random choice."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import t as student

from taskscape.studies.paper.selection import Choice

__all__ = ["Outcome", "outcomes"]


@dataclass(frozen=True)
class Outcome:
    """The trials of one learner, budget, way and choice; accuracies and gains in %."""

    learner: str
    way: int
    budget: int
    choice: Choice
    n_trials: int
    mean: float
    spread: float
    """Standard deviation over trials."""
    reach: float
    """Half of the 95 % interval of the mean, over trials."""
    gain: float
    """Mean accuracy minus that of random choice."""
    gain_reach: float
    """Half of the 95 % interval of the gain over trials (Welch)."""
    gain_reach_classes: float
    """Half of the 95 % interval of the gain over test classes, leaving out one at a time."""
    losses: float
    """The part of pairs of a trial and a random trial in which the random one is better."""

    @property
    def helps(self) -> bool:
        """Whether the gain is beyond chance, over trials and over classes."""
        return self.gain > max(self.gain_reach, self.gain_reach_classes)

    @property
    def hurts(self) -> bool:
        """Whether the loss is beyond chance, over trials and over classes."""
        return -self.gain > max(self.gain_reach, self.gain_reach_classes)


def outcomes(entries: Sequence[dict[str, Any]]) -> list[Outcome]:
    """One outcome for each learner, way, budget and choice among finished cells."""
    groups: dict[tuple[str, int, int], dict[Choice, list[dict[str, Any]]]] = {}
    for entry in entries:
        cell = entry["cell"]
        where = (cell["learner"], cell["plan"]["way"], cell["budget"])
        choice = Choice(cell["rule"], cell["notion"])
        groups.setdefault(where, {}).setdefault(choice, []).append(entry)
    found = []
    for (learner, way, budget), by_choice in sorted(groups.items()):
        random = by_choice.get(Choice("random", ""))
        found += [
            _outcome(learner, way, budget, choice, trials, random)
            for choice, trials in by_choice.items()
        ]
    return found


def _outcome(
    learner: str,
    way: int,
    budget: int,
    choice: Choice,
    trials: Sequence[dict[str, Any]],
    random: Sequence[dict[str, Any]] | None,
) -> Outcome:
    a = _accuracies(trials)
    b = a if random is None else _accuracies(random)
    classes = np.array([0.0])
    if random is not None:
        classes = _without(trials) - _without(random)
    return Outcome(
        learner=learner,
        way=way,
        budget=budget,
        choice=choice,
        n_trials=len(a),
        mean=float(a.mean()),
        spread=float(a.std(ddof=1)) if len(a) > 1 else math.nan,
        reach=_reach(a),
        gain=float(a.mean() - b.mean()),
        gain_reach=_welch(a, b),
        gain_reach_classes=_jackknife(classes),
        losses=float((a[:, None] < b[None]).mean() + 0.5 * (a[:, None] == b[None]).mean()),
    )


def _accuracies(trials: Sequence[dict[str, Any]]) -> Float[np.ndarray, "trials"]:
    return 100 * np.array([t["accuracy"] for t in trials])


def _without(trials: Sequence[dict[str, Any]]) -> Float[np.ndarray, "classes"]:
    return 100 * np.mean([t["without_class"] for t in trials], axis=0)


def _reach(a: Float[np.ndarray, "trials"]) -> float:
    if len(a) < 2:
        return math.nan
    return float(student.ppf(0.975, len(a) - 1) * a.std(ddof=1) / math.sqrt(len(a)))


def _welch(a: Float[np.ndarray, "trials"], b: Float[np.ndarray, "others"]) -> float:
    if min(len(a), len(b)) < 2:
        return math.nan
    u, v = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    if u + v == 0:
        return 0.0
    freedom = (u + v) ** 2 / (u**2 / (len(a) - 1) + v**2 / (len(b) - 1))
    return float(student.ppf(0.975, freedom) * math.sqrt(u + v))


def _jackknife(without: Float[np.ndarray, "classes"]) -> float:
    n = len(without)
    return float(1.96 * math.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum()))
