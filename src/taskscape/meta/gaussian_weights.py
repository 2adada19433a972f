"""Mean-field Gaussians over the weights of a network, and the learners of them: VAMPIRE, ABML."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from taskscape.arguments import check_number
from taskscape.meta.learner import Episode, Number, Shots, log_probabilities, n_samples, nll, picked
from taskscape.meta.networks import Architecture, Network


class GaussianWeights(eqx.Module):
    """Independent Gaussians, one for each weight of a network, in one row.

    The gradient by a variance is a sum of products over samples, and on kernels (rank 7 with the
    axes of samples, tasks and trials) that crashes jaxlib 0.10.2 on CPUs
    (https://github.com/jax-ml/jax/issues/39257).
    """

    mean: Float[Array, "weights"]
    log_variance: Float[Array, "weights"]
    rebuild: Callable[[Array], Network] = eqx.field(static=True)
    """The network of a row of weights."""


class GaussianMeta(eqx.Module):
    r"""What is learned over tasks: means, and standard deviations as logarithms of their growth.

    .. math:: p(w; \theta) = N(m, s^2), \qquad \ln s = \ln s_0 + \kappa\, u

    with u = 0 at the start s0, and κ the ``std_rate``. Adam moves every number by about its
    learning rate: 1e-3 is two per cent of a weight in a layer of 640 inputs, but in ln s it would
    be a thousandth of s. With κ = 10 it is a hundredth.
    """

    mean: PyTree
    growth: PyTree
    initial_std: float = eqx.field(static=True)
    std_rate: float = eqx.field(static=True)

    def prior(self) -> GaussianWeights:
        """The prior of every task."""
        mean, rebuild = ravel_pytree(self.mean)
        log_std = math.log(self.initial_std) + self.std_rate * ravel_pytree(self.growth)[0]
        return GaussianWeights(mean, 2 * log_std, rebuild)


def noise(q: GaussianWeights, key: PRNGKeyArray, samples: int) -> Float[Array, "samples weights"]:
    """Standard normal numbers for that many samples of all weights."""
    return jax.random.normal(key, (samples, q.mean.size))


def draw(q: GaussianWeights, eps: Float[Array, "weights"]) -> Network:
    r"""One reparametrised sample.

    .. math:: w = m + s \epsilon, \quad \epsilon \sim N(0, I)
    """
    return q.rebuild(q.mean + jnp.exp(0.5 * q.log_variance) * eps)


def gaussian_kl(q: GaussianWeights, p: GaussianWeights) -> Float[Array, ""]:
    r"""Kullback-Leibler divergence between two mean-field Gaussians.

    .. math::
        KL[q \| p] = \tfrac12 \sum_i \Bigl(\ln\frac{s_{pi}^2}{s_{qi}^2}
        + \frac{s_{qi}^2 + (m_{qi} - m_{pi})^2}{s_{pi}^2} - 1\Bigr)
    """

    # exp(vq / 2) is what sampling needs too; exponentials are most of the cost on a CPU
    spread = jnp.exp(0.5 * q.log_variance) ** 2 + (q.mean - p.mean) ** 2
    ratio = p.log_variance - q.log_variance
    return 0.5 * (ratio - 1 + spread * jnp.exp(-p.log_variance)).sum()


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
    kl_weight: Number,
) -> Float[Array, ""]:
    r"""Negative ELBO of a task per sample, with a weight on the divergence from the prior.

    .. math:: E_q[\mathrm{nll}(w)] + \beta\, KL[q \| p] / n

    with nll the mean over the n samples of the task; at weight 1 this is the negative ELBO over n.
    """
    divergence = kl_weight * gaussian_kl(q, prior) / n_samples(*sets)
    return expected_nll(q, sets, eps) + divergence


def slopes(
    q: GaussianWeights,
    support: Shots,
    eps: Float[Array, "samples weights"],
    v: Float[Array, "samples n way"],
) -> tuple[Float[Array, "weights"], Float[Array, "weights"]]:
    r"""Expected gradient of the mean nll and its expected curvature, over samples of the weights.

    .. math:: g = E_q[\nabla \mathrm{nll}(w)], \qquad h_i = \frac1n E_q \sum_{nc} p_{nc}\,
        (\partial_i \ln p_{nc})^2 = \frac1n E_{q,v}\Bigl[\Bigl(\sum_{nc} v_{nc} \sqrt{p_{nc}}\;
        \partial_i \ln p_{nc}\Bigr)^2\Bigr]

    for random signs v, because those of two entries are independent: h is the diagonal of the
    Fisher information, the Gauss-Newton part of the Hessian of the mean nll (all of it for softmax
    regression), never negative, and costs one gradient.
    """
    n = jnp.maximum(n_samples(support), 1)

    def one(e: Float[Array, "weights"], v: Float[Array, "n way"]) -> tuple[Array, Array]:
        w = q.mean + jnp.exp(0.5 * q.log_variance) * e
        log_p, pull = jax.vjp(lambda w: log_probabilities(q.rebuild(w), support), w)
        down = jax.grad(lambda log_p: -picked(log_p, support).sum() / n)(log_p)
        root = jnp.where(support.mask[:, None], jnp.exp(0.5 * log_p), 0)
        return pull(down)[0], pull(v * root)[0] ** 2 / n

    gradient, curvature = jax.vmap(one)(eps, v)
    return gradient.mean(0), curvature.mean(0)


def signs(shots: Shots, key: PRNGKeyArray, samples: int) -> Float[Array, "samples n way"]:
    """Random signs for every sample and class; padding does not change those of the others.

    Drawn in one row for each sample, which compiles six times sooner than a table on a CPU.
    """
    way = shots.class_mask.shape[0]
    keys = jax.random.split(key, len(shots.y))
    each = jax.vmap(lambda k: jax.random.rademacher(k, (way * samples,), float))(keys)
    return jnp.moveaxis(each.reshape(-1, way, samples), -1, 0)


def natural_step(
    q: GaussianWeights,
    prior: GaussianWeights,
    gradient: Float[Array, "weights"],
    curvature: Float[Array, "weights"],
    weight: Float[Array, ""],
    *,
    rate: Number,
    precision_rate: Number,
) -> GaussianWeights:
    r"""One damped natural-gradient step on the free energy of a task.

    .. math::
        \tau' = (1 - \rho)\,\tau + \rho\,(\tau_0 + h / b), \qquad
        m' = m - \frac{g + b\,\tau_0\,(m - m_0)}{1 / a + b\,\tau'}

    with precisions τ = 1 / s², index 0 for the prior, and the ``weight`` b = β / n of the
    divergence. The step stays put where the free energy is least, with h for its Hessian: at
    g = b τ0 (m0 - m) and τ = τ0 + h / b. Where b τ' is small against 1/a it is MAML's step of rate
    a, where it is large Newton's; and as τ' >= τ0, the pull of the prior never overshoots, whatever
    β and the prior are.

    Khan and Rue 2023, "The Bayesian learning rule", with a = ∞ and ρ its rate.
    """

    prior_precision = jnp.exp(-prior.log_variance)
    newest = prior_precision + curvature / weight
    precision = (1 - precision_rate) * jnp.exp(-q.log_variance) + precision_rate * newest
    downhill = gradient + weight * prior_precision * (q.mean - prior.mean)
    mean = q.mean - downhill / (1 / rate + weight * precision)
    return GaussianWeights(mean, -jnp.log(precision), q.rebuild)


@dataclass(frozen=True)
class GaussianLearner:
    r"""A mean-field Gaussian over the weights that is both start and prior of every task.

    .. math:: \lambda_0 = \theta, \quad \lambda_{t+1} = \operatorname{natural\_step}
        (\lambda_t; \theta, \text{support})

    on the free energy F of :func:`free_energy`: ``inner_rate`` a of the means, ``precision_rate`` ρ
    of the precisions, ``kl_weight`` β. What the meta-parameters θ are to make small is left to
    those who build on it.
    """

    inner_rate: float = 0.2
    inner_steps: int = 5
    kl_weight: float = 1e-4
    train_samples: int = 2
    predict_samples: int = 10
    initial_std: float = 0.02
    precision_rate: float = 0.5
    std_rate: float = 10.0
    first_order: bool = False

    numbers: ClassVar[tuple[str, ...]] = ("inner_rate", "kl_weight", "precision_rate")

    def __post_init__(self) -> None:
        for name in ("inner_rate", "kl_weight", "train_samples", "predict_samples", "initial_std"):
            check_number(getattr(self, name), name, 0, open_="low")
        check_number(self.precision_rate, "precision_rate", 0, 1, open_="low")

    def init(self, key: PRNGKeyArray, network: Architecture, n_way: int) -> GaussianMeta:
        mean = network.build(key, n_way)
        growth = jax.tree.map(jnp.zeros_like, mean)
        return GaussianMeta(mean, growth, self.initial_std, self.std_rate)

    def adapt(self, state: GaussianMeta, support: Shots, key: PRNGKeyArray) -> GaussianWeights:
        prior = state.prior()
        weight = self.kl_weight / jnp.maximum(n_samples(support), 1)
        of_weights, of_signs = jax.random.split(key)
        draws = self.inner_steps * self.train_samples

        def by_step(random: Array) -> Array:
            return random.reshape(self.inner_steps, self.train_samples, *random.shape[1:])

        eps = by_step(noise(prior, of_weights, draws))
        v = by_step(signs(support, of_signs, draws))

        def step(q: GaussianWeights, random: tuple[Array, Array]) -> tuple[GaussianWeights, None]:
            g, h = slopes(q, support, *random)
            if self.first_order:
                g, h = jax.lax.stop_gradient((g, h))
            rates = {"rate": self.inner_rate, "precision_rate": self.precision_rate}
            return natural_step(q, prior, g, h, weight, **rates), None

        return jax.lax.scan(step, prior, (eps, v))[0]

    def members(
        self, adapted: GaussianWeights, query: Shots, key: PRNGKeyArray
    ) -> Float[Array, "members n way"]:
        """Class probabilities under samples of the weights."""
        eps = noise(adapted, key, self.predict_samples)
        return jnp.exp(jax.vmap(lambda e: log_probabilities(draw(adapted, e), query))(eps))

    def predict(
        self, adapted: GaussianWeights, query: Shots, key: PRNGKeyArray
    ) -> Float[Array, "n way"]:
        return self.members(adapted, query, key).mean(0)


@dataclass(frozen=True)
class VAMPIRE(GaussianLearner):
    r"""MAML with a mean-field Gaussian posterior over the weights of each task.

    .. math::
        \lambda_0 = \theta, \quad \lambda_{t+1} \text{ a step from } \lambda_t \text{ down }
        E_{q(w; \lambda)}[\mathrm{nll}(w; \text{support})]
        + \beta\, KL[q(w; \lambda) \| p(w; \theta)] / n, \quad
        \text{loss}(\theta) = E_{q(w; \lambda_T)}[\mathrm{nll}(w; \text{query})]

    The meta-parameters (means and standard deviations) are both the start and the prior of every
    task; expectations are averages over reparametrised samples, predictions averages of
    probabilities.

    Nguyen, Do and Carneiro 2020, "Uncertainty in model-agnostic meta-learning using variational
    inference".

    Differs: the steps are damped natural-gradient steps (:func:`natural_step`), not plain gradient
    steps on means and log-variances: of those, the ones of the means diverge where β/(n s²) is
    above 2 over the rate, and the ones of the log-variances hardly move, because the gradient by
    ln s² is s² times a curvature. Likelihoods are means over the n samples, and the divergence is
    divided by n with them, so that the rate does not depend on n; β = 1 is the true posterior, a
    smaller ``kl_weight`` β tempers it (the authors' code has such a weight too).
    """

    def loss(self, state: GaussianMeta, episode: Episode, key: PRNGKeyArray) -> Float[Array, ""]:
        inner, outer = jax.random.split(key)
        q = self.adapt(state, episode.support, inner)
        return expected_nll(q, (episode.query,), noise(q, outer, self.train_samples))


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

    v = prior.log_variance
    return (-0.5 * prior.mean**2 - (shape - 1) * v - rate * jnp.exp(-v)).sum()
