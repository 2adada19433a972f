"""VAMPIRE: variational agnostic modelling that performs inference for robust estimation."""

from dataclasses import dataclass

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from taskscape.meta.gaussian_weights import (
    GaussianLearner,
    GaussianWeights,
    expected_nll,
    noise,
)
from taskscape.meta.learner import Episode

__all__ = ["VAMPIRE"]


@dataclass(frozen=True)
class VAMPIRE(GaussianLearner):
    r"""MAML with a mean-field Gaussian posterior over the weights of each task.

    .. math::
        \lambda_0 = \theta, \quad \lambda_{t+1} = \lambda_t - a \nabla_\lambda
        \bigl(E_{q(w; \lambda)}[\mathrm{nll}(w; \text{support})]
        + \beta\, KL[q(w; \lambda) \| p(w; \theta)] / n\bigr), \quad
        \text{loss}(\theta) = E_{q(w; \lambda_T)}[\mathrm{nll}(w; \text{query})]

    The meta-parameters (means and log-variances) are both the start and the prior of every task;
    expectations are averages over reparametrised samples, predictions averages of probabilities.

    Nguyen, Do and Carneiro 2020, "Uncertainty in model-agnostic meta-learning using variational
    inference".

    Differs: likelihoods are means over the n samples, and the divergence is divided by n with them,
    so that the rate does not depend on n; a ``kl_weight`` β other than 1 tempers the posterior (the
    authors' code has such a weight too). With β/(n s²) above 2 over the inner rate the steps
    diverge, which is why β is small where the standard deviations s are.
    """

    def loss(self, state: GaussianWeights, episode: Episode, key: PRNGKeyArray) -> Float[Array, ""]:
        inner, outer = jax.random.split(key)
        q = self.adapt(state, episode.support, inner)
        return expected_nll(q, (episode.query,), noise(q, outer, self.train_samples))
