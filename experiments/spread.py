"""How far the weights of a Bayesian learner spread, task by task."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from taskscape.meta.episodes import EpisodeRows, gather, rows_of
from taskscape.meta.evaluation import tasks_at_once
from taskscape.meta.gaussian_weights import GaussianMeta, GaussianWeights
from taskscape.meta.learner import Shots
from taskscape.tasks import TaskSet


def weight_spread(
    learner: Any, state: PyTree, tasks: TaskSet, *, chunk_size: int | None = None
) -> dict[str, Float[np.ndarray, "tasks"]]:
    """Measures of spread for every task, and how often the learner's members disagree.

    The posteriors are those of an evaluation with seed 0. ``chunk_size`` tasks are held in memory
    side by side.
    """
    samples, base = jnp.asarray(tasks.pool.samples), jax.random.key(0)
    size = min(chunk_size or tasks_at_once(), len(tasks))

    def one(args: tuple[EpisodeRows, Int[Array, ""]]) -> dict[str, Float[Array, ""]]:
        rows, index = args
        inner, outer = jax.random.split(jax.random.fold_in(base, index))
        episode = gather(samples, rows)
        adapted = learner.adapt(state, episode.support, inner)
        p = learner.members(adapted, episode.query, outer)
        return {**spread(state, adapted), "disagreement": disagreement(p, episode.query)}

    with jax.default_matmul_precision("float32"):
        by_task = jax.jit(lambda rows, index: jax.lax.map(one, (rows, index), batch_size=size))
        of_all = by_task(rows_of(tasks), np.arange(len(tasks), dtype=np.int32))
    return {name: np.asarray(values) for name, values in of_all.items()}


def disagreement(p: Float[Array, "members n way"], query: Shots) -> Float[Array, ""]:
    r"""How often a member's most probable class is not that of the average of all.

    .. math:: \frac{1}{M n} \sum_{mn} [\arg\max_c p_{mnc} \ne \arg\max_c \bar p_{nc}]
    """
    other = (p.argmax(-1) != p.mean(0).argmax(-1)) & query.mask
    return other.mean(0).sum() / jnp.maximum(query.mask.sum(), 1)


def spread(state: Any, adapted: Any) -> dict[str, Float[Array, ""]]:
    """How wide the weights are after a task, by name, compared with before."""
    if isinstance(state, GaussianMeta):
        return _of_gaussians(state, adapted)
    return _of_particles(state, adapted)


def _of_gaussians(state: GaussianMeta, adapted: GaussianWeights) -> dict[str, Float[Array, ""]]:
    """Posterior over prior standard deviations, and how far the means went, over all weights.

    ``std_ratio`` is the mean and ``least_std_ratio`` the least ratio, ``narrowed`` the share of
    weights with a ratio below 0.9, ``prior_std`` the geometric mean of the prior's, ``shift``
    the root mean square of the means' moves in standard deviations of the prior.
    """
    prior = state.prior()
    log_variance, move = prior.log_variance, adapted.mean - prior.mean
    ratio = jnp.exp(0.5 * (adapted.log_variance - log_variance))
    return {
        "std_ratio": ratio.mean(),
        "least_std_ratio": ratio.min(),
        "narrowed": (ratio < 0.9).mean(),
        "prior_std": jnp.exp(0.5 * log_variance.mean()),
        "shift": jnp.sqrt((move**2 * jnp.exp(-log_variance)).mean()),
    }


def _of_particles(state: PyTree, adapted: PyTree) -> dict[str, Float[Array, ""]]:
    """Distances (root mean square): between particles before and after a task, and moved.

    ``moves_apart`` is the distance between the *moves* of two particles over that of two moves
    of no relation, √2 times their length: 0, all moved alike; 1, each for itself.
    """

    def ravel(particle: PyTree) -> Array:
        return jnp.asarray(ravel_pytree(particle)[0])

    before, after = jax.vmap(ravel)(state), jax.vmap(ravel)(adapted)
    move = after - before
    moved = jnp.sqrt((move**2).sum(1).mean())
    apart = _mean_distance(move) / jnp.where(moved > 0, jnp.sqrt(2.0) * moved, 1.0)
    return {
        "distance_before": _mean_distance(before),
        "distance_after": _mean_distance(after),
        "moved": moved,
        "moves_apart": apart,
    }


def _mean_distance(w: Float[Array, "M weights"]) -> Float[Array, ""]:
    """Root mean square distance between two different particles."""
    return jnp.sqrt(2 * ((w - w.mean(0)) ** 2).sum() / max(len(w) - 1, 1))
