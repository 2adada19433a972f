"""Divergences, priors and posteriors of Gaussian weights agree with NumPy and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import integrate, optimize, stats

from taskscape.meta import VAMPIRE, Shots
from taskscape.meta.gaussian_weights import (
    GaussianWeights,
    draw,
    gaussian_kl,
    hyper_prior,
    noise,
    signs,
    slopes,
)
from taskscape.meta.networks import mlp


def gaussians(seed: int) -> GaussianWeights:
    rng = np.random.default_rng(seed)
    mean, log_variance = jnp.asarray(rng.normal(size=(2, 7)))
    return GaussianWeights(mean, log_variance, lambda weights: weights)


def test_kl() -> None:
    q, p = gaussians(0), gaussians(1)
    expected = 0.0
    rows = np.asarray([q.mean, q.log_variance, p.mean, p.log_variance])
    for mq, vq, mp, vp in rows.T:
        a, b = stats.norm(mq, np.exp(vq / 2)), stats.norm(mp, np.exp(vp / 2))
        reach = 12 * a.std()
        expected += integrate.quad(
            lambda w, a=a, b=b: a.pdf(w) * (a.logpdf(w) - b.logpdf(w)), mq - reach, mq + reach
        )[0]
    np.testing.assert_allclose(gaussian_kl(q, p), expected, rtol=1e-5)
    np.testing.assert_allclose(gaussian_kl(q, q), 0, atol=1e-6)


def test_hyper_prior() -> None:
    def reference(state: GaussianWeights) -> float:
        precision = np.exp(-np.asarray(state.log_variance))
        density = stats.gamma(2.5, scale=1 / 0.3).logpdf(precision)
        return float(stats.norm().logpdf(np.asarray(state.mean)).sum() + density.sum())

    a, b = gaussians(2), gaussians(3)  # constants cancel in the difference
    result = hyper_prior(a, 2.5, 0.3) - hyper_prior(b, 2.5, 0.3)
    np.testing.assert_allclose(result, reference(a) - reference(b), rtol=1e-5)


def test_draws_have_the_moments_they_should() -> None:
    q = VAMPIRE(initial_std=0.3).init(jax.random.key(1), mlp(3, (2,)), 2).prior()
    eps = noise(q, jax.random.key(0), 20_000)
    weights = np.asarray(jax.vmap(lambda e: ravel_pytree(draw(q, e))[0])(eps))
    np.testing.assert_allclose(weights.mean(0), q.mean, atol=0.01)
    np.testing.assert_allclose(weights.std(0), 0.3, rtol=0.03)


def softmax(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def test_fisher_information_of_softmax_regression() -> None:
    rng = np.random.default_rng(0)
    x, W = rng.normal(size=(7, 3)), rng.normal(size=(3, 4))
    network = mlp(3, ()).build(jax.random.key(0), 4)
    network = jax.tree.map(lambda leaf: jnp.asarray(W) if leaf.ndim == 2 else leaf, network)
    shots = Shots.of(x, rng.integers(4, size=7), 4)
    p = softmax(x @ W)
    expected = np.einsum("ni,nc->ic", x**2, p * (1 - p)) / 7  # diagonal of the mean Hessian
    v = signs(shots, jax.random.key(1), 4000)
    weights, rebuild = ravel_pytree(network)
    q = GaussianWeights(weights, weights, rebuild)
    result = rebuild(slopes(q, shots, jnp.zeros((len(v), len(weights))), v)[1]).weights[0]
    np.testing.assert_allclose(result, expected, rtol=0.1)


def least_free_energy(
    x: np.ndarray, y: np.ndarray, m0: np.ndarray, std: float, beta: float
) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of the best mean-field posterior of a softmax regression.

    L-BFGS on the bound with 400 fixed draws and their mirror images.
    """
    inputs, shape = np.hstack([x, np.ones((len(x), 1))]), (x.shape[1] + 1, y.max() + 1)
    half = np.random.default_rng(5).normal(size=(400, m0.size))
    eps, own = np.vstack([half, -half]), np.eye(shape[1])[y]

    def bound(place: np.ndarray) -> tuple[float, np.ndarray]:
        m, log_s = np.split(place, 2)
        s = np.exp(log_s)
        p = softmax(inputs @ (m + s * eps).reshape(-1, *shape))
        data = -np.log((p * own).sum(2)).sum(1).mean()
        slope = np.einsum("ni,knc->kic", inputs, p - own).reshape(len(eps), -1)
        kl = (np.log(std) - log_s + (s**2 + (m - m0) ** 2) / (2 * std**2) - 0.5).sum()
        dm = slope.mean(0) + beta * (m - m0) / std**2
        ds = (slope * eps).mean(0) * s + beta * (s**2 / std**2 - 1)
        return data + beta * kl, np.concatenate([dm, ds])

    start = np.concatenate([m0, np.full(m0.size, np.log(std))])
    best = optimize.minimize(bound, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    m, log_s = np.split(best.x, 2)
    return m, np.exp(log_s)


@pytest.mark.parametrize("beta", [1.0, 0.1])
def test_many_steps_reach_the_best_posterior(beta: float) -> None:
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(3), 20)
    x = rng.normal(size=(60, 2)) * (1.0, 0.3) + 0.8 * rng.normal(size=(3, 2))[y]
    learner = VAMPIRE(
        inner_rate=2.0, inner_steps=1500, precision_rate=0.02, train_samples=32,
        kl_weight=beta, initial_std=1.0,
    )  # fmt: skip
    state = learner.init(jax.random.key(0), mlp(2, ()), 3)
    shots = Shots.of(x, y, 3)
    q = jax.jit(learner.adapt)(state, shots, jax.random.key(1))
    m0 = ravel_pytree(state.mean)[0]
    m, s = least_free_energy(x, y, m0, 1.0, beta)
    assert s.min() < 0.5  # the data speak
    np.testing.assert_allclose(np.exp(q.log_variance / 2), s, rtol=0.12)
    np.testing.assert_allclose(q.mean, m, atol=0.3 * s.max())
