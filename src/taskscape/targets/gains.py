r"""What a choice is expected to gain, learned from targets on which the gain was seen.

Accuracy on a target's few labelled samples is too noisy to choose by alone. So every way of
choosing was tried on other targets, with ample queries, and its gain is explained by which way it
is and by the evidence: how much likelier the target's labelled samples, each left out in turn, are
after training on its choice than after training at random,

.. math:: g_{tw} = a + b_w + c\, x_{tw} + e_{tw}

over targets t and ways w: a ridge regression whose penalty and error come from predicting each
target from the others. Prior and evidence are so weighed by how well each predicted gains before.
Where the samples say much, gains are large, and so are the errors:

.. math:: E[e_{tw}^2] = s_0^2 + s_1^2\, x_{tw}^2

A target with a single sample of a class has no evidence. That is not evidence of 0: it might be any
of those that the way had on other targets, and the gain is what it would be by each of them.

Other cues were tried and are not used: on targets left out they predicted little more for one
learner and nothing for the other (docs/targets.md).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq, nnls
from scipy.stats import t as student

from taskscape.errors import DataError
from taskscape.select.known import RANDOM
from taskscape.statistics import Interval
from taskscape.targets.advisor import WayTrials
from taskscape.targets.known import HALF, WAYS

CONFIDENCE = 0.9
_LOSS, _RISK = 0.01, 0.1
"""A choice should not lose more than a point of accuracy, but by this chance."""
_PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
LEAST_TARGETS = 4


def evidence_of(trials: WayTrials, random: WayTrials) -> float | None:
    """What the target's labelled samples, each left out in turn, say for a way over chance.

    In nats per sample; None where a class has a single sample.
    """
    if trials.held_out is None or random.held_out is None:
        return None
    return float(trials.held_out.mean() - random.held_out.mean())


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
    usual: float
    """What the way gained on other targets, on average."""

    @property
    def interval(self) -> Interval:
        """The gain with its interval."""
        return Interval(self.gain, self.low, self.high)


@dataclass(frozen=True)
class Decision:
    """Which way to take, and what is expected of every one."""

    way: str
    expected: tuple[Expectation, ...]
    """The best first; random choice, which gains nothing, is not among them."""
    why: str


@dataclass(frozen=True, eq=False)
class GainModel:
    """A ridge regression of gains on the way and the evidence; see the module."""

    ways: tuple[str, ...]
    usual: Mapping[str, float]
    """The mean gain of every way on those targets."""
    evidence: Mapping[str, Float[np.ndarray, "_"]]
    """What the labelled samples of those targets said for every way, over ``scale``."""
    scale: float
    """Standard deviation of the evidence."""
    weights: Float[np.ndarray, "columns"]
    error: tuple[float, float]
    """Squared error on targets that were left out: s0², and s1² of the evidence."""
    n_targets: int

    @staticmethod
    def fit(seen: Sequence[GainSeen]) -> "GainModel":
        """Learn from gains on several targets; the penalty is the one that predicts best."""
        targets = sorted({s.target for s in seen})
        if len(targets) < LEAST_TARGETS:
            raise DataError(
                f"gains were seen on {len(targets)} targets; at least {LEAST_TARGETS} are needed "
                "to know what to expect on another."
            )
        ways = tuple(sorted({s.way for s in seen}))
        evidence = np.array([s.evidence for s in seen])
        scale = max(float(evidence.std()), 1e-6)
        evidence /= scale
        x = _columns(evidence, [s.way for s in seen], ways)
        y = np.array([s.gain for s in seen])
        of = np.array([targets.index(s.target) for s in seen])
        left_out = {p: _errors_left_out(x, y, of, p) for p in _PENALTIES}
        penalty = min(_PENALTIES, key=lambda p: float((left_out[p] ** 2).sum()))
        by_way = {w: np.array([s.way == w for s in seen]) for w in ways}
        return GainModel(
            ways=ways,
            usual={w: float(y[own].mean()) for w, own in by_way.items()},
            evidence={w: evidence[own] for w, own in by_way.items()},
            scale=scale,
            weights=_ridge(x, y, penalty),
            error=_spread_of(left_out[penalty], evidence),
            n_targets=len(targets),
        )

    def expect(self, way: str, evidence: float | None) -> Expectation:
        """What a way should gain on a target, given what its labelled samples say, if they do."""
        x = self.evidence[way] if evidence is None else np.array([evidence / self.scale])
        gains, spread = self._gains(way, x)
        tail = (1 - CONFIDENCE) / 2
        return Expectation(
            way,
            gain=float(gains.mean()),
            low=_quantile(spread, tail),
            high=_quantile(spread, 1 - tail),
            loss=float(np.mean([self._loss(way, evidence) for evidence in x])),
            usual=self.usual[way],
        )

    def _gains(
        self, way: str, evidence: Float[np.ndarray, "n"]
    ) -> tuple[Float[np.ndarray, "n"], Any]:
        """Gains to expect by evidence, over ``scale``, and how what is seen spreads around them."""
        gains = _columns(evidence, [way] * len(evidence), self.ways) @ self.weights
        errors = np.sqrt(self.error[0] + self.error[1] * evidence**2)
        return gains, student(self.n_targets - 1, loc=gains, scale=errors)

    def _loss(self, way: str, evidence: float) -> float:
        r"""The chance of losing more than a point, which more evidence for a way does not raise.

        By the spread alone it would, as that grows with the evidence on both sides. The chance
        rises with :math:`z(x) = (u - c x) / \sqrt{s_0^2 + s_1^2 x^2}`, u being how far a point's
        loss is from the gain without evidence, and z turns at :math:`x = -c s_0^2 / (u s_1^2)`; it
        is the least of what no more evidence than this would give.
        """
        start = min(evidence, 0.0)
        u = -_LOSS - float(self._gains(way, np.zeros(1))[0][0])
        turn = -self.weights[-1] * self.error[0] / (u * self.error[1] or np.inf)
        at = np.array([start, evidence, np.clip(turn, start, max(evidence, start))])
        return float(self._gains(way, at)[1].cdf(-_LOSS).min())


def decide(expected: Sequence[Expectation]) -> Decision:
    """The way to take: what gained most on other targets, if it hardly risks a loss on this one.

    Else half by it and half by chance, else chance. The ways are not chosen among by this target's
    own evidence: that was no better on average, and lost more at worst.
    """
    order = tuple(sorted(expected, key=lambda e: -e.gain))
    best = max((e for e in order if e.way != HALF), key=lambda e: e.usual, default=None)
    half = next((e for e in order if e.way == HALF), None)
    taken = next((e for e in (best, half) if e and e.gain > 0 and e.loss <= _RISK), None)
    if taken is None:
        why = "What choosing gains is not known."
        if best is not None:
            also = "" if half is None else f", and so might {WAYS[HALF]}"
            why = (
                f"Choosing {WAYS.get(best.way, best.way)} gained most on other targets, but might "
                f"gain nothing here or lose over a point{also}."
            )
        return Decision(RANDOM, order, why)
    gain = f"{taken.interval.in_points()} points are expected here"
    if taken is half:
        why = f"Choosing all of them might lose; so half are by chance, and {gain}."
    else:
        why = f"This way gained most on other targets; {gain}, and a loss of over one is unlikely."
    return Decision(taken.way, order, why)


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
    """What is wrong when each target is predicted from the others."""
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


def _quantile(spread: Any, level: float) -> float:
    """Of a mixture of distributions, each as likely as any other."""
    each, reach = spread.ppf(level), float(spread.std().max())
    ends = float(each.min()) - reach, float(each.max()) + reach
    return float(brentq(lambda gain: float(spread.cdf(gain).mean()) - level, *ends))


def known_experience(learner: str, *, joined: bool = False) -> list[GainSeen]:
    """Gains that come with the package: groups of the embedded pool that are not for testing.

    With ``joined``, those of the embedded pool and Omniglot together: where a pool has several
    sources, other ways of choosing gain most than within one. Those of ProtoNet stand in for a
    learner that was not tried.
    """
    name = "experience_joined.json" if joined else "experience.json"
    text = (resources.files("taskscape.targets") / name).read_text("utf-8")
    seen = [GainSeen(**entry) for entry in json.loads(text)["seen"]]
    own = [s for s in seen if s.learner == learner]
    return own or [s for s in seen if s.learner == "protonet"]
