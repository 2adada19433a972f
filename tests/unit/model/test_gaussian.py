"""Log-likelihoods: right for every covariance kind, and accurate in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from taskscape.model import Covariance, Themes, log_likelihood, whiten


@jax.jit
def compiled(x: jax.Array, themes: Themes) -> jax.Array:
    """Log-likelihoods under themes that are not factored yet."""
    return log_likelihood(x, whiten(themes))


def themes_and_matrices(
    covariance: Covariance, K: int, D: int, dtype: str, offset: float = 0.0
) -> tuple[Themes, np.ndarray]:
    """Themes of a kind, and their covariances written out as K matrices."""
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(K, D, D)) / np.sqrt(D)
    full = roots @ roots.transpose(0, 2, 1) + 0.3 * np.eye(D)
    variances = np.diagonal(full, axis1=1, axis2=2)
    Sigma = {"full": full, "diag": variances, "tied": full[0]}[covariance]
    matrices = {
        "full": full,
        "diag": np.stack([np.diag(v) for v in variances]),
        "tied": np.stack([full[0]] * K),
    }[covariance]
    themes = Themes(
        mu=jnp.asarray(rng.normal(size=(K, D)) + offset, dtype),
        Sigma=jnp.asarray(Sigma, dtype),
        alpha=jnp.ones((2, K), dtype),
        delta=jnp.ones(2, dtype),
        covariance=covariance,
    )
    return themes, matrices


@pytest.mark.parametrize("covariance", ["full", "diag", "tied"])
@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 2e-5), ("float64", 1e-11)])
def test_agrees_with_scipy(covariance: Covariance, dtype: str, rtol: float) -> None:
    with jax.enable_x64(dtype == "float64"):
        themes, matrices = themes_and_matrices(covariance, 3, 4, dtype)
        x = jnp.asarray(np.random.default_rng(1).normal(size=(2, 5, 4)) * 2, dtype)
        log_lik = compiled(x, themes)
        assert log_lik.dtype == dtype
        for k in range(3):
            normal = scipy.stats.multivariate_normal(np.asarray(themes.mu[k], float), matrices[k])
            expected = normal.logpdf(np.asarray(x, float))
            np.testing.assert_allclose(log_lik[..., k], expected, rtol=rtol)


@pytest.mark.parametrize("covariance", ["full", "diag", "tied"])
def test_float32_survives_many_dimensions_and_a_large_offset(covariance: Covariance) -> None:
    """Features with mean 100 and spread one: nothing may be squared before it is centred."""
    themes, matrices = themes_and_matrices(covariance, 2, 200, "float32", offset=100.0)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(20, 200)) + 100, jnp.float32)
    log_lik = compiled(x, themes)
    for k in range(2):
        normal = scipy.stats.multivariate_normal(np.asarray(themes.mu[k], float), matrices[k])
        np.testing.assert_allclose(log_lik[:, k], normal.logpdf(np.asarray(x, float)), rtol=2e-4)


def test_whitening_maps_over_an_ensemble() -> None:
    themes, _ = themes_and_matrices("full", 3, 4, "float32")
    pair = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), themes)
    x = jnp.ones((5, 4))
    both = jax.vmap(lambda member: log_likelihood(x, whiten(member)))(pair)
    np.testing.assert_allclose(both[0], compiled(x, themes), rtol=1e-5)
    assert whiten(pair).W.shape == (2, 3, 4, 4)
    assert (pair.K, pair.L, pair.D) == (3, 2, 4)
