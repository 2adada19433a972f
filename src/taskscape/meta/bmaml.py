"""Bayesian model-agnostic meta-learning: particles moved by Stein variational gradient descent."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from taskscape.meta.learner import Episode, Shots, log_probabilities, n_samples, nll
from taskscape.meta.networks import Architecture, Network


@dataclass(frozen=True)
class BMAML:
    r"""MAML with M particles per task and the chaser loss.

    .. math::
        w^m_{t+1} = w^m_t + a\, \phi_m / n, \qquad
        \phi_m = \tfrac1M \sum_j \bigl(k(w^j, w^m) \nabla_{w^j} \ln p(w^j, D)
        + \nabla_{w^j} k(w^j, w^m)\bigr)

    The chaser takes ``inner_steps`` of these on D = support from the meta-learned particles, the
    leader ``leader_steps`` more on D = support and query; then

    .. math:: \text{loss} = \sum_m \lVert w^m_{\text{chaser}} -
        \operatorname{stop}(w^m_{\text{leader}}) \rVert^2

    Predictions are averages of the particles' probabilities.

    Yoon et al. 2018, "Bayesian model-agnostic meta-learning"; Liu and Wang 2016 for Stein
    variational gradient descent.

    Differs: a step is divided by the number n of samples, so that the rate compares with MAML's and
    does not depend on n; with one particle the inner loop is MAML's (with M, a particle takes
    1/M of its own gradient, so rates are about M times MAML's). The prior is N(0, 1/τ) with a
    fixed ``prior_precision`` τ (0: flat) instead of their Gamma hyper-prior. All weights are
    particles, not the last layer alone. Support and query pass through the network separately. The
    bandwidth is not differentiated.
    """

    inner_rate: float = 1.0
    inner_steps: int = 5
    leader_steps: int = 5
    particles: int = 5
    prior_precision: float = 0.0
    first_order: bool = False

    numbers: ClassVar[tuple[str, ...]] = ("inner_rate", "prior_precision")

    def init(self, key: PRNGKeyArray, network: Architecture, n_way: int) -> Network:
        keys = jax.random.split(key, self.particles)
        return jax.vmap(lambda k: network.build(k, n_way))(keys)

    def adapt(self, state: Network, support: Shots, key: PRNGKeyArray) -> Network:
        return self._move(state, (support,), self.inner_steps)

    def loss(self, state: Network, episode: Episode, key: PRNGKeyArray) -> Float[Array, ""]:
        chaser = self.adapt(state, episode.support, key)
        whole = (episode.support, episode.query)
        leader = self._move(jax.lax.stop_gradient(chaser), whole, self.leader_steps)
        gaps = jax.tree.map(
            lambda c, g: ((c - jax.lax.stop_gradient(g)) ** 2).sum(), chaser, leader
        )
        return jnp.asarray(sum(jax.tree.leaves(gaps)))

    def members(
        self, adapted: Network, query: Shots, key: PRNGKeyArray
    ) -> Float[Array, "members n way"]:
        """Class probabilities of each particle."""
        return jnp.exp(jax.vmap(log_probabilities, in_axes=(0, None))(adapted, query))

    def predict(self, adapted: Network, query: Shots, key: PRNGKeyArray) -> Float[Array, "n way"]:
        return self.members(adapted, query, key).mean(0)

    def _move(self, particles: Network, sets: tuple[Shots, ...], steps: int) -> Network:
        """Steps of Stein variational gradient descent on the posterior given these samples."""
        w = jax.vmap(lambda one: ravel_pytree(one)[0])(particles)
        rebuild = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], particles))[1]

        def log_joint(one: Float[Array, "weights"]) -> Float[Array, ""]:
            likelihood = -nll(rebuild(one), *sets)
            return likelihood - 0.5 * self.prior_precision * (one**2).sum() / n_samples(*sets)

        def step(w: Float[Array, "M weights"], _: None) -> tuple[Float[Array, "M weights"], None]:
            gradient = jax.vmap(jax.grad(log_joint))(w)
            if self.first_order:
                gradient = jax.lax.stop_gradient(gradient)
            return w + self.inner_rate * stein_direction(w, gradient, n_samples(*sets)), None

        return jax.vmap(rebuild)(jax.lax.scan(step, w, length=steps)[0])


def stein_direction(
    w: Float[Array, "M weights"],
    gradient: Float[Array, "M weights"],
    n: Float[Array, ""] | float = 1.0,
) -> Float[Array, "M weights"]:
    r"""Direction of Stein variational gradient descent, per sample of the data.

    .. math:: \tfrac1M \sum_j \bigl(k(w_j, w_m)\, g_j + \tfrac1n \nabla_{w_j} k(w_j, w_m)\bigr),
        \qquad \nabla_{w_j} k(w_j, w_m) = \tfrac{2}{h} k(w_j, w_m)\,(w_m - w_j)

    where g is the gradient of the log-density divided by n.
    """
    k, h = rbf_kernel(w)
    repulsion = 2 / h * (k.sum(0)[:, None] * w - k @ w)
    return (k @ gradient + repulsion / n) / len(w)


def rbf_kernel(w: Float[Array, "M weights"]) -> tuple[Float[Array, "M M"], Float[Array, ""]]:
    r"""RBF kernel of the particles and its bandwidth by the median rule.

    .. math:: k(w_i, w_j) = \exp(-\lVert w_i - w_j \rVert^2 / h), \quad
        h = \operatorname{median}_{i,j} \lVert w_i - w_j \rVert^2 / \ln(M + 1)
    """
    about = w - jax.lax.stop_gradient(w.mean(0))  # less cancellation in the squared distances
    gram = jnp.matmul(about, about.T, precision="highest")
    square = jnp.diagonal(gram)
    distance = jnp.maximum(square[:, None] + square[None, :] - 2 * gram, 0)
    distance = distance * (1 - jnp.eye(len(w)))
    h = jax.lax.stop_gradient(jnp.median(distance)) / jnp.log(len(w) + 1.0)
    h = jnp.where(h > 0, h, 1.0)  # a single particle, or all at one place
    return jnp.exp(-distance / h), h
