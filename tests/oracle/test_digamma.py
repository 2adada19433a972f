"""The fast digamma against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from taskscape.model.dirichlet import digamma, trigamma


def test_float32_is_accurate_to_rounding_over_ten_decades():
    x = np.logspace(-6, 7, 40_000).astype(np.float32)
    wanted = special.digamma(x.astype(np.float64))
    error = np.abs(np.asarray(digamma(jnp.asarray(x))) - wanted) / (1 + np.abs(wanted))
    assert error.max() < 1e-6


def test_its_derivative_is_the_trigamma_function():
    x = jnp.asarray(np.logspace(-2, 5, 200), jnp.float32)
    slope = jax.vmap(jax.grad(lambda v: digamma(v[None])[0]))(x)
    np.testing.assert_allclose(slope, trigamma(x), rtol=2e-4)
