"""Sweeps over scaled likelihoods against sweeps over logarithms."""

import jax
import jax.numpy as jnp
import numpy as np

from taskscape.model import (
    cold_start,
    collapsed_elbo,
    elbo,
    scale_likelihood,
    scaled_sweep,
    sweep,
)


def case(spread: float):
    rng = np.random.default_rng(0)
    log_lik = jnp.asarray(spread * rng.normal(size=(6, 4, 7, 5)), jnp.float32)
    class_mask = jnp.asarray(rng.random((6, 4)) < 0.8).at[:, 0].set(True)
    sample_mask = jnp.asarray(rng.random((6, 4, 7)) < 0.8).at[:, :, 0].set(True)
    alpha = jnp.asarray(rng.uniform(0.02, 2, (3, 5)), jnp.float32)
    return log_lik, sample_mask, class_mask, alpha, jnp.full(3, 0.5)


def test_both_agree_where_it_says_so():
    log_lik, sample_mask, class_mask, alpha, delta = case(spread=5.0)
    plain = scaled = cold_start(sample_mask, class_mask, alpha, delta)
    p = scale_likelihood(log_lik)
    for _ in range(5):
        plain = sweep(plain, log_lik, sample_mask, class_mask, alpha, delta)
        scaled, trusted = scaled_sweep(scaled, p, sample_mask, class_mask, alpha, delta)
        assert trusted.all()
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(scaled), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_underflow_is_noticed_task_by_task():
    log_lik, sample_mask, class_mask, alpha, delta = case(spread=1.0)
    sample_mask = jnp.ones_like(sample_mask)
    log_lik = log_lik.at[2, 0, 0].add(jnp.asarray([0.0, -300.0, -300.0, -300.0, -300.0]))
    start = cold_start(sample_mask, class_mask, alpha, delta)
    gamma = start.gamma.at[2, 0].set(jnp.asarray([0.005, 5.0, 5.0, 5.0, 5.0]))
    start = type(start)(lam=start.lam, eta=start.eta, gamma=gamma)
    _, trusted = scaled_sweep(
        start, scale_likelihood(log_lik), sample_mask, class_mask, alpha, delta
    )
    assert trusted.tolist() == [True, True, False, True, True, True]


def test_the_collapsed_bound_is_the_sum_of_the_nine_terms():
    log_lik, sample_mask, class_mask, alpha, delta = case(spread=5.0)
    posterior = sweep(
        cold_start(sample_mask, class_mask, alpha, delta),
        log_lik, sample_mask, class_mask, alpha, delta,
    )  # fmt: skip
    terms = elbo(posterior, log_lik, sample_mask, class_mask, alpha, delta)
    total = collapsed_elbo(posterior, log_lik, sample_mask, class_mask, alpha, delta)
    np.testing.assert_allclose(total, terms.total, rtol=1e-5)
