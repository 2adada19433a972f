"""Log-likelihoods: right, and accurate in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from taskscape.model import Themes, log_likelihood, whiten
from taskscape.model.gaussian import squared_distances


@jax.jit
def compiled(x: jax.Array, themes: Themes) -> jax.Array:
    """Log-likelihoods under themes that are not factored yet."""
    return log_likelihood(x, whiten(themes.mu, themes.Sigma))


def some_themes(K: int, D: int, dtype: str, offset: float = 0.0) -> Themes:
    """Themes in generic position."""
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(K, D, D)) / np.sqrt(D)
    return Themes(
        mu=jnp.asarray(rng.normal(size=(K, D)) + offset, dtype),
        Sigma=jnp.asarray(roots @ roots.transpose(0, 2, 1) + 0.3 * np.eye(D), dtype),
        alpha=jnp.ones((2, K), dtype),
        delta=jnp.ones(2, dtype),
    )


def expected(x: jax.Array, themes: Themes, k: int) -> np.ndarray:
    """Log-densities under one image-theme, in double precision."""
    normal = scipy.stats.multivariate_normal(
        np.asarray(themes.mu[k], float), np.asarray(themes.Sigma[k], float)
    )
    return normal.logpdf(np.asarray(x, float))


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 2e-5), ("float64", 1e-11)])
def test_agrees_with_scipy(dtype: str, rtol: float) -> None:
    with jax.enable_x64(dtype == "float64"):
        themes = some_themes(3, 4, dtype)
        x = jnp.asarray(np.random.default_rng(1).normal(size=(2, 5, 4)) * 2, dtype)
        log_lik = compiled(x, themes)
        assert log_lik.dtype == dtype
        for k in range(3):
            np.testing.assert_allclose(log_lik[..., k], expected(x, themes, k), rtol=rtol)


def test_float32_survives_many_dimensions_and_a_large_offset() -> None:
    """Features with mean 100 and spread one: nothing may be squared before it is centred."""
    themes = some_themes(2, 200, "float32", offset=100.0)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(20, 200)) + 100, jnp.float32)
    log_lik = compiled(x, themes)
    for k in range(2):
        np.testing.assert_allclose(log_lik[:, k], expected(x, themes, k), rtol=2e-4)


@pytest.mark.parametrize(
    ("D", "dtype", "offset", "rtol"), [(4, "float64", 0.0, 1e-11), (200, "float32", 100.0, 2e-4)]
)
def test_a_common_covariance_counts_for_every_theme(
    D: int, dtype: str, offset: float, rtol: float
) -> None:
    with jax.enable_x64(dtype == "float64"):
        themes = some_themes(3, D, dtype, offset)
        x = jnp.asarray(np.random.default_rng(1).normal(size=(20, D)) + offset, dtype)
        common = whiten(themes.mu, themes.Sigma[0])
        each = whiten(themes.mu, jnp.stack([themes.Sigma[0]] * 3))
        for of in (squared_distances, log_likelihood):
            np.testing.assert_allclose(of(x, common), of(x, each), rtol=rtol)


def test_whitening_maps_over_an_ensemble() -> None:
    themes = some_themes(3, 4, "float32")
    pair = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), themes)
    x = jnp.ones((5, 4))
    both = jax.vmap(lambda member: compiled(x, member))(pair)
    np.testing.assert_allclose(both[0], compiled(x, themes), rtol=1e-5)
    assert (pair.K, pair.L, pair.D) == (3, 2, 4)
