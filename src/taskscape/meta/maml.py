"""Model-agnostic meta-learning."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from taskscape.meta.learner import Episode, Shots, log_probabilities, nll
from taskscape.meta.networks import Architecture, Network


@dataclass(frozen=True)
class MAML:
    r"""An initialisation from which a few gradient steps solve a new task.

    .. math::
        w_0 = \theta, \quad w_{t+1} = w_t - a \nabla \mathrm{nll}(w_t; \text{support}), \quad
        \text{loss}(\theta) = \mathrm{nll}(w_T; \text{query})

    where nll is the mean negative log-likelihood and the loss is differentiated through all steps.

    Finn, Abbeel and Levine 2017, "Model-agnostic meta-learning for fast adaptation of deep
    networks".

    Differs: nothing. ``first_order`` drops the second derivatives, their FOMAML. To adapt with
    other steps or another rate at test time, evaluate ``dataclasses.replace(learner, …)`` with the
    same state.
    """

    inner_rate: float = 0.2
    inner_steps: int = 5
    first_order: bool = False

    numbers: ClassVar[tuple[str, ...]] = ("inner_rate",)

    def init(self, key: PRNGKeyArray, network: Architecture, n_way: int) -> Network:
        return network.build(key, n_way)

    def adapt(self, state: Network, support: Shots, key: PRNGKeyArray) -> Network:
        def step(weights: Network, _: None) -> tuple[Network, None]:
            gradient = jax.grad(nll)(weights, support)
            if self.first_order:
                gradient = jax.lax.stop_gradient(gradient)
            return jax.tree.map(lambda w, g: w - self.inner_rate * g, weights, gradient), None

        return jax.lax.scan(step, state, length=self.inner_steps)[0]

    def loss(self, state: Network, episode: Episode, key: PRNGKeyArray) -> Float[Array, ""]:
        return nll(self.adapt(state, episode.support, key), episode.query)

    def predict(self, adapted: Network, query: Shots, key: PRNGKeyArray) -> Float[Array, "n way"]:
        return jnp.exp(log_probabilities(adapted, query))
