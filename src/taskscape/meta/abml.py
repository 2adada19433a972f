"""Amortized Bayesian meta-learning."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from taskscape.meta.gaussian_weights import (
    GaussianLearner,
    GaussianMeta,
    GaussianWeights,
    free_energy,
    noise,
)
from taskscape.meta.learner import Episode, Number, n_samples


@dataclass(frozen=True)
class ABML(GaussianLearner):
    r"""Hierarchical variational inference with one prior over the weights for all tasks.

    .. math::
        \lambda_0 = \theta, \quad \lambda_{t+1} \text{ a step from } \lambda_t \text{ down }
        F(\lambda; \text{support}), \quad
        F(\lambda; D) = E_{q(w; \lambda)}[\mathrm{nll}(w; D)]
        + \beta\, KL[q(w; \lambda) \| p(w; \theta)] / n_D

    .. math:: \text{loss}(\theta) = F(\lambda_T; \text{support} \cup \text{query})
        - \frac{\beta}{n M} \ln p(\theta)

    θ holds means m and precisions τ (kept as logarithms) with hyper-prior
    :math:`p(\theta) = N(m; 0, I)\,\mathrm{Gamma}(\tau; a_0, b_0)`, counted once over the M training
    tasks. Expectations are averages over reparametrised samples.

    Ravi and Beatson 2019, "Amortized Bayesian meta-learning".

    Differs: the steps are damped natural-gradient steps (:func:`natural_step`), not plain gradient
    steps on means and log-variances, for the reasons that :class:`VAMPIRE` gives. θ is a point
    estimate, as in their experiments; likelihoods are means over samples and
    the divergence is divided by their number with them, so that the rate does not depend on it; a
    ``kl_weight`` β other than 1 tempers both priors; M is a setting, ``hyper_tasks``. Support and
    query pass through the network separately, each normalised by its own statistics.
    """

    hyper_shape: float = 1.0
    hyper_rate: float = 0.01
    hyper_tasks: int = 10_000

    numbers: ClassVar[tuple[str, ...]] = (*GaussianLearner.numbers, "hyper_shape", "hyper_rate")

    def loss(self, state: GaussianMeta, episode: Episode, key: PRNGKeyArray) -> Float[Array, ""]:
        inner, outer = jax.random.split(key)
        prior, q = state.prior(), self.adapt(state, episode.support, inner)
        whole = (episode.support, episode.query)
        eps = noise(q, outer, self.train_samples)
        task = free_energy(q, prior, whole, eps, self.kl_weight)
        hyper = hyper_prior(prior, self.hyper_shape, self.hyper_rate)
        return task - self.kl_weight * hyper / (self.hyper_tasks * n_samples(*whole))


def hyper_prior(prior: GaussianWeights, shape: Number, rate: Number) -> Float[Array, ""]:
    r"""Log-density of the meta-parameters, without constants.

    .. math:: \sum_i \bigl(-\tfrac12 m_i^2 + (a_0 - 1) \ln\tau_i - b_0 \tau_i\bigr)
    """

    def one(mean: Array, log_variance: Array) -> Array:
        return (-0.5 * mean**2 - (shape - 1) * log_variance - rate * jnp.exp(-log_variance)).sum()

    terms = jax.tree.map(one, prior.mean, prior.log_variance)
    return jnp.asarray(sum(jax.tree.leaves(terms)))
