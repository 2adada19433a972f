"""Image-themes by themselves, and what a task is under them: proportions and a position.

The paper's model has two levels above the image-themes, classes and tasks. Here a task is described
by its samples directly, as in "Probabilistic task modelling for meta-learning" (Nguyen, Do and
Carneiro 2021); what differs is said where it does.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float

from taskscape.model.gaussian import Whitening, log_likelihood, squared_distances
from taskscape.model.params import Scalar


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
    chol = jnp.linalg.cholesky(mixture.Sigma)
    W = solve_triangular(chol, jnp.eye(len(chol), dtype=chol.dtype), lower=True)
    log_det = 2 * jnp.log(jnp.diagonal(chol)).sum()
    same = jnp.broadcast_to(log_det, mixture.pi.shape)
    return jnp.log(mixture.pi) + log_likelihood(x, Whitening(mixture.mu, W, same, "tied"))


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
    identity = Whitening(mu, jnp.eye(mu.shape[1], dtype=mu.dtype), jnp.zeros(len(mu)), "tied")
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
