"""eq:m_step and eq:online_update."""

from dataclasses import replace
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_case import Case, compiled_terms, gradient_of_alpha, hessian_of_alpha

from taskscape.model import (
    ThemePrior,
    Themes,
    ThemeStatistics,
    blend,
    expected_log,
    local_themes,
    log_likelihood,
    m_step,
    mean_local_themes,
    paper_step,
    penalised_bound,
    statistics,
    step_size,
    whiten,
)

compiled_m_step = jax.jit(m_step)
compiled_statistics = jax.jit(statistics)


def statistics_of(case: Case, shift: jax.Array) -> ThemeStatistics:
    """The sums of the case at its r, which is not the best r."""
    return compiled_statistics(case.x, case.r, case.posterior, case.class_mask, shift)


def no_prior(D: int) -> ThemePrior:
    """Priors without weight."""
    zero = jnp.zeros(())
    return ThemePrior(nu=zero, Psi0=jnp.ones(D), pseudo_classes=zero, alpha0=jnp.ones(()))


@pytest.mark.parametrize("weight", [0.0, 2.5])
def test_eq_m_step_is_where_the_penalised_bound_is_flat(case: Case, weight: float) -> None:
    shift = jnp.array([0.3, -0.2])
    prior = ThemePrior(
        nu=jnp.asarray(weight),
        Psi0=jnp.array([0.7, 1.3]),
        pseudo_classes=jnp.asarray(weight),
        alpha0=jnp.asarray(1.5),
    )
    themes = compiled_m_step(statistics_of(case, shift), prior, case.themes, shift)

    def objective(themes: Themes) -> jax.Array:
        log_lik = log_likelihood(case.x, whiten(themes.mu, themes.Sigma))
        masks = (case.sample_mask, case.class_mask)
        terms = compiled_terms(
            case.r, case.posterior, log_lik, *masks, themes.alpha, case.themes.delta
        )
        return penalised_bound(terms.total.sum(), themes, prior)

    gradient = jax.jit(jax.grad(objective))(themes)
    np.testing.assert_allclose(gradient.mu, 0, atol=1e-9)
    np.testing.assert_allclose(gradient.Sigma, 0, atol=1e-9)
    np.testing.assert_allclose(gradient.alpha, 0, atol=1e-8)
    assert objective(themes) > objective(case.themes)


def test_eq_m_step_without_prior_is_the_weighted_mean_and_scatter(case: Case) -> None:
    shift = jnp.array([0.3, -0.2])
    themes = compiled_m_step(statistics_of(case, shift), no_prior(2), case.themes, shift)
    x, r = np.asarray(case.x).reshape(-1, 2), np.asarray(case.r).reshape(-1, 3)
    for k in range(3):
        mu = np.average(x, axis=0, weights=r[:, k])
        Sigma = np.cov(x.T, aweights=r[:, k], ddof=0)
        np.testing.assert_allclose(themes.mu[k], mu, rtol=1e-10)
        np.testing.assert_allclose(themes.Sigma[k], Sigma, rtol=1e-9)


