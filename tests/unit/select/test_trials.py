"""From trials to gains over random choice, whoever ran the trials."""

import numpy as np
import pytest

from taskscape.select.trials import Outcome, Trial, outcomes
from taskscape.statistics import gain_interval, mean_interval

RANDOM, NEAREST = (0.50, 0.54, 0.52), (0.60, 0.62)


def trials(rule: str, accuracies: tuple[float, ...], shift: float = 0.0) -> list[Trial]:
    return [
        Trial("maml", rule, 10, i, a, tuple((a + shift * np.arange(-2, 3)).tolist()))
        for i, a in enumerate(accuracies)
    ]


def gain_of(outcome: Outcome) -> tuple[float, float, float]:
    assert outcome.gain is not None
    return outcome.gain.value, outcome.gain.low, outcome.gain.high


def test_a_gain_is_that_of_the_statistics() -> None:
    random, nearest = outcomes([*trials("random", RANDOM), *trials("nearest", NEAREST, 0.01)])
    assert (random.gain, random.losing_share, random.n_trials) == (None, None, 3)
    assert random.accuracy == mean_interval(np.array(RANDOM))
    assert random.spread == pytest.approx(np.std(RANDOM, ddof=1))
    without = (np.mean(NEAREST) + 0.01 * np.arange(-2, 3), np.full(5, np.mean(RANDOM)))
    expected = gain_interval(np.array(NEAREST), np.array(RANDOM), without)
    assert gain_of(nearest) == pytest.approx((expected.value, expected.low, expected.high))
    assert nearest.losing_share == 0


def test_where_classes_are_not_known_it_is_over_trials() -> None:
    bare = Trial("maml", "nearest", 10, 0, 0.6)
    nearest = outcomes([bare, *trials("random", RANDOM)])[0]
    expected = gain_interval(np.array([0.6]), np.array(RANDOM))
    assert gain_of(nearest) == pytest.approx((expected.value, expected.low, expected.high))
    assert np.isnan(nearest.spread)


def test_only_trials_of_the_same_learner_and_budget_are_compared() -> None:
    other = Trial("maml", "nearest", 20, 0, 0.6)
    *_, alone = outcomes([*trials("random", RANDOM), other])
    assert alone.budget == 20
    assert alone.gain is None
