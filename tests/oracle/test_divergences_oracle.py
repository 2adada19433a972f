"""Closed forms against Monte Carlo, quadrature, SciPy and slow loops."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import linprog
from scipy.stats import beta, dirichlet

from taskscape.compare import distances, divergence_with_error, mean_distance, theme_cost
from taskscape.embeddings import Factor, Posterior

RNG = np.random.default_rng(0)
P, Q = np.array([1.5, 2.0, 0.8, 3.0]), np.array([0.7, 1.0, 3.0, 2.0])


@pytest.fixture(scope="module")
def points():
    phi = RNG.dirichlet(P, 400_000)
    return dirichlet(P).logpdf(phi.T), dirichlet(Q).logpdf(phi.T)


def mean_and_error(values):
    return values.mean(), values.std() / np.sqrt(len(values))


def test_kl_by_monte_carlo(points):
    expected, error = mean_and_error(points[0] - points[1])
    assert abs(distances(P, Q, paired=True) - expected) < 4 * error


def test_bhattacharyya_and_hellinger_by_monte_carlo(points):
    overlap, error = mean_and_error(np.exp((points[1] - points[0]) / 2))
    assert abs(np.exp(-distances(P, Q, "bhattacharyya", paired=True)) - overlap) < 4 * error
    assert abs(1 - distances(P, Q, "hellinger", paired=True) ** 2 - overlap) < 4 * error


def test_jensen_shannon_by_monte_carlo(points):
    from_q = RNG.dirichlet(Q, 400_000)
    p, q = dirichlet(P).logpdf(from_q.T), dirichlet(Q).logpdf(from_q.T)
    first = np.log(2) - np.log1p(np.exp(points[1] - points[0]))
    second = np.log(2) - np.log1p(np.exp(p - q))
    expected = (first.mean() + second.mean()) / 2
    computed = divergence_with_error(P, Q, "jensen_shannon", n_samples=50_000)
    assert abs(computed.value - expected) < 4 * computed.stderr + 2e-3


def test_two_themes_by_quadrature():
    a, b = np.array([1.3, 2.4]), np.array([3.0, 1.7])
    p, q = beta(*a).pdf, beta(*b).pdf

    def integral(f):
        return quad(f, 0, 1, limit=200)[0]

    kl = integral(lambda x: p(x) * np.log(p(x) / q(x)) if p(x) > 0 else 0.0)
    assert distances(a, b, paired=True) == pytest.approx(kl, rel=1e-6)
    overlap = integral(lambda x: np.sqrt(p(x) * q(x)))
    assert distances(a, b, "bhattacharyya", paired=True) == pytest.approx(
        -np.log(overlap), rel=1e-6
    )

    def js(x):
        m = (p(x) + q(x)) / 2
        return sum(d * np.log(d / m) / 2 for d in (p(x), q(x)) if d > 0)

    computed = divergence_with_error(a, b, "jensen_shannon", n_samples=200_000)
    assert abs(computed.value - integral(js)) < 4 * computed.stderr
    assert computed.stderr < 1e-3


def test_positions_are_gaussians_of_unit_covariance():
    a, b = RNG.normal(size=(2, 3))
    place = (Factor("position", "gaussian", 3),)
    p, q = (Posterior.of(m[None], place) for m in (a, b))
    x = a + RNG.normal(size=(400_000, 3))
    ratio = ((x - b) ** 2 - (x - a) ** 2).sum(axis=1) / 2  # ln p(x) − ln q(x) under p
    for kind, values in {"kl": ratio, "bhattacharyya": np.exp(-ratio / 2)}.items():
        expected, error = mean_and_error(values)
        computed = distances(p, q, kind)[0, 0]
        assert (
            abs((np.exp(-computed) if kind == "bhattacharyya" else computed) - expected) < 4 * error
        )


def test_the_standard_error_is_honest():
    runs = [
        divergence_with_error(P, Q, "jensen_shannon", n_samples=400, seed=s) for s in range(200)
    ]
    spread = np.std([r.value for r in runs])
    assert np.mean([r.stderr for r in runs]) == pytest.approx(spread, rel=0.2)


def test_emd_by_linear_programming():
    alpha = RNG.gamma(1, 2, (4, 5)) + 0.1
    cost = theme_cost(alpha)
    rows = [np.kron(np.eye(4)[i], np.ones(4)) for i in range(4)]
    columns = [np.kron(np.ones(4), np.eye(4)[i]) for i in range(4)]
    masses = np.r_[P / P.sum(), Q / Q.sum()]
    solved = linprog(cost.ravel(), A_eq=np.array(rows + columns), b_eq=masses)
    assert distances(P, Q, "emd", alpha=alpha, paired=True) == pytest.approx(solved.fun, rel=1e-6)


def test_the_mean_by_a_slow_loop():
    test, train = RNG.gamma(1, 2, (6, 3)) + 0.1, RNG.gamma(1, 2, (40, 3)) + 0.1
    slow = np.array([[distances(a, b, paired=True) for b in train] for a in test])
    np.testing.assert_allclose(distances(test, train), slow, rtol=1e-12)
    np.testing.assert_allclose(mean_distance(test, train), slow.mean(axis=1), rtol=1e-10)


def test_kl_agrees_with_the_model():
    import jax.numpy as jnp

    from taskscape.model.dirichlet import kl_divergence

    pairs = list(itertools.product([P, Q], repeat=2))
    a, b = (np.stack(x) for x in zip(*pairs, strict=True))
    computed = kl_divergence(jnp.asarray(a), jnp.asarray(b))
    np.testing.assert_allclose(distances(a, b, paired=True), computed, atol=1e-4)
