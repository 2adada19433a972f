"""The contract of a meta-learner, and what every learner shares.

All methods are pure and treat *one* task; the training loop and the evaluation map them over tasks
(and over trials). A learner is a frozen dataclass of its settings; what it learns is a separate
tree of arrays, its state. Heads have as many outputs as the largest way; the outputs of classes
that a task does not have are masked.
"""

import copy
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree
from numpy.typing import ArrayLike

from taskscape.errors import DataError
from taskscape.meta.networks import Architecture, Network

AnyLearner = TypeVar("AnyLearner", bound="Learner")
Number: TypeAlias = float | Float[Array, ""]
"""A setting that may be a number, or the argument of a compiled program that stands for it."""
_NEVER = -1e9
"""Logit of a class that the task does not have; finite, because 0 · ∞ would be NaN."""


class Shots(eqx.Module):
    """Labelled samples of one task. Where ``mask`` is False there is no sample."""

    x: Float[Array, "n *shape"]
    y: Int[Array, "n"]
    mask: Bool[Array, "n"]
    class_mask: Bool[Array, "way"]

    @staticmethod
    def of(x: ArrayLike, y: ArrayLike, n_way: int) -> "Shots":
        """From plain arrays; labels run from 0 to ``n_way - 1``. For queries, y may be zeros."""
        samples, labels = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32)
        if labels.shape != samples.shape[:1] or not bool((labels >= 0).all()):
            raise DataError(f"y must hold one label >= 0 for each of the {len(samples)} samples.")
        if bool((labels >= n_way).any()):
            raise DataError(
                f"y has label {int(labels.max())}; n_way={n_way} allows 0 to {n_way - 1}."
            )
        return Shots(samples, labels, jnp.ones(len(samples), bool), jnp.ones(n_way, bool))


class Episode(eqx.Module):
    """One task: what the learner adapts to, and what it is asked."""

    support: Shots
    query: Shots


@runtime_checkable
class Learner(Protocol):
    """What every meta-learner can do; the state and what it adapts to are its own pytrees.

    A learner may list float settings in a class attribute ``numbers``. Compiled programs then take
    them as arguments, so that other values need no other program; its methods must not decide
    anything in Python by their values.
    """

    def init(self, key: PRNGKeyArray, network: Architecture, n_way: int) -> PyTree:
        """Fresh state for tasks of up to ``n_way`` classes."""
        ...

    def loss(self, state: PyTree, episode: Episode, key: PRNGKeyArray) -> Float[Array, ""]:
        """What meta-training lowers, for one task."""
        ...

    def adapt(self, state: PyTree, support: Shots, key: PRNGKeyArray) -> PyTree:
        """What the learner knows after seeing the support set of a task."""
        ...

    def predict(self, adapted: PyTree, query: Shots, key: PRNGKeyArray) -> Float[Array, "n way"]:
        """Class probabilities of the queries, whose labels are not looked at."""
        ...


def log_probabilities(network: Network, shots: Shots) -> Float[Array, "n way"]:
    """Logarithms of a network's class probabilities, over the classes that the task has."""
    logits = network(shots.x, shots.mask)
    way = shots.class_mask.shape[0]
    if logits.shape[1] < way:
        raise DataError(
            f"tasks have up to {way} classes, the head has {logits.shape[1]} outputs. "
            f"Train with n_way={way} or more."
        )
    return masked_log_softmax(logits[:, :way], shots.class_mask)


def masked_log_softmax(
    logits: Float[Array, "n way"], class_mask: Bool[Array, "way"]
) -> Float[Array, "n way"]:
    """Logarithm of the softmax over the classes that the task has."""
    return jax.nn.log_softmax(jnp.where(class_mask, logits, _NEVER))


def picked(log_p: Float[Array, "n way"], shots: Shots) -> Float[Array, "n"]:
    """The entry of each sample's own class, 0 where there is no sample."""
    own = jnp.take_along_axis(log_p, shots.y[:, None], axis=1)[:, 0]
    return jnp.where(shots.mask, own, 0)


def nll(network: Network, *sets: Shots) -> Float[Array, ""]:
    r"""Mean negative log-likelihood of the samples of one or more sets.

    .. math:: -\frac1n \sum_n \ln p(y_n \mid x_n, w)

    Each set passes through the network by itself, so that it is normalised by its own statistics.
    """
    total = sum(-picked(log_probabilities(network, s), s).sum() for s in sets)
    return jnp.asarray(total) / jnp.maximum(n_samples(*sets), 1)


def n_samples(*sets: Shots) -> Float[Array, ""]:
    """How many samples the sets have together."""
    return jnp.asarray(sum(s.mask.sum() for s in sets), float)


def without_numbers(learner: AnyLearner) -> tuple[AnyLearner, dict[str, float]]:
    """A learner without the settings that it lists as ``numbers``, and those settings.

    Learners that differ in nothing else are then equal, and share what is compiled for them.
    """
    names: tuple[str, ...] = getattr(learner, "numbers", ())
    return with_numbers(learner, dict.fromkeys(names)), {n: getattr(learner, n) for n in names}


def with_numbers(learner: AnyLearner, numbers: Mapping[str, Any]) -> AnyLearner:
    """The learner with these settings, which were checked when it was made."""
    other = copy.copy(learner)
    for name, value in numbers.items():
        object.__setattr__(other, name, value)
    return other
