r"""What a choice is expected to gain, learned from targets on which the gain was seen.

Accuracy on a target's few labelled samples is too noisy to choose by alone. So every way of
choosing was tried on other targets, with ample queries, and its gain is explained by which way it
is and by the evidence: how much likelier the target's labelled samples, each left out in turn, are
after training on its choice than after training at random,

.. math:: g_{tw} = a + b_w + c\, x_{tw} + e_{tw}

over targets t and ways w: a ridge regression whose penalty and error come from predicting each
target from the others. Prior and evidence are so weighed by how well each foretold gains before.
Where the samples say much, gains are large, and so are the errors:

.. math:: E[e_{tw}^2] = s_0^2 + s_1^2\, x_{tw}^2

Other cues (``taskscape.targets.cues``) foretold less than nothing on targets left out, and are not
used: distance to the nearest source, the bound, agreement of notions, difficulty, the budget.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import nnls
from scipy.stats import t as student

from taskscape.errors import DataError
from taskscape.targets.ways import HALF, RANDOM

__all__ = ["Decision", "Expectation", "GainModel", "GainSeen", "decide", "known_experience"]

CONFIDENCE = 0.9
_LOSS = 0.01
"""Losing more than a point of accuracy is what a choice should not risk,"""
_RISK = 0.1
"""by more than this chance."""
_PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
_LEAST_TARGETS = 4


@dataclass(frozen=True)
class GainSeen:
    """What a way of choosing gained over random choice on one target."""

    target: str
    learner: str
    way: str
    budget: int
    gain: float
    evidence: float
    """Held-out log-likelihood of the target's labelled samples over that of random training."""


@dataclass(frozen=True)
class Expectation:
    """The gain in accuracy to expect of a way, with its 90 % interval."""

    way: str
    gain: float
    low: float
    high: float
    loss: float
    """The chance of losing more than a point."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Decision:
    """Which way to take, and what is expected of every one."""

    way: str
    expected: tuple[Expectation, ...]
    """The best first; random choice, which gains nothing, is not among them."""
    why: str


@dataclass(frozen=True, eq=False)
class GainModel:
    """A ridge regression of gains on cues; see the module."""

    ways: tuple[str, ...]
    scale: float
    """Standard deviation of the evidence."""
    weights: Float[np.ndarray, "columns"]
    error: tuple[float, float]
    """Squared error on targets that were left out: s0², and s1² of the evidence."""
    n_targets: int
    penalty: float

    @staticmethod
    def fit(seen: Sequence[GainSeen]) -> "GainModel":
        """Learn from gains on several targets; the penalty is the one that foretells best."""
        targets = sorted({s.target for s in seen})
        if len(targets) < _LEAST_TARGETS:
            raise DataError(
                f"gains were seen on {len(targets)} targets; at least {_LEAST_TARGETS} are needed "
                "to know what to expect on another."
            )
        ways = tuple(sorted({s.way for s in seen}))
        evidence = np.array([s.evidence for s in seen])
        scale = max(float(evidence.std()), 1e-6)
        x = _columns(evidence / scale, [s.way for s in seen], ways)
        y = np.array([s.gain for s in seen])
        of = np.array([targets.index(s.target) for s in seen])
        left_out = {p: _errors_left_out(x, y, of, p) for p in _PENALTIES}
        penalty = min(_PENALTIES, key=lambda p: float((left_out[p] ** 2).sum()))
        weights = _ridge(x, y, penalty)
        error = _spread_of(left_out[penalty], evidence / scale)
        return GainModel(ways, scale, weights, error, len(targets), penalty)

    def expect(self, way: str, evidence: float) -> Expectation:
        """What a way should gain on a target, given what its labelled samples say."""
        x = np.array([evidence / self.scale])
        gain = float((_columns(x, [way], self.ways) @ self.weights)[0])
        error = float(np.sqrt(self.error[0] + self.error[1] * x[0] ** 2))
        spread = student(self.n_targets - 1, loc=gain, scale=error)
        low, high = spread.interval(CONFIDENCE)
        return Expectation(way, gain, float(low), float(high), float(spread.cdf(-_LOSS)))


def decide(expected: Sequence[Expectation]) -> Decision:
    """The way to take: the best that hardly risks a loss, or half of it, or chance."""
    order = tuple(sorted(expected, key=lambda e: -e.gain))
    whole = [e for e in order if e.way != HALF]
    half = next((e for e in order if e.way == HALF), None)
    safe = [e for e in whole if e.gain > 0 and e.loss <= _RISK]
    if safe:
        best = safe[0]
        return Decision(best.way, order, f"{_gain(best)}, and a loss of over a point is unlikely")
    if half is not None and half.gain > 0 and half.loss <= _RISK:
        return Decision(
            HALF, order, f"no way is safe as a whole; half by it, half by chance: {_gain(half)}"
        )
    return Decision(RANDOM, order, "every way to choose might lose more than a point")


def _gain(e: Expectation) -> str:
    return f"{100 * e.gain:+.1f} points expected [{100 * e.low:+.1f}, {100 * e.high:+.1f}]"


def _columns(
    x: Float[np.ndarray, "rows"], ways: Sequence[str], known: Sequence[str]
) -> Float[np.ndarray, "rows columns"]:
    """A constant, which way it is, and the evidence; only the constant is not penalised."""
    which = np.array([[float(way == k) for k in known] for way in ways])
    return np.concatenate([np.ones((len(x), 1)), which, x[:, None]], axis=1)


def _ridge(
    x: Float[np.ndarray, "rows columns"], y: Float[np.ndarray, "rows"], penalty: float
) -> Float[np.ndarray, "columns"]:
    free = np.diag([0.0] + [penalty] * (x.shape[1] - 1))
    return np.linalg.solve(x.T @ x + free, x.T @ y)


def _errors_left_out(
    x: Float[np.ndarray, "rows columns"],
    y: Float[np.ndarray, "rows"],
    of: np.ndarray,
    penalty: float,
) -> Float[np.ndarray, "rows"]:
    """What is wrong when each target is foretold from the others."""
    errors = np.empty_like(y)
    for target in np.unique(of):
        own = of == target
        errors[own] = y[own] - x[own] @ _ridge(x[~own], y[~own], penalty)
    return errors


def _spread_of(
    errors: Float[np.ndarray, "rows"], evidence: Float[np.ndarray, "rows"]
) -> tuple[float, float]:
    """The two parts of the squared error, neither of them negative."""
    parts, _ = nnls(np.stack([np.ones_like(evidence), evidence**2], axis=1), errors**2)
    least = 0.25 * float(np.median(errors**2))
    return max(float(parts[0]), least, 1e-8), float(parts[1])


def known_experience(learner: str) -> list[GainSeen]:
    """Gains that come with the package: groups of the embedded pool that are not for testing.

    Those of ProtoNet stand in for a learner that was not tried.
    """
    text = (resources.files("taskscape.targets") / "experience.json").read_text("utf-8")
    seen = [GainSeen(**entry) for entry in json.loads(text)["seen"]]
    own = [s for s in seen if s.learner == learner]
    return own or [s for s in seen if s.learner == "protonet"]