def test_eq_m_step_for_one_task(case: Case) -> None:
    """Local themes of a task are the M-step over that task alone."""
    posterior = jax.tree.map(lambda a: a[0], case.posterior)
    local = local_themes(case.x[0], case.r[0], posterior, case.themes)
    shift = jnp.zeros(2)
    stats = compiled_statistics(case.x[0], case.r[0], posterior, case.class_mask[0], shift)
    expected = compiled_m_step(stats, no_prior(2), case.themes, shift)
    np.testing.assert_allclose(local.mu, expected.mu, rtol=1e-10)
    np.testing.assert_allclose(local.Sigma, expected.Sigma, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(local.w, stats.w)
    np.testing.assert_allclose(local.E_log_theta_sum, stats.E_log_theta_sum)
    np.testing.assert_array_equal(local.used, 1)


def test_eq_online_update(case: Case) -> None:
    themes = case.themes
    each = jax.vmap(local_themes, in_axes=(0, 0, 0, None))(case.x, case.r, case.posterior, themes)
    mean = mean_local_themes(case.x, case.r, case.posterior, case.class_mask, themes)
    rho = step_size(7, 3.0, 0.6)
    assert rho == pytest.approx(10.0**-0.6)
    stepped = paper_step(themes, mean, rho, jitter=1e-6)
    mu, Sigma = each.mu.mean(0), each.Sigma.mean(0)
    ridge = 1e-6 * np.eye(2)
    np.testing.assert_allclose(stepped.mu, (1 - rho) * themes.mu + rho * mu, rtol=1e-10)
    np.testing.assert_allclose(
        stepped.Sigma, (1 - rho) * themes.Sigma + rho * (Sigma + ridge), rtol=1e-10
    )

    arguments = case.arguments(case.r, case.posterior)
    size = themes.alpha.size
    H = hessian_of_alpha(*arguments).reshape(size, size)
    g = gradient_of_alpha(*arguments).reshape(size)
    newton = jnp.linalg.solve(H, g).reshape(themes.alpha.shape)
    np.testing.assert_allclose(stepped.alpha, themes.alpha - rho * newton, rtol=1e-8)


def test_eq_online_update_keeps_alpha_positive_and_unused_themes(case: Case) -> None:
    themes = replace(case.themes, alpha=jnp.full((2, 3), 80.0))
    eta = jnp.zeros_like(case.posterior.eta).at[..., 0].set(case.class_mask)
    r = case.r.at[..., 0].set(0)
    posterior = replace(case.posterior, eta=eta, gamma=jnp.full_like(case.posterior.gamma, 0.1))
    local = mean_local_themes(case.x, r, posterior, case.class_mask, themes)
    stepped = paper_step(themes, local, 1.0)
    assert (stepped.alpha > 0).all()
    np.testing.assert_array_equal(stepped.alpha[1], themes.alpha[1])
    np.testing.assert_array_equal(local.used, [0, 1, 1])
    np.testing.assert_allclose(stepped.mu[0], themes.mu[0], rtol=1e-12)
    np.testing.assert_allclose(stepped.Sigma[0], themes.Sigma[0] + 1e-6 * np.eye(2), rtol=1e-12)


def test_averaged_covariances_drop_the_scatter_between_tasks(case: Case) -> None:
    """Two tasks far apart: averaged statistics see the distance, averaged covariances do not."""
    x = jnp.stack([case.x[0], case.x[0] + 100.0])
    r = jnp.stack([case.r[0], case.r[0]])
    posterior = jax.tree.map(lambda a: jnp.stack([a[0], a[0]]), case.posterior)
    class_mask = jnp.ones((2, 3), bool)
    paper = mean_local_themes(x, r, posterior, class_mask, case.themes)
    shift = x.reshape(-1, 2).mean(0)
    halves = [
        compiled_statistics(
            x[d], r[d], jax.tree.map(lambda a, d=d: a[d], posterior), class_mask[d], shift
        )
        for d in (0, 1)
    ]
    sound = compiled_m_step(blend(halves[0], halves[1], 0.5), no_prior(2), case.themes, shift)
    assert (jnp.diagonal(paper.Sigma, axis1=1, axis2=2) < 20).all()
    assert (jnp.diagonal(sound.Sigma, axis1=1, axis2=2) > 2400).all()


def test_paper_average_counts_tasks_that_never_used_a_theme(case: Case) -> None:
    """With one user among two tasks the paper moves a mean half way; statistics move it fully."""
    r = case.r[:2].at[1, ..., 0].set(0)
    posterior = jax.tree.map(lambda a: a[:2], case.posterior)
    paper = mean_local_themes(case.x[:2], r, posterior, case.class_mask[:2], case.themes)
    shift = jnp.zeros(2)
    stats = compiled_statistics(case.x[:2], r, posterior, case.class_mask[:2], shift)
    sound = compiled_m_step(stats, no_prior(2), case.themes, shift)
    half_way = (sound.mu[0] + case.themes.mu[0]) / 2
    np.testing.assert_allclose(paper.mu[0], half_way, rtol=1e-10)


def test_statistics_hold_the_sums_of_apdx_alpha(case: Case) -> None:
    stats = statistics_of(case, jnp.zeros(2))
    E_log_theta = np.asarray(expected_log(case.posterior.gamma))
    eta = np.asarray(case.posterior.eta)
    np.testing.assert_allclose(stats.w, eta.sum((0, 1)))
    expected = np.einsum("mcl,mck->lk", eta, E_log_theta)
    np.testing.assert_allclose(stats.E_log_theta_sum, expected)
    np.testing.assert_allclose([stats.samples, stats.classes, stats.tasks], [30, 8, 3])


def test_number_of_five_way_tasks() -> None:
    """80 classes give 24 million five-way tasks, not the 2.4 million of the text."""
    assert comb(80, 5) == 24_040_016
