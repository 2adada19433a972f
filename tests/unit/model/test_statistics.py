"""Accumulated statistics: sums, averages, priors, dead themes and cancellation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskscape.model import (
    TaskPosterior,
    ThemePrior,
    Themes,
    ThemeStatistics,
    blend,
    m_step,
    relative_prior,
    statistics,
    zero_statistics,
)

M, C, N, K, L, D = 4, 3, 5, 3, 2, 2
CLASS_MASK = np.ones((M, C), bool)

compiled_statistics = jax.jit(statistics)
compiled_m_step = jax.jit(m_step)


def posterior_of(rng: np.random.Generator, M: int) -> TaskPosterior:
    """A posterior in generic position."""
    return TaskPosterior(
        lam=jnp.asarray(rng.gamma(2.0, 1.0, (M, L)), jnp.float32),
        eta=jnp.asarray(rng.dirichlet(np.ones(L), (M, C)), jnp.float32),
        gamma=jnp.asarray(rng.gamma(2.0, 1.0, (M, C, K)) + 0.1, jnp.float32),
    )


def batch() -> tuple[ThemeStatistics, list[ThemeStatistics]]:
    """The statistics of a batch, and of each of its tasks alone."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(M, C, N, D)), jnp.float32)
    r = jnp.asarray(rng.dirichlet(np.ones(K), (M, C, N)), jnp.float32)
    posterior, mask, shift = posterior_of(rng, M), jnp.asarray(CLASS_MASK), jnp.full(D, 0.3)
    whole = compiled_statistics(x, r, posterior, mask, shift)
    parts = [
        compiled_statistics(
            x[d : d + 1],
            r[d : d + 1],
            jax.tree.map(lambda leaf, d=d: leaf[d : d + 1], posterior),
            mask[d : d + 1],
            shift,
        )
        for d in range(M)
    ]
    return whole, parts


def assert_same(a: ThemeStatistics, b: ThemeStatistics) -> None:
    """Equal up to float32 rounding."""
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)


def test_statistics_of_a_batch_are_the_sum_over_its_tasks() -> None:
    whole, parts = batch()
    assert_same(whole, sum(parts, zero_statistics(K, L, D)))
    assert float(whole.samples) == pytest.approx(M * C * N, rel=1e-5)
    assert (float(whole.classes), float(whole.tasks)) == (M * C, M)


def test_blend_is_a_convex_combination() -> None:
    _, parts = batch()
    assert_same(blend(parts[0], parts[1], 0.25), parts[0] * 0.75 + 0.25 * parts[1])
    assert_same(blend(parts[0], parts[1], 1.0), parts[1])


def test_pooled_weights_give_the_same_statistics_as_repeated_samples() -> None:
    """A sample used by two tasks may be counted once, with its responsibilities summed."""
    rng = np.random.default_rng(1)
    pool = jnp.asarray(rng.normal(size=(7, D)), jnp.float32)
    index = rng.integers(7, size=(M, C, N))
    r = jnp.asarray(rng.dirichlet(np.ones(K), (M, C, N)), jnp.float32)
    posterior, mask, shift = posterior_of(rng, M), jnp.asarray(CLASS_MASK), jnp.zeros(D)
    summed = jnp.zeros((7, K)).at[index.ravel()].add(r.reshape(-1, K))
    assert_same(
        compiled_statistics(pool[index], r, posterior, mask, shift),
        compiled_statistics(pool, summed, posterior, mask, shift),
    )


def test_relative_prior_follows_the_counts() -> None:
    whole, _ = batch()
    prior = relative_prior(whole, jnp.ones(D), nu_fraction=0.1, kappa=0.02, alpha0=2.0)
    assert float(prior.nu) == pytest.approx(0.1 * M * C * N / K, rel=1e-5)
    assert float(prior.pseudo_classes) == pytest.approx(0.02 * M * C / L, rel=1e-5)
    assert float(prior.alpha0) == 2.0


def some_themes() -> Themes:
    """Themes to fall back on."""
    return Themes(
        mu=jnp.arange(K * D, dtype=jnp.float32).reshape(K, D),
        Sigma=jnp.stack([jnp.eye(D)] * K),
        alpha=jnp.full((L, K), 0.7),
        delta=jnp.full(L, 0.5),
    )


def test_m_step_without_any_data_and_prior_keeps_the_themes() -> None:
    zero = jnp.zeros(())
    prior = ThemePrior(nu=zero, Psi0=jnp.ones(D), pseudo_classes=zero, alpha0=jnp.ones(()))
    themes = some_themes()
    fitted = compiled_m_step(zero_statistics(K, L, D), prior, themes, jnp.full(D, 5.0))
    for before, after in zip(jax.tree.leaves(themes), jax.tree.leaves(fitted), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-6)


def test_a_dead_theme_keeps_its_mean_and_takes_the_prior_covariance() -> None:
    rng = np.random.default_rng(2)
    x = jnp.asarray(rng.normal(size=(M, C, N, D)), jnp.float32)
    r = jnp.asarray(rng.dirichlet(np.ones(K), (M, C, N)), jnp.float32).at[..., 1].set(0)
    stats = compiled_statistics(x, r, posterior_of(rng, M), jnp.asarray(CLASS_MASK), jnp.zeros(D))
    prior = relative_prior(stats, jnp.array([0.5, 0.25]))
    fitted = compiled_m_step(stats, prior, some_themes(), jnp.zeros(D))
    assert float(stats.N_k[1]) == 0
    np.testing.assert_allclose(fitted.mu[1], some_themes().mu[1])
    np.testing.assert_allclose(fitted.Sigma[1], np.diag([0.5, 0.25]), rtol=1e-5)


def test_shift_prevents_cancellation_in_float32() -> None:
    """Features at 1000 with spread 0.1: about the origin the covariance is lost."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(M, C, N, D)) * 0.1 + 1000
    r = jnp.zeros((M, C, N, K)).at[..., 0].set(1)
    x32 = jnp.asarray(x, jnp.float32)
    expected = np.cov(np.asarray(x32, float).reshape(-1, D).T, ddof=0)
    posterior, mask = posterior_of(rng, M), jnp.asarray(CLASS_MASK)
    prior = ThemePrior(
        nu=jnp.zeros(()), Psi0=jnp.ones(D), pseudo_classes=jnp.ones(()), alpha0=jnp.ones(())
    )

    def variances(shift: jax.Array) -> np.ndarray:
        stats = compiled_statistics(x32, r, posterior, mask, shift)
        fitted = compiled_m_step(stats, prior, some_themes(), shift)
        return np.diag(fitted.Sigma[0])

    np.testing.assert_allclose(variances(jnp.full(D, 1000.0)), np.diag(expected), rtol=1e-3)
    assert np.abs(variances(jnp.zeros(D)) / np.diag(expected) - 1).max() > 0.1
