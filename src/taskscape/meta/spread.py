"""How far the weights of a Bayesian learner spread in a task: do they adapt, and do they differ?"""

from functools import partial
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from taskscape.errors import DataError
from taskscape.meta.episodes import EpisodeRows, gather, rows_of
from taskscape.meta.evaluation import tasks_at_once
from taskscape.meta.learner import Learner, Shots
from taskscape.seeds import MOST_FOR_JAX, Seed, check_seed
from taskscape.tasks import TaskSet

__all__ = ["Bayesian", "disagreement", "weight_spread"]


@runtime_checkable
class Bayesian(Learner, Protocol):
    """A learner that knows many networks after the support set, not one."""

    def members(
        self, adapted: PyTree, query: Shots, key: PRNGKeyArray
    ) -> Float[Array, "members n way"]:
        """Class probabilities of each of the networks; predictions are their average."""
        ...

    def spread(self, state: PyTree, adapted: PyTree) -> dict[str, Float[Array, ""]]:
        """How wide the weights are after a task, by name, compared with before."""
        ...


def weight_spread(
    learner: Learner,
    state: PyTree,
    tasks: TaskSet,
    *,
    seed: Seed = 0,
    chunk_size: int | None = None,
) -> dict[str, Float[np.ndarray, "tasks"]]:
    """The learner's own measures of spread for every task, and how often its members disagree.

    With the ``seed`` of an evaluation, the posteriors are those of the evaluation. ``chunk_size``
    tasks are held in memory side by side.
    """
    if not isinstance(learner, Bayesian):
        raise DataError(
            f"{type(learner).__name__} adapts one set of weights, which has no spread; "
            "weight_spread is for ABML, BMAML and VAMPIRE."
        )
    if len(tasks) == 0 or (chunk_size is not None and chunk_size < 1):
        raise DataError(f"{len(tasks)} tasks and chunk_size={chunk_size}: give at least 1 of each.")
    start = check_seed(seed, most=MOST_FOR_JAX)
    rows, index = rows_of(tasks), np.arange(len(tasks), dtype=np.int32)
    samples = jnp.asarray(tasks.pool.samples)
    size = min(chunk_size or tasks_at_once(), len(tasks))
    spread = _spread_chunks(learner, size, state, samples, rows, index, start)
    return {name: np.asarray(values) for name, values in spread.items()}


@partial(jax.jit, static_argnames=("learner", "size"))
def _spread_chunks(
    learner: Bayesian,
    size: int,
    state: PyTree,
    samples: Shaped[Array, "rows *shape"],
    rows: EpisodeRows,
    index: Int[Array, "tasks"],
    seed: int | Int[Array, ""],
) -> dict[str, Float[Array, "tasks"]]:
    base = jax.random.key(seed)

    def one(args: tuple[EpisodeRows, Int[Array, ""]]) -> dict[str, Float[Array, ""]]:
        rows, index = args
        inner, outer = jax.random.split(jax.random.fold_in(base, index))
        episode = gather(samples, rows)
        adapted = learner.adapt(state, episode.support, inner)
        p = learner.members(adapted, episode.query, outer)
        return {**learner.spread(state, adapted), "disagreement": disagreement(p, episode.query)}

    return jax.lax.map(one, (rows, index), batch_size=size)


def disagreement(p: Float[Array, "members n way"], query: Shots) -> Float[Array, ""]:
    r"""How often a member's most probable class is not that of the average of all.

    .. math:: \frac{1}{M n} \sum_{mn} [\arg\max_c p_{mnc} \ne \arg\max_c \bar p_{nc}]
    """
    other = (p.argmax(-1) != p.mean(0).argmax(-1)) & query.mask
    return other.mean(0).sum() / jnp.maximum(query.mask.sum(), 1)
