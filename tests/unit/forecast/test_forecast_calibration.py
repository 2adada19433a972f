"""From numbers to expected accuracies: intervals hold what they say, parts sum to the whole."""

from itertools import pairwise

import numpy as np
import pytest

from taskscape.forecast.calibration import Calibration, calibrate
from taskscape.forecast.features import SHAPE

COLUMNS = ("mean_distance", "hardness")


def made_up(seed: int, n_classes: int, n_tasks: int, first: int = 0, bias: float = 0.0):
    """Tasks whose log-odds follow one column, their own classes, and chance."""
    rng = np.random.default_rng(seed)
    effects = rng.normal(size=n_classes)
    classes = np.array([rng.choice(n_classes, 5, replace=False) for _ in range(n_tasks)])
    X = rng.normal(size=(n_tasks, 2))
    logits = 1 + 0.8 * X[:, 0] + effects[classes].mean(axis=1) - np.log(4) + bias
    return X, 1 / (1 + np.exp(-logits)), classes + first


def calibrated(seed: int = 0, n_classes: int = 20, n_tasks: int = 300) -> Calibration:
    X, accuracy, classes = made_up(seed, n_classes, n_tasks)
    return calibrate(COLUMNS, X, accuracy, classes, np.ones(2))


def test_a_higher_confidence_gives_a_wider_interval():
    X, _, classes = made_up(5, 20, 50)
    expected = [calibrated().expect(X, (classes >= 0).sum(1), c, "A") for c in (0.5, 0.9, 0.999)]
    widths = [(f.high - f.low).mean() for f in expected]
    assert widths[0] < widths[1] < widths[2]


def test_parts_sum_to_the_difference_from_the_average_task():
    X, _, _ = made_up(6, 20, 60)
    X[0] = calibrated().ridge.mean  # no difference at all
    n_way = np.r_[np.full(30, 5), np.full(30, 8)]
    n_way[0] = 5
    expected = calibrated().expect(X, n_way, 0.99, "A")
    whole = sum(expected.reasons.values())
    np.testing.assert_allclose(whole, expected.expected - expected.average, atol=1e-6)
    assert (expected.reasons[SHAPE][n_way == 8] < 0).all()
    np.testing.assert_allclose(expected.reasons[SHAPE][n_way == 5], 0, atol=1e-12)


def test_the_order_of_the_tasks_plays_no_part():
    X, accuracy, classes = made_up(0, 20, 300)
    order = np.random.default_rng(1).permutation(300)
    one = calibrate(COLUMNS, X, accuracy, classes, np.ones(2))
    other = calibrate(COLUMNS, X[order], accuracy[order], classes[order], np.ones(2))
    assert one.penalty == other.penalty
    assert one.spread.of_classes == pytest.approx(other.spread.of_classes, abs=1e-9)
    assert one.spread.of_tasks == pytest.approx(other.spread.of_tasks, abs=1e-9)
    np.testing.assert_allclose(one.spread.of_coefficients, other.spread.of_coefficients, atol=1e-9)
    np.testing.assert_allclose(one.ridge.weights, other.ridge.weights, atol=1e-9)


def test_perfect_and_hopeless_accuracies_are_taken():
    X, accuracy, classes = made_up(0, 20, 300)
    result = calibrate(COLUMNS, X, np.round(accuracy), classes, np.ones(2))
    assert np.isfinite(result.spread.of_coefficients).all()
    expected = result.expect(X, (classes >= 0).sum(1), 0.9, "A")
    ordered = [0, expected.low, expected.expected, expected.high, 1]
    assert all((low <= high).all() for low, high in pairwise(ordered))


def test_accuracies_near_one_are_within_reach():
    rng = np.random.default_rng(3)
    classes = np.array([rng.choice(20, 5, replace=False) for _ in range(300)])
    X = rng.normal(size=(300, 2))
    accuracy = 1 / (1 + np.exp(-5 - 0.5 * X[:, 0] - 0.3 * rng.normal(size=300)))
    result = calibrate(COLUMNS, X, accuracy, classes, np.ones(2))
    expected = result.expect(X, np.full(300, 5), 0.9, "A")
    assert np.mean(accuracy > expected.high) < 0.1
    assert expected.expected.mean() == pytest.approx(accuracy.mean(), abs=1e-3)


def test_what_lies_outside_is_seen():
    forecaster = calibrated()
    X = np.array([[0.0, 0.0], [99.0, 0.0], [0.0, np.nan]])
    assert forecaster.outside(X).tolist() == [[False, False], [True, False], [False, False]]


def test_held_out_errors_are_larger_than_those_on_known_classes():
    X, accuracy, classes = made_up(0, 20, 300)
    forecaster = calibrated()
    known = np.abs(forecaster.expect(X, (classes >= 0).sum(1), 0.9, "A").expected - accuracy).mean()
    assert forecaster.error > known
    assert forecaster.mean_accuracy == pytest.approx(accuracy.mean())
