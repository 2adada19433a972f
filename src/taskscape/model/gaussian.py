"""Log-likelihood of samples under the Gaussian image-themes."""

from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float

from taskscape.model.params import Covariance, Themes


@register_dataclass
@dataclass(frozen=True, eq=False)
class Whitening:
    r"""What turns Mahalanobis distances into Euclidean ones, factored once per set of themes.

    .. math:: W \Sigma W^\top = I

    ``W`` is the inverse of the Cholesky factor, or of the standard deviations for "diag".
    """

    mu: Float[Array, "*E K D"]
    W: Float[Array, "*E K D D"] | Float[Array, "*E K D"] | Float[Array, "*E D D"]
    log_det_Sigma: Float[Array, "*E K"]
    covariance: Covariance = field(default="full", metadata={"static": True})


def whiten(themes: Themes) -> Whitening:
    """Factor the covariances of the image-themes."""
    K, D = themes.mu.shape[-2:]
    if themes.covariance == "diag":
        W = 1 / jnp.sqrt(themes.Sigma)
        log_det = jnp.log(themes.Sigma).sum(-1)
        return Whitening(themes.mu, W, log_det, "diag")
    chol = jnp.linalg.cholesky(themes.Sigma)
    identity = jnp.broadcast_to(jnp.eye(D, dtype=chol.dtype), chol.shape)
    W = solve_triangular(chol, identity, lower=True)
    log_det = 2 * jnp.log(jnp.diagonal(chol, axis1=-2, axis2=-1)).sum(-1)
    if themes.covariance == "tied":
        log_det = jnp.broadcast_to(log_det[..., None], (*log_det.shape, K))
    return Whitening(themes.mu, W, log_det, themes.covariance)


def log_likelihood(x: Float[Array, "*S D"], whitening: Whitening) -> Float[Array, "*S K"]:
    r"""Log-density of every sample under every image-theme.

    .. math:: \ln N(x; \mu_k, \Sigma_k) = -\tfrac12 \left[ D \ln 2\pi + \ln|\Sigma_k|
        + \| W_k (x - \mu_k) \|^2 \right]

    Paper: the bracket of eq:r.
    """
    samples = x.reshape(-1, x.shape[-1])
    distances = squared_distances(samples, whitening)
    log_norm = x.shape[-1] * jnp.log(2 * jnp.pi) + whitening.log_det_Sigma
    log_lik = -0.5 * (distances + log_norm.astype(distances.dtype))
    return log_lik.reshape(*x.shape[:-1], log_lik.shape[-1])


def squared_distances(x: Float[Array, "S D"], whitening: Whitening) -> Float[Array, "S K"]:
    r"""Squared Mahalanobis distance of every sample from every image-theme.

    .. math:: \| W_k (x - \mu_k) \|^2
    """
    # Subtracting each theme's own mean before the product is what keeps float32 accurate for
    # samples far from the origin; mapping over themes keeps memory at S x D, not S x K x D.
    mu, W = whitening.mu, whitening.W
    if whitening.covariance == "full":
        distances = jax.lax.map(
            lambda theme: _squared_norm(_product(x - theme[0], theme[1])), (mu, W)
        )
    elif whitening.covariance == "diag":
        distances = jax.lax.map(lambda theme: _squared_norm((x - theme[0]) * theme[1]), (mu, W))
    else:
        centre = mu.mean(0)
        white_x, white_mu = _product(x - centre, W), _product(mu - centre, W)
        distances = jax.lax.map(lambda theme: _squared_norm(white_x - theme), white_mu)
    return distances.T


def _squared_norm(x: Float[Array, "S D"]) -> Float[Array, " S"]:
    return (x * x).sum(-1)


# Full precision is asked for because GPUs otherwise multiply float32 in fewer bits.
_product = partial(jnp.einsum, "sd,ed->se", precision="highest")
