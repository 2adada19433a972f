"""The Dirichlet normaliser and entropy in float32 against SciPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from taskscape.model import entropy, expected_log, log_beta

TOTALS = (1e-2, 1.0, 10.0, 1e3, 1e5, 1e6)


def concentrations(K: int, total: float) -> np.ndarray:
    """Even, skewed and nearly one-cornered, none below 1e-3, with this sum (or a little more)."""
    rng = np.random.default_rng(0)
    corner = np.full((1, K), 1e-9)
    corner[0, -1] = 1
    shares = [rng.dirichlet(np.full(K, c), 500) for c in (20.0, 0.3)]
    return np.maximum(total * np.concatenate([*shares, corner]), 1e-3).astype(np.float32)


def exact_log_beta(alpha: np.ndarray) -> np.ndarray:
    alpha = alpha.astype(np.float64)
    return special.gammaln(alpha).sum(-1) - special.gammaln(alpha.sum(-1))


def exact_expected_log(alpha: np.ndarray) -> np.ndarray:
    alpha = alpha.astype(np.float64)
    return special.digamma(alpha) - special.digamma(alpha.sum(-1, keepdims=True))


@pytest.mark.parametrize("total", TOTALS)
@pytest.mark.parametrize("K", [2, 8, 32])
def test_the_normaliser_is_right_to_a_few_roundings(K: int, total: float) -> None:
    alpha = concentrations(K, total)
    wanted = exact_log_beta(alpha)
    error = np.abs(np.asarray(jax.jit(log_beta)(jnp.asarray(alpha))) - wanted)
    assert (error / (K + np.abs(wanted))).max() < 1e-6
    corner = error[-1]  # ln B itself is small there, however large the sum of alpha
    assert corner < 1e-4


@pytest.mark.parametrize("total", TOTALS)
@pytest.mark.parametrize("K", [2, 8, 32])
def test_the_entropy_is_right_to_a_few_roundings(K: int, total: float) -> None:
    alpha = concentrations(K, total)
    logs = exact_expected_log(alpha)
    wanted = exact_log_beta(alpha) - ((alpha.astype(np.float64) - 1) * logs).sum(-1)
    error = np.abs(np.asarray(jax.jit(entropy)(jnp.asarray(alpha))) - wanted)
    assert (error / (K + np.abs(wanted))).max() < 2e-6


@pytest.mark.parametrize("total", TOTALS)
def test_derivatives(total: float) -> None:
    alpha = concentrations(8, total)
    a = alpha.astype(np.float64)
    result = jax.grad(lambda x: log_beta(x).sum())(jnp.asarray(alpha))
    np.testing.assert_allclose(result, exact_expected_log(alpha), rtol=1e-6, atol=3e-6)
    sums = a.sum(-1, keepdims=True)
    of_sum, own = special.polygamma(1, sums) * (sums - 8), special.polygamma(1, a) * (a - 1)
    result = jax.grad(lambda x: entropy(x).sum())(jnp.asarray(alpha))
    error = np.abs(np.asarray(result) - (of_sum - own)) / (1 + np.abs(of_sum) + np.abs(own))
    assert error.max() < 1e-5


def test_one_component_alone_equal_ones_and_batches() -> None:
    np.testing.assert_allclose(log_beta(jnp.asarray([[3.0], [1e6]], jnp.float32)), 0, atol=1e-6)
    even = jnp.full((2, 3, 4), 5.0, jnp.float32)
    np.testing.assert_allclose(log_beta(even), exact_log_beta(np.asarray(even)), rtol=1e-6)
    np.testing.assert_allclose(
        jax.jacfwd(log_beta)(even[0, 0]), expected_log(even[0, 0]), rtol=1e-6
    )
