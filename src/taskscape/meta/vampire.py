"""VAMPIRE: variational agnostic modelling that performs inference for robust estimation."""

from dataclasses import dataclass

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from taskscape.meta.gaussian_weights import (
    GaussianLearner,
    GaussianMeta,
    expected_nll,
    noise,
)
from taskscape.meta.learner import Episode


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
