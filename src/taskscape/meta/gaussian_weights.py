"""Mean-field Gaussians over the weights of a network: what ABML and VAMPIRE share."""

import itertools
from dataclasses import dataclass
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from taskscape.meta.learner import Shots, descend, log_probabilities, n_samples, nll
from taskscape.meta.networks import Architecture, Network

__all__ = [
    "GaussianLearner",
    "GaussianWeights",
    "draw",
    "expected_nll",
    "free_energy",
    "gaussian_kl",
    "mean_prediction",
    "minimise_free_energy",
    "noise",
    "standard_start",
]


class GaussianWeights(eqx.Module):
    """Independent Gaussians, one for each weight: two networks of means and log-variances."""

    mean: PyTree
    log_variance: PyTree


def standard_start(network: Network, std: float) -> GaussianWeights:
    """Gaussians about a fresh network, all as wide."""
    width = jax.tree.map(lambda w: jnp.full_like(w, 2 * jnp.log(std)), network)
    return GaussianWeights(network, width)


def noise(q: GaussianWeights, key: PRNGKeyArray, samples: int) -> Float[Array, "samples weights"]:
    """Standard normal numbers for that many samples of all weights.

    One array, because every call of a random generator takes long to compile on a CPU.
    """
    return jax.random.normal(key, (samples, sum(leaf.size for leaf in jax.tree.leaves(q.mean))))


def draw(q: GaussianWeights, eps: Float[Array, "weights"]) -> Network:
    r"""One reparametrised sample.

    .. math:: w = m + s \epsilon, \quad \epsilon \sim N(0, I)
    """
    means, structure = jax.tree.flatten(q.mean)
    ends = itertools.accumulate(m.size for m in means)
    weights = [
        m + jnp.exp(0.5 * v) * eps[end - m.size : end].reshape(m.shape)
        for m, v, end in zip(means, jax.tree.leaves(q.log_variance), ends, strict=True)
    ]
    return cast(Network, jax.tree.unflatten(structure, weights))


def gaussian_kl(q: GaussianWeights, p: GaussianWeights) -> Float[Array, ""]:
    r"""Kullback-Leibler divergence between two mean-field Gaussians.

    .. math::
        KL[q \| p] = \tfrac12 \sum_i \Bigl(\ln\frac{s_{pi}^2}{s_{qi}^2}
        + \frac{s_{qi}^2 + (m_{qi} - m_{pi})^2}{s_{pi}^2} - 1\Bigr)
    """

    def one(mq: Array, vq: Array, mp: Array, vp: Array) -> Array:
        # exp(vq / 2) is what sampling needs too; exponentials are most of the cost on a CPU
        spread = jnp.exp(0.5 * vq) ** 2 + (mq - mp) ** 2
        return 0.5 * (vp - vq - 1 + spread * jnp.exp(-vp)).sum()

    terms = jax.tree.map(one, q.mean, q.log_variance, p.mean, p.log_variance)
    return jnp.asarray(sum(jax.tree.leaves(terms)))


def expected_nll(
    q: GaussianWeights, sets: tuple[Shots, ...], eps: Float[Array, "samples weights"]
) -> Float[Array, ""]:
    """Mean negative log-likelihood of the sets, averaged over samples of the weights."""
    return jax.vmap(lambda e: nll(draw(q, e), *sets))(eps).mean()


def free_energy(
    q: GaussianWeights,
    prior: GaussianWeights,
    sets: tuple[Shots, ...],
    eps: Float[Array, "samples weights"],
    kl_weight: float,
) -> Float[Array, ""]:
    r"""Negative ELBO of a task per sample, with a weight on the divergence from the prior.

    .. math:: E_q[\mathrm{nll}(w)] + \beta\, KL[q \| p] / n

    with nll the mean over the n samples of the task; at weight 1 this is the negative ELBO over n.
    """
    divergence = kl_weight * gaussian_kl(q, prior) / n_samples(*sets)
    return expected_nll(q, sets, eps) + divergence


def minimise_free_energy(
    prior: GaussianWeights,
    support: Shots,
    key: PRNGKeyArray,
    *,
    rate: float,
    steps: int,
    samples: int,
    kl_weight: float,
    first_order: bool,
) -> GaussianWeights:
    """The posterior of a task: gradient steps on its free energy that start from the prior."""

    def step(q: GaussianWeights, k: PRNGKeyArray) -> tuple[GaussianWeights, None]:
        gradient = jax.grad(free_energy)(q, prior, (support,), noise(q, k, samples), kl_weight)
        if first_order:
            gradient = jax.lax.stop_gradient(gradient)
        return descend(q, gradient, rate), None

    return jax.lax.scan(step, prior, jax.random.split(key, steps))[0]


def mean_prediction(
    q: GaussianWeights, query: Shots, key: PRNGKeyArray, samples: int
) -> Float[Array, "n way"]:
    """Class probabilities, averaged over samples of the weights."""
    eps = noise(q, key, samples)
    return jnp.exp(jax.vmap(lambda e: log_probabilities(draw(q, e), query))(eps)).mean(0)


@dataclass(frozen=True)
class GaussianLearner:
    r"""A mean-field Gaussian over the weights that is both start and prior of every task.

    .. math:: \lambda_0 = \theta, \quad \lambda_{t+1} = \lambda_t - a \nabla_\lambda
        F(\lambda_t; \text{support})

    with F of :func:`free_energy`. What the meta-parameters θ are to make small is left to those who
    build on it.
    """

    inner_rate: float = 0.2
    inner_steps: int = 5
    kl_weight: float = 1e-4
    train_samples: int = 2
    predict_samples: int = 10
    initial_std: float = 0.02
    first_order: bool = False

    def init(self, key: PRNGKeyArray, network: Architecture, n_way: int) -> GaussianWeights:
        return standard_start(network.build(key, n_way), self.initial_std)

    def adapt(self, state: GaussianWeights, support: Shots, key: PRNGKeyArray) -> GaussianWeights:
        return minimise_free_energy(
            state,
            support,
            key,
            rate=self.inner_rate,
            steps=self.inner_steps,
            samples=self.train_samples,
            kl_weight=self.kl_weight,
            first_order=self.first_order,
        )

    def predict(
        self, adapted: GaussianWeights, query: Shots, key: PRNGKeyArray
    ) -> Float[Array, "n way"]:
        return mean_prediction(adapted, query, key, self.predict_samples)
