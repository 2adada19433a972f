"""With large equal alpha every mixture is uniform, and one step is one step of plain EM."""

import warnings
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from taskscape.model import (
    ThemePrior,
    Themes,
    e_step,
    log_likelihood,
    m_step,
    task_statistics,
    whiten,
)

M, C, N, K, L, D = 4, 5, 8, 3, 2, 2


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    """scikit-learn computes in double precision."""
    with jax.enable_x64(True):
        yield


@jax.jit
def our_step(x: jax.Array, themes: Themes, prior: ThemePrior) -> Themes:
    """One E-step from cold and one M-step."""
    masks = (jnp.ones((M, C, N), bool), jnp.ones((M, C), bool))
    log_lik = log_likelihood(x, whiten(themes.mu, themes.Sigma))
    state = e_step(log_lik, *masks, themes.alpha, themes.delta)
    shift = x.mean((0, 1, 2))
    stats = task_statistics(x, state.posterior, log_lik, *masks, shift)
    return m_step(stats, prior, themes, shift)


def sklearn_step(x: np.ndarray, mu: np.ndarray, Sigma: np.ndarray):
    """One EM step from equal weights, without regularisation."""
    mixture = GaussianMixture(
        K,
        reg_covar=0,
        max_iter=1,
        weights_init=np.full(K, 1 / K),
        means_init=mu,
        precisions_init=np.linalg.inv(Sigma),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # one step is what we ask for
        return mixture.fit(x.reshape(-1, D))


@pytest.mark.parametrize("nu", [0.0, 3.0])
def test_one_step_agrees_with_gaussian_mixture(nu: float) -> None:
    rng = np.random.default_rng(1)
    centres = np.array([[0.0, 0.0], [3.0, 1.0], [-1.0, 4.0]])
    x = centres[rng.integers(K, size=(M, C, N))] + rng.normal(size=(M, C, N, D))
    mu = centres + rng.normal(size=(K, D)) * 0.5
    Sigma = np.stack([[[1.0, 0.2 * k], [0.2 * k, 1.5]] for k in range(K)])
    Psi0 = np.array([0.5, 0.8])

    themes = Themes(
        mu=jnp.asarray(mu),
        Sigma=jnp.asarray(Sigma),
        alpha=jnp.full((L, K), 1e9),
        delta=jnp.full(L, 0.5),
    )
    prior = ThemePrior(
        nu=jnp.asarray(nu),
        Psi0=jnp.asarray(Psi0),
        pseudo_classes=jnp.asarray(1.0),
        alpha0=jnp.asarray(1.0),
    )
    stepped = our_step(jnp.asarray(x), themes, prior)

    mixture = sklearn_step(x, mu, Sigma)
    np.testing.assert_allclose(stepped.mu, mixture.means_, rtol=1e-6)
    # scikit-learn knows no prior: the same pseudo-samples are added to its scatter by hand.
    count = mixture.weights_[:, None, None] * M * C * N
    expected = (count * mixture.covariances_ + nu * np.diag(Psi0)) / (count + nu)
    np.testing.assert_allclose(stepped.Sigma, expected, rtol=1e-6, atol=1e-8)
