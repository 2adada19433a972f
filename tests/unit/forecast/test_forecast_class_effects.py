"""Class effects about a ridge fit: against plain loops, and against worlds where they are known."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge as TheirRidge

from taskscape.forecast.calibration import Spread, calibrate, class_shares, fit_spread

COLUMNS = ("mean_distance", "near_distance", "hardness", "spread_within")

WAY = 5


def tasks_of(rng: np.random.Generator, n_classes: int, n_tasks: int) -> np.ndarray:
    return np.array([rng.choice(n_classes, WAY, replace=False) for _ in range(n_tasks)])


def world(seed: int, n_classes: int, effect: float, n_tasks: int, n_new: int = 40):
    """Calibration tasks that share classes, and new tasks with five classes each to themselves.

    Log-odds of 1.5 in the middle; columns that go with the classes in part, as real ones do.
    """
    rng = np.random.default_rng(seed)

    def measured(classes: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        traits, effects = rng.normal(size=(n, 4)), effect * rng.normal(size=n)
        X = (traits[classes].sum(1) / WAY**0.5 + rng.normal(size=(len(classes), 4))) / 2**0.5
        noise = 0.15 * rng.normal(size=len(classes))
        logits = 1.5 + X @ [0.5, 0.2, 0, 0] + effects[classes].mean(1) + noise
        return X, 1 / (1 + np.exp(-logits))

    classes = tasks_of(rng, n_classes, n_tasks)
    new = np.arange(WAY * n_new).reshape(n_new, WAY)
    return classes, *measured(classes, n_classes), *measured(new, WAY * n_new)


@pytest.mark.slow
@pytest.mark.parametrize("effect", [0.1, 0.3, 1.0])
@pytest.mark.parametrize(
    ("n_classes", "n_tasks", "pools"), [(8, 56, 150), (16, 120, 100), (40, 200, 60)]
)
def test_nine_of_ten_new_tasks_are_held_whatever_the_classes(n_classes, n_tasks, pools, effect):
    held = []
    for seed in range(pools):
        classes, X, accuracy, new, actual = world(seed, n_classes, effect, n_tasks)
        built = calibrate(COLUMNS, X, accuracy, classes, np.ones(4))
        expected = built.expect(new, np.full(len(new), WAY), 0.9, "A")
        held.append(((expected.low <= actual) & (actual <= expected.high)).mean())
    assert 0.88 <= np.mean(held) <= 0.92


def test_few_classes_with_large_effects_widen_the_interval():
    held = []
    for seed in range(40):
        classes, X, accuracy, new, actual = world(seed, 8, 1.0, 56, n_new=200)
        built = calibrate(COLUMNS, X, accuracy, classes, np.ones(4))
        expected = built.expect(new, np.full(len(new), WAY), 0.9, "A")
        held.append(((expected.low <= actual) & (actual <= expected.high)).mean())
    assert 0.87 <= np.mean(held) <= 0.93


def test_variances_are_those_that_tasks_were_made_with():
    rng = np.random.default_rng(0)
    Z, classes = rng.normal(size=(200, 3)), tasks_of(rng, 12, 200)
    result, weights = [], []
    for _ in range(400):
        u, e = 2.0 * rng.normal(size=12), 0.5 * rng.normal(size=200)
        y = 1 + Z @ [1, 0, -1] + u[classes].mean(1) + e
        result.append(fit_spread(Z, y, classes, 1e-6))
        fit = TheirRidge(alpha=200e-6).fit(Z, y)
        weights.append(np.r_[fit.intercept_, fit.coef_])
    assert np.mean([f.of_classes for f in result]) == pytest.approx(4.0, rel=0.1)
    assert np.mean([f.of_tasks for f in result]) == pytest.approx(0.25, rel=0.05)
    expected = np.mean([f.of_coefficients for f in result], axis=0)
    np.testing.assert_allclose(expected, np.cov(np.transpose(weights)), atol=0.03)


def test_the_two_sums_of_squares_are_those_of_plain_matrices():
    rng = np.random.default_rng(1)
    Z, classes = rng.normal(size=(60, 2)), tasks_of(rng, 9, 60)
    y = rng.normal(size=9)[classes].mean(1) + 0.3 * rng.normal(size=60)
    measured = fit_spread(Z, y, classes, 0.05)
    A = np.c_[np.ones(60), Z]
    R = np.eye(60) - A @ np.linalg.inv(A.T @ A + 3.0 * np.diag([0, 1, 1])) @ A.T
    M = class_shares(classes)
    together = measured.of_classes * M @ M.T + measured.of_tasks * np.eye(60)
    r = R @ y
    assert r @ r == pytest.approx(np.trace(R @ together @ R.T))
    assert (M.T @ r) @ (M.T @ r) == pytest.approx(np.trace(M.T @ R @ together @ R.T @ M))


@pytest.mark.parametrize(("effect", "noise"), [(0.0, 1.0), (1.0, 0.0)])
def test_a_variance_is_never_negative(effect, noise):
    rng = np.random.default_rng(2)
    Z, classes = rng.normal(size=(80, 2)), tasks_of(rng, 10, 80)
    for _ in range(20):
        y = effect * rng.normal(size=10)[classes].mean(1) + noise * rng.normal(size=80)
        measured = fit_spread(Z, y, classes, 0.01)
        assert measured.of_classes >= 0
        assert measured.of_tasks >= 0
        assert measured.of_classes + measured.of_tasks > 0


def test_a_task_of_more_classes_averages_over_their_effects():
    built = Spread(2.0, 0.5, np.diag([0.1, 0.2]))
    result = built.variance(np.array([[0.0], [3.0]]), np.array([2, 5]))
    np.testing.assert_allclose(result, [2 / 2 + 0.5 + 0.1, 2 / 5 + 0.5 + 0.1 + 0.2 * 9])


def test_padding_is_no_class():
    shares = class_shares(np.array([[4, 7, -1], [7, 9, 4]]))
    np.testing.assert_allclose(shares, [[1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]])
