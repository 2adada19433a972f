"""Samples under the Gaussian image-themes: of the paper's model, and by themselves.

The paper's model has two levels above the image-themes, classes and tasks. By themselves, they
describe a task by its samples directly, as in "Probabilistic task modelling for meta-learning"
(Nguyen, Do and Carneiro 2021); what differs is said where it does.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float

from taskscape.model.params import Scalar


@register_dataclass
@dataclass(frozen=True, eq=False)
class Whitening:
    r"""What turns Mahalanobis distances into Euclidean ones, factored once per set of themes.

    .. math:: W \Sigma W^\top = I

    ``W`` is the inverse of the Cholesky factor: of each image-theme, or one for all of them.
    """

    mu: Float[Array, "K D"]
    W: Float[Array, "*K D D"]
    log_det_Sigma: Float[Array, "*K"]


def whiten(mu: Float[Array, "K D"], Sigma: Float[Array, "*K D D"]) -> Whitening:
    """Factor the covariances of image-themes, or their common one."""
    chol = jnp.linalg.cholesky(Sigma)
    identity = jnp.broadcast_to(jnp.eye(chol.shape[-1], dtype=chol.dtype), chol.shape)
    W = solve_triangular(chol, identity, lower=True)
    return Whitening(mu, W, 2 * jnp.log(jnp.diagonal(chol, axis1=-2, axis2=-1)).sum(-1))


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
    if W.ndim == 3:
        distances = jax.lax.map(
            lambda theme: _squared_norm(_product(x - theme[0], theme[1])), (mu, W)
        )
    else:
        centre = mu.mean(0)
        white_x, white_mu = _product(x - centre, W), _product(mu - centre, W)
        distances = jax.lax.map(lambda theme: _squared_norm(white_x - theme), white_mu)
    return distances.T


def _squared_norm(x: Float[Array, "S D"]) -> Float[Array, " S"]:
    return (x * x).sum(-1)


# Full precision is asked for because GPUs otherwise multiply float32 in fewer bits.
_product = partial(jnp.einsum, "sd,ed->se", precision="highest")


# -- image-themes by themselves -----------------------------------------------------------------


@register_dataclass
@dataclass(frozen=True, eq=False)
class Mixture:
    r"""Image-themes as a mixture of Gaussians with a common covariance.

    .. math:: p(x) = \sum_k \pi_k\, N(x; \mu_k, \Sigma)
    """

    pi: Float[Array, " K"]
    mu: Float[Array, "K D"]
    Sigma: Float[Array, "D D"]


@register_dataclass
@dataclass(frozen=True, eq=False)
class Position:
    r"""Where a sample lies: in the space of a Gaussian kernel, and as it is.

    .. math:: \varphi(x) = V^\top (f(x) - \bar f), \quad
        f(x) = \bigl(e^{-\|x - \mu_1\|^2 / h}, \dots, e^{-\|x - \mu_K\|^2 / h}, x\bigr)

    The image-themes are the landmarks of the kernel (Nyström), so with V the distance between the
    mean positions of two sets of samples is their maximum mean discrepancy (Gretton et al. 2012),
    beside that of their plain means, in a few directions.
    """

    width: Float[Array, ""]
    """h."""
    centre: Float[Array, " K_and_D"]
    V: Float[Array, "K_and_D P"]


def log_joint(x: Float[Array, "S D"], mixture: Mixture) -> Float[Array, "S K"]:
    r"""Log-density of every sample together with every image-theme.

    .. math:: \ln \pi_k + \ln N(x; \mu_k, \Sigma)
    """
    return jnp.log(mixture.pi) + log_likelihood(x, whiten(mixture.mu, mixture.Sigma))


def tempered_r(log_joint: Float[Array, "S K"], temperature: Scalar) -> Float[Array, "S K"]:
    r"""Responsibilities under a tempered likelihood.

    .. math:: r_{nk} \propto \bigl(\pi_k\, N(x_n; \mu_k, \Sigma)\bigr)^{1/T}

    In many dimensions responsibilities are all or nothing; tempered, as the likelihood of a model
    that is known to be wrong, they count a theme that a sample nearly belongs to.

    Paper: eq:r, whose T is 1.
    """
    return jax.nn.softmax(log_joint / temperature)


def position(x: Float[Array, "S D"], mixture: Mixture, where: Position) -> Float[Array, "S P"]:
    r"""Where every sample lies: :math:`\varphi(x)` of :class:`Position`."""
    mu = mixture.mu
    identity = Whitening(mu, jnp.eye(mu.shape[1], dtype=mu.dtype), jnp.zeros(()))
    near = jnp.exp(-squared_distances(x, identity) / where.width)
    f = jnp.concatenate([near, x], axis=1)
    return jnp.matmul(f - where.centre, where.V, precision="highest")


def prior_nu(pi: Float[Array, " K"]) -> Float[Array, " K"]:
    r"""The prior of a task's proportions of image-themes: those of all samples, worth K samples.

    .. math:: \alpha_k = K \pi_k + 0.01
    """
    return len(pi) * pi + 0.01


def update_nu(
    mean_r: Float[Array, "M K"], pi: Float[Array, " K"], evidence: Scalar
) -> Float[Array, "M K"]:
    r"""Posterior concentrations of each task's proportions of image-themes.

    .. math:: \nu_k = \alpha_k + n\, \frac1N \sum_{n=1}^N r_{nk}

    Differs from a count of the N samples: every task counts as n of them, however many it has.
    Counts would make a task of few samples far from the same task known by many.
    """
    return prior_nu(pi) + evidence * mean_r
