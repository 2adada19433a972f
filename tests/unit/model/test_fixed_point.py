"""Sums of products, few of them or many."""

import jax.numpy as jnp
import numpy as np
import pytest

from taskscape.model.fixed_point import sum_products


@pytest.mark.parametrize("rows", [3, 20])
def test_sums_of_products_are_those_of_einsum(rows):
    rng = np.random.default_rng(rows)
    w = rng.random((4, rows, 6)).astype(np.float32)
    p = rng.random((5, rows, 6)).astype(np.float32)
    share = rng.random((rows, 5, 6)).astype(np.float32)
    weights = rng.random((rows, 4, 6)).astype(np.float32)
    for axes, a, b in (("lka,nka->lna", w, p), ("lna,lka->nka", share, weights)):
        expected = np.einsum(axes, a, b, dtype=np.float64)
        np.testing.assert_allclose(
            sum_products(jnp.asarray(a), jnp.asarray(b), axes), expected, rtol=1e-5
        )
