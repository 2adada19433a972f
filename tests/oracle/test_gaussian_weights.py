"""Divergences and priors of Gaussian weights agree with SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy import integrate, stats

from taskscape.meta.abml import hyper_prior
from taskscape.meta.gaussian_weights import (
    GaussianWeights,
    draw,
    gaussian_kl,
    noise,
    standard_start,
)
from taskscape.meta.networks import mlp


def gaussians(seed: int) -> GaussianWeights:
    rng = np.random.default_rng(seed)

    def tree() -> dict[str, jax.Array]:
        return {"a": jnp.asarray(rng.normal(size=(2, 2))), "b": jnp.asarray(rng.normal(size=3))}

    return GaussianWeights(tree(), tree())


def flat(tree: dict[str, jax.Array]) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_kl() -> None:
    q, p = gaussians(0), gaussians(1)
    expected = 0.0
    for mq, vq, mp, vp in zip(
        *map(flat, (q.mean, q.log_variance, p.mean, p.log_variance)), strict=True
    ):
        a, b = stats.norm(mq, np.exp(vq / 2)), stats.norm(mp, np.exp(vp / 2))
        reach = 12 * a.std()
        expected += integrate.quad(
            lambda w, a=a, b=b: a.pdf(w) * (a.logpdf(w) - b.logpdf(w)), mq - reach, mq + reach
        )[0]
    np.testing.assert_allclose(gaussian_kl(q, p), expected, rtol=1e-5)
    np.testing.assert_allclose(gaussian_kl(q, q), 0, atol=1e-6)


def test_hyper_prior() -> None:
    def reference(state: GaussianWeights) -> float:
        precision = np.exp(-flat(state.log_variance))
        density = stats.gamma(2.5, scale=1 / 0.3).logpdf(precision)
        return float(stats.norm().logpdf(flat(state.mean)).sum() + density.sum())

    a, b = gaussians(2), gaussians(3)  # constants cancel in the difference
    found = hyper_prior(a, 2.5, 0.3) - hyper_prior(b, 2.5, 0.3)
    np.testing.assert_allclose(found, reference(a) - reference(b), rtol=1e-5)


def test_draws_have_the_moments_they_should() -> None:
    q = standard_start(mlp(3, (2,)).build(jax.random.key(1), 2), std=0.3)
    eps = noise(q, jax.random.key(0), 20_000)
    weights = np.asarray(jax.vmap(lambda e: ravel_pytree(draw(q, e))[0])(eps))
    np.testing.assert_allclose(weights.mean(0), ravel_pytree(q.mean)[0], atol=0.01)
    np.testing.assert_allclose(weights.std(0), 0.3, rtol=0.03)
