"""The one training loop of all learners: compiled, resumable, and for many trials at once.

A dispatch runs many updates: row numbers of all its tasks are drawn on the host, the samples are
gathered on the device. :func:`train` is the case of one trial.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree, Shaped

from taskscape.errors import DataError, TaskscapeError
from taskscape.meta.episodes import EpisodeRows, TaskFeed, pad_rows, rows_of
from taskscape.meta.evaluation import score
from taskscape.meta.learner import Learner
from taskscape.meta.memory import halved_until_it_fits
from taskscape.meta.networks import Architecture
from taskscape.meta.trials import TrainConfig, Trained, TrainState, advance, begin
from taskscape.progress import progress_bar
from taskscape.seeds import MOST_FOR_JAX, Seed, check_seed
from taskscape.tasks import TaskSet, TaskStream

__all__ = ["train", "train_many"]


def train(
    learner: Learner,
    network: Architecture,
    tasks: TaskSet | TaskStream,
    config: TrainConfig | None = None,
    *,
    seed: Seed = 0,
    **rest: Any,
) -> Trained:
    """Meta-train a learner on a list of tasks, or on an endless stream of them.

    ``rest`` is that of :func:`train_many`.
    """
    return train_many(learner, network, [tasks], config, seeds=[seed], **rest)[0]


def train_many(
    learner: Learner,
    network: Architecture,
    tasks: Sequence[TaskSet | TaskStream],
    config: TrainConfig | None = None,
    *,
    seeds: Sequence[Seed],
    n_way: int | None = None,
    validation: TaskSet | None = None,
    checkpoint: Callable[[TrainState], None] | None = None,
    resume: TrainState | None = None,
) -> Trained:
    """Meta-train many trials side by side: one seed and one list of tasks for each.

    All tasks must come from one pool. A seed decides the weights, the order of the tasks and the
    random draws of the learner. Without ``n_way``, heads fit the largest way of the tasks. Where
    memory does not suffice for all trials at once, groups of them take turns.
    ``checkpoint`` is called after every dispatch; what it was given can be passed as ``resume``.
    """
    config = config or TrainConfig()
    starts = [check_seed(s, most=MOST_FOR_JAX) for s in seeds]
    feeds = _feeds(tasks, starts, config)
    n_way = n_way or max(_way(t) for t in (*tasks, *([validation] if validation else [])))
    _check_network(network, feeds[0])
    samples = jnp.asarray(feeds[0].pool.samples)
    check = None if validation is None else _validation(learner, validation, feeds[0], samples)
    trials = resume or begin(learner, network, config, n_way=n_way, seeds=starts)
    done, together = int(trials.step[0]), len(feeds)
    with progress_bar("meta-training", config.updates) as advance_bar:
        advance_bar(done)
        while done < config.updates and not _all_stale(trials.scores, config.patience):
            live = min(config.validate_every, config.updates - done)
            rows = _dispatch_rows(feeds, config, done, live)
            step = partial(_in_groups, learner, config, samples, rows, live, starts, trials)
            trials, together = _fitted(step, together, config)
            _raise_if_diverged(trials.losses[:, done : done + live], done)
            if check is not None:
                trials = _keep_best(
                    trials, check(trials.state), done // config.validate_every, config
                )
            done += live
            advance_bar(live)
            if checkpoint is not None:
                checkpoint(trials)
    return Trained(
        learner=learner,
        network=network,
        n_way=n_way,
        state=trials.state if validation is None else trials.best,
        losses=np.asarray(trials.losses),
        scores=np.asarray(trials.scores),
    )


def _fitted(
    step: Callable[[int], TrainState], together: int, config: TrainConfig
) -> tuple[TrainState, int]:
    """The next updates, with as many trials side by side as memory allows; and how many."""
    remedy = f"Lower batch_size={config.batch_size}, the samples of a task, or the network."
    return halved_until_it_fits(together, step, f"training {together} trial(s)", remedy)


def _in_groups(
    learner: Learner,
    config: TrainConfig,
    samples: Shaped[Array, "rows *shape"],
    rows: EpisodeRows,
    live: int,
    seeds: Sequence[int],
    trials: TrainState,
    size: int,
) -> TrainState:
    """The next updates of all trials, ``size`` of them side by side."""
    if size >= len(seeds):
        return advance(learner, config, samples, rows, live, jnp.asarray(seeds), trials)
    parts = []
    for start in range(0, len(seeds), size):
        some = slice(start, start + size)
        theirs, state = jax.tree.map(lambda a, some=some: a[some], (rows, trials))
        parts.append(
            advance(learner, config, samples, theirs, live, jnp.asarray(seeds[some]), state)
        )
    return jax.tree.map(lambda *p: jnp.concatenate(p), *parts)


def _feeds(
    tasks: Sequence[TaskSet | TaskStream], seeds: Sequence[int], config: TrainConfig
) -> list[TaskFeed]:
    if len(tasks) != len(seeds) or not tasks:
        raise DataError(f"{len(tasks)} lists of tasks and {len(seeds)} seeds; give one of each.")
    if any(t.pool.samples is not tasks[0].pool.samples for t in tasks):
        raise DataError("all trials must draw their tasks from the same pool.")
    return [TaskFeed(t, s, config.fresh_samples) for t, s in zip(tasks, seeds, strict=True)]


def _dispatch_rows(feeds: list[TaskFeed], config: TrainConfig, done: int, live: int) -> EpisodeRows:
    """Tasks of the next updates, (trials, updates, tasks, …); room for a whole dispatch."""
    size = config.batch_size
    found = [feed.rows(done * size, (done + live) * size) for feed in feeds]
    shape = np.max([(*r.support.shape[1:], r.query.shape[2]) for r in found], axis=0).tolist()
    stacked = jax.tree.map(lambda *r: np.stack(r), *[pad_rows(r, *shape) for r in found])
    room = min(config.validate_every, config.updates) * size

    def batched(rows: np.ndarray) -> np.ndarray:
        short = [(0, 0), (0, room - rows.shape[1]), (0, 0), (0, 0)]
        full = np.pad(rows, short, constant_values=-1)
        return full.reshape(len(feeds), -1, size, *rows.shape[2:])

    return jax.tree.map(batched, stacked)


def _way(tasks: TaskSet | TaskStream) -> int:
    return (tasks[0:1] if isinstance(tasks, TaskStream) else tasks).max_way


def _check_network(network: Architecture, feed: TaskFeed) -> None:
    want, have = network.sample_shape, feed.pool.sample_shape
    if tuple(want) != tuple(have):
        raise DataError(f"the network takes samples of shape {want}; the pool has {have}.")


def _validation(
    learner: Learner, tasks: TaskSet, feed: TaskFeed, samples: Shaped[Array, "rows *shape"]
) -> Callable[[PyTree], Float[Array, "trials"]]:
    if tasks.pool.samples is not feed.pool.samples:
        samples = jnp.asarray(tasks.pool.samples)
    rows = rows_of(tasks)

    def accuracy(states: PyTree) -> Float[Array, "trials"]:
        trials = jax.tree.leaves(states)[0].shape[0]
        return score(learner, states, trials, samples, rows, seed=0).accuracy.mean(1)

    return accuracy


def _keep_best(
    trials: TrainState, accuracy: Float[Array, "trials"], check: int, config: TrainConfig
) -> TrainState:
    """Note the validation accuracies; take over the states of trials that are better than ever."""
    before = np.asarray(trials.scores)
    highest = np.max(np.nan_to_num(before, nan=-np.inf), axis=1)
    better = jnp.asarray((np.asarray(accuracy) > highest) & ~_stale(before, config.patience))

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(better.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    return TrainState(
        state=trials.state,
        opt_state=trials.opt_state,
        best=jax.tree.map(choose, trials.state, trials.best),
        losses=trials.losses,
        scores=trials.scores.at[:, check].set(accuracy),
        step=trials.step,
    )


def _stale(
    scores: Float[np.ndarray, "trials checks"], patience: int | None
) -> Bool[np.ndarray, "trials"]:
    """Whether the last ``patience`` checks of a trial brought nothing better."""
    checks = (~np.isnan(scores)).sum(1)
    best = np.argmax(np.nan_to_num(scores, nan=-np.inf), axis=1)
    return (checks > 0) & (patience is not None) & (checks - 1 - best >= (patience or 0))


def _all_stale(scores: Float[Array, "trials checks"], patience: int | None) -> bool:
    return patience is not None and bool(_stale(np.asarray(scores), patience).all())


def _raise_if_diverged(losses: Float[Array, "trials live"], done: int) -> None:
    if not bool(jnp.isfinite(losses).any()):
        raise TaskscapeError(
            f"training diverged: no loss was finite from update {done} on. Lower learning_rate "
            "or the learner's inner_rate, or scale the features down."
        )
