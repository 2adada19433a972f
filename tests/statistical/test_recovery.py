"""Themes are recovered, up to relabelling, from tasks drawn from them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans

from known_themes import D, K, L, true_themes
from taskscape.model import (
    SyntheticTasks,
    TaskPosterior,
    Themes,
    e_step,
    elbo,
    generate,
    log_likelihood,
    m_step,
    moment_match,
    relative_prior,
    task_statistics,
    whiten,
)

M, C, N = 600, 6, 16
PASSES, HELD_OUT = 40, 200


def masks_of(tasks: SyntheticTasks) -> tuple[jax.Array, jax.Array]:
    """Everything is real."""
    return jnp.ones(tasks.x.shape[:3], bool), jnp.ones(tasks.x.shape[:2], bool)


def start_from_data(tasks: SyntheticTasks, seed: int) -> Themes:
    """k-means of samples, then k-means of the classes' histograms, moment-matched per group."""
    x = np.asarray(tasks.x).reshape(-1, D)
    images = KMeans(K, n_init=3, random_state=seed).fit(x[::10])
    histograms = np.eye(K)[images.predict(x)].reshape(-1, N, K).mean(1)
    groups = KMeans(L, n_init=3, random_state=seed).fit_predict(np.sqrt(histograms))
    alpha = [
        moment_match(jnp.asarray(histograms, jnp.float32), jnp.asarray(groups == g, jnp.float32))
        for g in range(L)
    ]
    return Themes(
        mu=jnp.asarray(images.cluster_centers_, jnp.float32),
        Sigma=jnp.stack([jnp.asarray(np.cov(x.T) / K, jnp.float32)] * K),
        alpha=jnp.stack(alpha),
        delta=jnp.full(L, 0.5),
    )


@partial(jax.jit, static_argnames="passes")
def batch_em(tasks: SyntheticTasks, themes: Themes, passes: int) -> Themes:
    """Full warm-started passes, all of them on the device."""
    masks, shift = masks_of(tasks), tasks.x.mean((0, 1, 2))
    Psi0 = tasks.x.var((0, 1, 2))

    def one_pass(
        carry: tuple[Themes, TaskPosterior], _: None
    ) -> tuple[tuple[Themes, TaskPosterior], None]:
        themes, start = carry
        log_lik = log_likelihood(tasks.x, whiten(themes.mu, themes.Sigma))
        posterior = e_step(
            log_lik, *masks, themes.alpha, themes.delta, max_iter=10, start=start
        ).posterior
        stats = task_statistics(tasks.x, posterior, log_lik, *masks, shift)
        prior = relative_prior(stats, Psi0, nu_fraction=1e-4, kappa=0.002)
        return (m_step(stats, prior, themes, shift), posterior), None

    log_lik = log_likelihood(tasks.x, whiten(themes.mu, themes.Sigma))
    start = e_step(log_lik, *masks, themes.alpha, themes.delta, max_iter=50).posterior
    return jax.lax.scan(one_pass, (themes, start), length=passes)[0][0]


@jax.jit
def bound_per_sample(tasks: SyntheticTasks, themes: Themes) -> jax.Array:
    """The ELBO of tasks from cold, divided by the number of samples."""
    masks, log_lik = masks_of(tasks), log_likelihood(tasks.x, whiten(themes.mu, themes.Sigma))
    posterior = e_step(log_lik, *masks, themes.alpha, themes.delta).posterior
    terms = elbo(posterior, log_lik, *masks, themes.alpha, themes.delta)
    return terms.total.sum() / masks[0].sum()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_themes_are_recovered_up_to_relabelling(seed: int) -> None:
    truth = true_themes(seed)
    tasks = generate(jax.random.key(seed), truth, M + HELD_OUT, C, N)
    train = jax.tree.map(lambda leaf: leaf[:M], tasks)
    held_out = jax.tree.map(lambda leaf: leaf[M:], tasks)
    fitted = batch_em(train, start_from_data(train, seed), PASSES)

    distance = np.linalg.norm(np.asarray(fitted.mu)[:, None] - np.asarray(truth.mu), axis=-1)
    order = linear_sum_assignment(distance.T)[1]
    mu, Sigma = np.asarray(fitted.mu)[order], np.asarray(fitted.Sigma)[order]
    # About M C N / K samples per theme: four standard errors of a mean and of a variance.
    counts = np.asarray(train.z.sum((0, 1, 2)))[:, None]
    sigma = np.sqrt(np.diagonal(truth.Sigma, axis1=1, axis2=2))
    assert (np.abs(mu - truth.mu) < 4.5 * sigma / np.sqrt(counts)).all()
    variances = np.diagonal(Sigma, axis1=1, axis2=2)
    assert (np.abs(variances / sigma**2 - 1) < 4.5 * np.sqrt(2 / counts) + 0.01).all()
    correlation = (sigma[:, :, None] * sigma[:, None, :]) ** -1
    assert np.abs((Sigma - truth.Sigma) * correlation).max() < 0.15

    alpha = np.asarray(fitted.alpha)[:, order]
    share = alpha / alpha.sum(-1, keepdims=True)
    true_alpha = np.asarray(truth.alpha)
    true_share = true_alpha / true_alpha.sum(-1, keepdims=True)
    rows = linear_sum_assignment(np.abs(share[:, None] - true_share).sum(-1).T)[1]
    assert np.abs(share[rows] - true_share).max() < 0.04
    ratio = alpha[rows].sum(-1) / true_alpha.sum(-1)
    assert (np.abs(np.log(ratio)) < np.log(1.3)).all()

    loss = bound_per_sample(held_out, truth) - bound_per_sample(held_out, fitted)
    assert loss < 0.02
