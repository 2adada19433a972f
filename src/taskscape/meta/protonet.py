"""Prototypical networks."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from taskscape.meta.learner import Episode, Shots, masked_log_softmax, picked
from taskscape.meta.networks import Architecture, Network


class Prototypes(eqx.Module):
    """The embedding, and the mean embedding of each class's support."""

    network: Network
    means: Float[Array, "way dims"]


@dataclass(frozen=True)
class ProtoNet:
    r"""Nearest class mean in a learned embedding f.

    .. math::
        m_c = \operatorname{mean}_{n: y_n = c} f(x_n), \quad
        p(y = c \mid x) \propto \exp\{-\lVert f(x) - m_c \rVert^2\}, \quad
        \text{loss} = -\operatorname{mean}_{\text{query}} \ln p(y_n \mid x_n)

    Snell, Swersky and Zemel 2017, "Prototypical networks for few-shot learning".

    Differs: nothing. f is the last hidden layer of the network. Training with more ways than
    testing, as they do, is a matter of the tasks. Support and query pass through the network
    separately, each normalised by its own statistics.
    """

    def init(self, key: PRNGKeyArray, network: Architecture, n_way: int) -> Network:
        del n_way  # prototypes need no head
        return network.build(key)

    def adapt(self, state: Network, support: Shots, key: PRNGKeyArray) -> Prototypes:
        member = jax.nn.one_hot(support.y, support.class_mask.shape[0]) * support.mask[:, None]
        count = jnp.maximum(member.sum(0), 1)[:, None]
        return Prototypes(state, member.T @ state(support.x, support.mask) / count)

    def loss(self, state: Network, episode: Episode, key: PRNGKeyArray) -> Float[Array, ""]:
        query = episode.query
        log_p = _log_probabilities(self.adapt(state, episode.support, key), query)
        return -picked(log_p, query).sum() / jnp.maximum(query.mask.sum(), 1)

    def predict(
        self, adapted: Prototypes, query: Shots, key: PRNGKeyArray
    ) -> Float[Array, "n way"]:
        return jnp.exp(_log_probabilities(adapted, query))


def _log_probabilities(adapted: Prototypes, query: Shots) -> Float[Array, "n way"]:
    f = adapted.network(query.x, query.mask)
    # |f|² is the same for every class and cancels
    inner = jnp.matmul(f, adapted.means.T, precision="highest")
    logits = 2 * inner - (adapted.means**2).sum(1)
    return masked_log_softmax(logits, query.class_mask)
