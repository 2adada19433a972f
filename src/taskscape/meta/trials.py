"""The state of a training and its compiled update, for many trials at once.

Everything has a leading axis of trials: seeds, or different lists of tasks, trained side by side.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from taskscape.errors import DataError
from taskscape.meta.episodes import EpisodeRows, gather
from taskscape.meta.learner import Learner
from taskscape.meta.networks import Architecture

__all__ = ["TrainConfig", "TrainState", "Trained", "advance", "begin"]


@dataclass(frozen=True)
class TrainConfig:
    """How to meta-train: Adam on the mean loss of batches of tasks.

    ``validate_every`` updates run in one dispatch; after each, validation tasks (if any) are
    evaluated and the checkpoint is offered. ``patience`` checks without a better validation
    accuracy end the training; the best state is kept.
    """

    updates: int = 2500
    batch_size: int = 4
    learning_rate: float = 1e-3
    schedule: Literal["constant", "cosine"] = "cosine"
    warmup: int = 0
    weight_decay: float = 0.0
    clip_norm: float | None = 10.0
    validate_every: int = 250
    patience: int | None = None
    fresh_samples: bool = False

    def __post_init__(self) -> None:
        for name in ("updates", "batch_size", "validate_every"):
            if getattr(self, name) < 1:
                raise DataError(f"{name}={getattr(self, name)} must be at least 1.")
        if not self.learning_rate > 0:
            raise DataError(f"learning_rate={self.learning_rate} must be positive.")

    @staticmethod
    def one_pass(n_tasks: int, batch_size: int = 4, epochs: int = 1, **rest: Any) -> "TrainConfig":
        """Settings that show each of ``n_tasks`` tasks ``epochs`` times."""
        updates = math.ceil(epochs * n_tasks / batch_size)
        return TrainConfig(updates=updates, batch_size=batch_size, **rest)

    def optimiser(self) -> optax.GradientTransformation:
        """Adam with its schedule, decay and clipping."""
        rate: Any = self.learning_rate
        if self.schedule == "cosine":
            rate = optax.cosine_decay_schedule(rate, max(1, self.updates - self.warmup))
        if self.warmup:
            rise = optax.linear_schedule(0.0, self.learning_rate, self.warmup)
            rest = rate if callable(rate) else optax.constant_schedule(rate)
            rate = optax.join_schedules([rise, rest], [self.warmup])
        clip = (
            optax.identity()
            if self.clip_norm is None
            else optax.clip_by_global_norm(self.clip_norm)
        )
        return optax.chain(clip, optax.adamw(rate, weight_decay=self.weight_decay))


class TrainState(eqx.Module):
    """Where a training stands; what a checkpoint holds. Arrays have a leading axis of trials."""

    state: PyTree
    opt_state: PyTree
    best: PyTree
    """The state with the best validation accuracy so far."""
    losses: Float[Array, "*trials updates"]
    """The loss of every update, NaN for those to come."""
    scores: Float[Array, "*trials checks"]
    """Validation accuracy at every check, NaN for those to come."""
    step: Int[Array, "*trials"]


@dataclass(frozen=True, eq=False)
class Trained:
    """What came of a training. From :func:`train_many`, arrays have a leading axis of trials."""

    learner: Learner
    network: Architecture
    n_way: int
    state: PyTree
    losses: Float[np.ndarray, "*trials updates"]
    scores: Float[np.ndarray, "*trials checks"]

    def __getitem__(self, trial: int) -> "Trained":
        """One of many trials."""
        state = jax.tree.map(lambda leaf: leaf[trial], self.state)
        return Trained(
            self.learner, self.network, self.n_way, state, self.losses[trial], self.scores[trial]
        )


def begin(
    learner: Learner,
    network: Architecture,
    config: TrainConfig,
    *,
    n_way: int,
    seeds: Sequence[int] = (0,),
) -> TrainState:
    """The start of a training, one trial for each seed."""
    checks = -(-config.updates // config.validate_every)

    def one(seed: Int[Array, ""]) -> TrainState:
        state = learner.init(jax.random.key(seed), network, n_way)
        return TrainState(
            state=state,
            opt_state=config.optimiser().init(state),
            best=state,
            losses=jnp.full(config.updates, jnp.nan),
            scores=jnp.full(checks, jnp.nan),
            step=jnp.zeros((), jnp.int32),
        )

    return jax.vmap(one)(jnp.asarray(seeds))


@partial(jax.jit, static_argnames=("learner", "config"))
def advance(
    learner: Learner,
    config: TrainConfig,
    samples: Shaped[Array, "rows *shape"],
    rows: EpisodeRows,
    live: int | Int[Array, ""],
    seeds: Int[Array, "trials"],
    trials: TrainState,
) -> TrainState:
    """The first ``live`` of the updates whose tasks are given, for all trials, compiled once.

    ``rows`` has axes (trials, updates, tasks of a batch, …). An update whose gradient is not finite
    is left out; its loss stays on record.
    """
    optimiser = config.optimiser()

    def mean_loss(state: PyTree, rows: EpisodeRows, key: PRNGKeyArray) -> Float[Array, ""]:
        episodes = jax.vmap(partial(gather, samples))(rows)
        keys = jax.random.split(key, config.batch_size)
        return jax.vmap(learner.loss, in_axes=(None, 0, 0))(state, episodes, keys).mean()

    def one(trial: TrainState, rows: EpisodeRows, seed: Int[Array, ""]) -> TrainState:
        base = jax.random.fold_in(jax.random.key(seed), 1)  # 0 gave the weights

        def update(i: Int[Array, ""], trial: TrainState) -> TrainState:
            batch = jax.tree.map(lambda r: r[i], rows)
            key = jax.random.fold_in(base, trial.step)
            loss, gradient = jax.value_and_grad(mean_loss)(trial.state, batch, key)
            change, opt_state = optimiser.update(gradient, trial.opt_state, trial.state)
            sound = jnp.stack([jnp.isfinite(g).all() for g in jax.tree.leaves(gradient)]).all()
            state, opt_state = jax.tree.map(
                partial(jnp.where, sound),
                (optax.apply_updates(trial.state, change), opt_state),
                (trial.state, trial.opt_state),
            )
            return TrainState(
                state=state,
                opt_state=opt_state,
                best=trial.best,
                losses=trial.losses.at[trial.step].set(loss),
                scores=trial.scores,
                step=trial.step + 1,
            )

        return jax.lax.fori_loop(0, live, update, trial)

    return jax.vmap(one)(trials, rows, seeds)
