"""Closed forms against Monte Carlo, quadrature, SciPy and slow loops."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta, dirichlet

from taskscape.compare import distances, mean_distance
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
