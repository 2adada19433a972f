"""eq:log_dirichlet_normalized_const, eq:log_tilde_theta and eq:log_tilde_phi."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import scipy.stats
from small_case import Case

from taskscape.model import entropy, expected_log, kl_divergence, log_beta, log_density


def test_eq_log_dirichlet_normalized_const() -> None:
    pair = jnp.array([0.7, 2.5])
    np.testing.assert_allclose(log_beta(pair), scipy.special.betaln(0.7, 2.5), rtol=1e-12)
    alpha, theta = jnp.array([0.7, 2.5, 1.3]), jnp.array([0.2, 0.5, 0.3])
    expected = scipy.stats.dirichlet(np.asarray(alpha)).logpdf(np.asarray(theta))
    np.testing.assert_allclose(log_density(theta, alpha), expected, rtol=1e-12)


def test_eq_log_tilde_theta(case: Case) -> None:
    """The expected sufficient statistic is the derivative of the log-normaliser."""
    gamma = case.posterior.gamma
    derivative = jax.grad(lambda g: log_beta(g).sum())(gamma)
    np.testing.assert_allclose(expected_log(gamma), derivative, rtol=1e-9)


def test_eq_log_tilde_phi(case: Case) -> None:
    """The sum runs over the L task-themes; the paper writes K, and lambda_dl inside it."""
    lam = np.asarray(case.posterior.lam)
    expected = scipy.special.digamma(lam) - scipy.special.digamma(lam.sum(-1, keepdims=True))
    np.testing.assert_allclose(expected_log(case.posterior.lam), expected, rtol=1e-10)
    printed = scipy.special.digamma(lam) - scipy.special.digamma(case.themes.K * lam)
    assert np.abs(printed - expected).max() > 0.1


def test_cross_entropy_of_two_dirichlets() -> None:
    a, b = jnp.array([0.4, 1.5, 3.0]), jnp.array([2.0, 0.9, 0.6])
    cross_entropy = log_beta(b) - ((b - 1) * expected_log(a)).sum()
    np.testing.assert_allclose(kl_divergence(a, b), cross_entropy - entropy(a), rtol=1e-10)
    np.testing.assert_allclose(entropy(a), scipy.stats.dirichlet(np.asarray(a)).entropy())
    draws = jnp.asarray(np.random.default_rng(0).dirichlet(np.asarray(a), 50_000))
    ratio = log_density(draws, jnp.broadcast_to(a, draws.shape)) - log_density(
        draws, jnp.broadcast_to(b, draws.shape)
    )
    assert abs(ratio.mean() - kl_divergence(a, b)) < 4 * ratio.std() / np.sqrt(len(draws))
