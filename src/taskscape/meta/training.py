"""The one training loop of all learners: compiled, resumable, and for many trials at once.

A dispatch runs many updates: row numbers of all its tasks are drawn on the host, the samples are
gathered on the device. Everything has a leading axis of trials: seeds, or different lists of tasks,
trained side by side; :func:`train` is the case of one trial. The compiled program takes rates,
numbers of updates and the learner's ``numbers`` as arguments: other values need no other program.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from taskscape.arguments import (
    MOST_FOR_JAX,
    Seed,
    check_memory,
    check_seed,
    check_whole,
    public,
)
from taskscape.errors import DataError, TaskscapeError
from taskscape.io.arrays import arrays_of, arrays_of_kind, load_arrays, save_arrays, tree_from
from taskscape.io.values import damage_named
from taskscape.meta.episodes import EpisodeRows, TaskFeed, gather
from taskscape.meta.evaluation import evaluate_many, halved_until_it_fits
from taskscape.meta.learner import Learner, Number, with_numbers, without_numbers
from taskscape.meta.learners import LEARNERS, find_learner, make_learner
from taskscape.meta.networks import PRECISIONS, Architecture, architecture
from taskscape.progress import progress_bar
from taskscape.settings import changed, check_settings, setting, settings_in
from taskscape.tasks import TaskSet, TaskStream

_WHAT = "trained learner"
TRAINED = arrays_of_kind(_WHAT)
"""Folders that :meth:`Trained.save` writes."""


@public
@dataclass(frozen=True)
class TrainConfig:
    """How to meta-train: Adam on the mean loss of batches of tasks.

    ``validate_every`` updates run in one dispatch; after each, validation tasks (if any) are
    evaluated and the checkpoint is offered. ``patience`` checks without a better validation
    accuracy end the training; the best state is kept.

    ``precision`` is that of the network: ``"float32"``; ``"tf32"``, products of float32 numbers
    rounded to 10 bits, on GPUs that have it (elsewhere float32); ``"bfloat16"``, products and
    activations of 7 bits. Weights, losses and the optimiser are float32 always.
    """

    updates: int = setting(2500, "updates in all", at_least=1)
    batch_size: int = setting(4, "tasks in an update", at_least=1)
    learning_rate: float = setting(1e-3, "of the meta-training", above=0)
    schedule: Literal["constant", "cosine"] = setting("cosine", "of the rate, after the warm-up")
    warmup: int = setting(0, "updates over which the rate rises from 0", at_least=0)
    weight_decay: float = setting(0.0, "of AdamW", at_least=0)
    clip_norm: float | None = setting(10.0, "longest gradient; None: any", above=0)
    validate_every: int = setting(250, "updates between two looks at validation tasks", at_least=1)
    patience: int | None = setting(None, "looks without a gain that end the training", at_least=1)
    fresh_samples: bool = setting(False, "draw other samples whenever a task is shown again")
    precision: str = setting("float32", "of the network", choices=PRECISIONS)

    def __post_init__(self) -> None:
        check_settings(self)

    @staticmethod
    def one_pass(n_tasks: int, batch_size: int = 4, epochs: int = 1, **rest: Any) -> "TrainConfig":
        """Settings that show each of ``n_tasks`` tasks ``epochs`` times."""
        for name, value in (("n_tasks", n_tasks), ("batch_size", batch_size), ("epochs", epochs)):
            check_whole(value, name, 1)
        updates = math.ceil(epochs * n_tasks / batch_size)
        return TrainConfig(updates=updates, batch_size=batch_size, **rest)

    def pace(self) -> dict[str, float]:
        """The numbers of :func:`adam`, as a compiled program takes them."""
        decay = float(max(1, self.updates - self.warmup))
        return {
            "learning_rate": self.learning_rate,
            "warmup": float(self.warmup),
            "decay": decay if self.schedule == "cosine" else math.inf,
            "weight_decay": self.weight_decay,
            "clip_norm": math.inf if self.clip_norm is None else self.clip_norm,
        }


def adam(
    learning_rate: Number, warmup: Number, decay: Number, weight_decay: Number, clip_norm: Number
) -> optax.GradientTransformation:
    """Adam with clipped gradients; after the warm-up its rate falls to 0 along a cosine."""

    def rate(count: Int[Array, ""]) -> Float[Array, ""]:
        rise = jnp.minimum(1.0, count / jnp.maximum(warmup, 1.0))
        fall = jnp.clip((count - warmup) / decay, 0.0, 1.0)
        share = jnp.where(count < warmup, rise, 0.5 * (1 + jnp.cos(jnp.pi * fall)))
        return learning_rate * share

    clip = optax.clip_by_global_norm(clip_norm)
    return optax.chain(clip, optax.adamw(rate, weight_decay=weight_decay))


class TrainState(eqx.Module):
    """Where a training stands; what a checkpoint holds. Arrays have a leading axis of trials."""

    state: PyTree
    opt_state: PyTree
    best: PyTree
    """The state with the best validation accuracy so far."""
    losses: Float[Array | np.ndarray, "*trials updates"]
    """The loss of every update, NaN for those to come."""
    scores: Float[Array | np.ndarray, "*trials checks"]
    """Validation accuracy at every check, NaN for those to come."""
    step: Int[Array, "*trials"]


@dataclass(frozen=True, eq=False, repr=False)
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
        return replace(self, state=state, losses=self.losses[trial], scores=self.scores[trial])

    def __repr__(self) -> str:
        """Settings and sizes; never the weights."""
        return (
            f"Trained({self.learner!r}, {self.network!r}, n_way={self.n_way}, "
            f"updates={self.losses.shape[-1]}, trials={self.losses[..., 0].size})"
        )

    def summary(self) -> str:
        """How the training went, in words."""
        last = self.losses[..., -min(100, self.losses.shape[-1]) :]
        text = f"{type(self.learner).__name__} after {self.losses.shape[-1]:,} updates: "
        text += f"mean loss of the last {last.shape[-1]} is {np.nanmean(last):.3f}"
        if np.isfinite(self.scores).any():
            text += f"; best validation accuracy {100 * np.nanmax(self.scores):.2f} %"
        return text

    def to_dict(self) -> dict[str, Any]:
        """What is needed besides the weights to use them again, as plain values."""
        name = next((n for n, e in LEARNERS.items() if type(self.learner) is e.kind), None)
        if name is None:
            raise DataError(f"{self.learner!r} is not one of {', '.join(LEARNERS)}.")
        return {
            "learner": name,
            "settings": asdict(self.learner),  # type: ignore[call-overload]
            "network": self.network.config(),
            "n_way": self.n_way,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a single trained learner to a folder; one that is there is replaced."""
        arrays = arrays_of(self.state)
        arrays |= {"history.losses": self.losses, "history.scores": self.scores}
        save_arrays(path, arrays, {"what": _WHAT, **self.to_dict()})

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Trained":
        """Read what :meth:`save` wrote."""
        arrays, header = load_arrays(path, _WHAT)
        with damage_named(path, f"a {_WHAT}"):
            learner = make_learner(header["learner"], **header["settings"])
            network, n_way = architecture(header["network"]), int(header["n_way"])
            like = jax.eval_shape(lambda: learner.init(jax.random.key(0), network, n_way))
            history = arrays["history.losses"], arrays["history.scores"]
            return Trained(learner, network, n_way, tree_from(arrays, like), *history)


def learner_and_training(
    name: str, settings: Mapping[str, Any], source: str = ""
) -> tuple[Learner, dict[str, Any]]:
    """A learner and the settings of its training; ``scale`` is the network's, and left out.

    ``maml-untuned`` is MAML: what follows a dash tells presets apart. ``source`` goes before the
    name of a setting in errors.

    >>> learner_and_training("maml", {"inner_steps": 2, "learning_rate": 0.1, "scale": 8.0})[1]
    {'learning_rate': 0.1}
    """
    kind = find_learner(name.split("-")[0]).kind
    own, given = settings_in(kind), {k: v for k, v in settings.items() if k != "scale"}
    decided = {"updates", "batch_size"}  # by the number of tasks and how often each is shown
    training = settings_in(TrainConfig).keys() - decided
    for key, value in given.items():
        if key not in own and key not in training:
            known = ", ".join(["scale", *sorted(own), *sorted(training)])
            raise DataError(f"{source}{key}={value!r} is not a setting; {name} has {known}.")
    rest = {k: v for k, v in given.items() if k not in own}
    changed(TrainConfig(), rest, where=source)
    return changed(kind(), {k: v for k, v in given.items() if k in own}, where=source), rest


@public
def train(
    learner: Learner,
    network: Architecture,
    tasks: TaskSet | TaskStream,
    config: TrainConfig | None = None,
    *,
    seed: Seed = 0,
    n_way: int | None = None,
    validation: TaskSet | None = None,
    checkpoint: Callable[[TrainState], None] | None = None,
    resume: TrainState | None = None,
) -> Trained:
    """Meta-train a learner on a list of tasks, or on an endless stream of them.

    The options are those of :func:`train_many`.
    """
    return train_many(
        learner, network, [tasks], config, seeds=[seed], n_way=n_way, validation=validation,
        checkpoint=checkpoint, resume=resume,
    )[0]  # fmt: skip


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
    feeds = _feeds(tasks, starts, config, network)
    at_once, row = config.validate_every * config.batch_size, jax.tree.leaves(feeds[0].rows(0, 1))
    check_memory(
        len(feeds) * (2 * at_once * sum(part.nbytes for part in row) + 4 * config.updates),
        f"updates={config.updates:,}, of which validate_every={config.validate_every:,} run in one "
        f"dispatch with batch_size={config.batch_size:,} tasks each,",
        "Lower one of them.",
    )
    ways = [
        t[0:1] if isinstance(t, TaskStream) else t for t in (*tasks, validation) if t is not None
    ]
    n_way = n_way or max(t.max_way for t in ways)
    samples = jnp.asarray(tasks[0].pool.samples)
    trials = resume or begin(learner, network, config, n_way=n_way, seeds=starts)
    done, together = int(trials.step[0]), len(feeds)
    with progress_bar("meta-training", config.updates) as advance_bar:
        advance_bar(done)
        while done < config.updates and not _stale(trials.scores, config.patience).all():
            live = min(config.validate_every, config.updates - done)
            rows = _dispatch_rows(feeds, config, done, live)
            trials, together = halved_until_it_fits(
                together,
                partial(_in_groups, learner, config, samples, rows, live, starts, trials),
                f"training {together} trial(s)",
                f"Lower batch_size={config.batch_size}, the samples of a task, or the network.",
            )
            _raise_if_diverged(trials.losses[:, done : done + live], done)
            if validation is not None:
                each = evaluate_many(learner, trials.state, validation)
                accuracy = np.array([e.accuracy.mean() for e in each])
                trials = _keep_best(trials, accuracy, done // config.validate_every, config)
            done += live
            advance_bar(live)
            if checkpoint is not None:
                checkpoint(trials)
    state = trials.state if validation is None else trials.best
    history = np.asarray(trials.losses), np.asarray(trials.scores)
    return Trained(learner, network, n_way, state, *history)


def begin(
    learner: Learner,
    network: Architecture,
    config: TrainConfig,
    *,
    n_way: int,
    seeds: Sequence[int] = (0,),
) -> TrainState:
    """The start of a training, one trial for each seed."""
    fixed, numbers = without_numbers(learner)
    state, opt_state = _fresh(fixed, network, n_way, numbers, config.pace(), jnp.asarray(seeds))
    losses, scores = (
        np.full((len(seeds), n), np.nan, np.float32)
        for n in (config.updates, -(-config.updates // config.validate_every))
    )
    return TrainState(state, opt_state, state, losses, scores, jnp.zeros(len(seeds), jnp.int32))


@partial(jax.jit, static_argnames=("learner", "network", "n_way"))
def _fresh(
    learner: Learner,
    network: Architecture,
    n_way: int,
    numbers: Mapping[str, Number],
    pace: Mapping[str, Number],
    seeds: Int[Array, "trials"],
) -> tuple[PyTree, PyTree]:
    """States and optimisers of new trials; compiled, because every operation would be by itself."""
    learner = with_numbers(learner, numbers)

    def one(seed: Int[Array, ""]) -> tuple[PyTree, PyTree]:
        state = learner.init(jax.random.key(seed), network, n_way)
        return state, adam(**pace).init(state)

    return jax.vmap(one)(seeds)


def advance(
    learner: Learner,
    config: TrainConfig,
    samples: Shaped[Array, "rows *shape"],
    rows: EpisodeRows,
    live: int,
    seeds: Int[Array, "trials"],
    trials: TrainState,
) -> TrainState:
    """The first ``live`` of the updates whose tasks are given, for all trials.

    ``rows`` has axes (trials, updates, tasks of a batch, …). An update whose gradient is not finite
    is left out; its loss stays on record.
    """
    fixed, numbers = without_numbers(learner)
    *moved, losses = run_updates(
        fixed, config.precision, numbers, config.pace(), samples, rows, live, seeds,
        trials.state, trials.opt_state, trials.step,
    )  # fmt: skip
    state, opt_state, step = moved
    done, history = int(trials.step[0]), np.array(trials.losses)
    history[:, done : done + live] = np.asarray(losses)[:, :live]
    return replace(trials, state=state, opt_state=opt_state, losses=history, step=step)


@partial(jax.jit, static_argnames=("learner", "precision"))
def run_updates(
    learner: Learner,
    precision: str,
    numbers: Mapping[str, Number],
    pace: Mapping[str, Number],
    samples: Shaped[Array, "rows *shape"],
    rows: EpisodeRows,
    live: int | Int[Array, ""],
    seeds: Int[Array, "trials"],
    states: PyTree,
    opt_states: PyTree,
    steps: Int[Array, "trials"],
) -> tuple[PyTree, PyTree, Int[Array, "trials"], Float[Array, "trials updates"]]:
    """What :func:`advance` compiles: states, those of the optimiser, counts and losses."""
    learner, optimiser = with_numbers(learner, numbers), adam(**pace)
    products, dtype = PRECISIONS[precision]

    def mean_loss(state: PyTree, rows: EpisodeRows, key: PRNGKeyArray) -> Float[Array, ""]:
        episodes = jax.vmap(partial(gather, samples, dtype=dtype))(rows)
        keys = jax.random.split(key, len(rows.support))
        return jax.vmap(learner.loss, in_axes=(None, 0, 0))(state, episodes, keys).mean()

    def one(
        state: PyTree,
        opt_state: PyTree,
        step: Int[Array, ""],
        rows: EpisodeRows,
        seed: Int[Array, ""],
    ) -> tuple[PyTree, PyTree, Int[Array, ""], Float[Array, "updates"]]:
        base = jax.random.fold_in(jax.random.key(seed), 1)  # 0 gave the weights

        def update(i: Int[Array, ""], carried: tuple[Any, ...]) -> tuple[Any, ...]:
            state, opt_state, losses = carried
            batch = jax.tree.map(lambda r: r[i], rows)
            key = jax.random.fold_in(base, step + i)
            loss, gradient = jax.value_and_grad(mean_loss)(state, batch, key)
            change, new_opt_state = optimiser.update(gradient, opt_state, state)
            sound = jnp.stack([jnp.isfinite(g).all() for g in jax.tree.leaves(gradient)]).all()
            state, opt_state = jax.tree.map(
                partial(jnp.where, sound),
                (optax.apply_updates(state, change), new_opt_state),
                (state, opt_state),
            )
            return state, opt_state, losses.at[i].set(loss)

        none = jnp.full(rows.support.shape[0], jnp.nan)
        state, opt_state, losses = jax.lax.fori_loop(0, live, update, (state, opt_state, none))
        return state, opt_state, step + live, losses

    with jax.default_matmul_precision(products):
        return jax.vmap(one)(states, opt_states, steps, rows, seeds)


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
        of_group = (rows, jnp.asarray(seeds), trials)
        group = jax.tree.map(lambda a, start=start: a[start : start + size], of_group)
        parts.append(advance(learner, config, samples, group[0], live, *group[1:]))
    return jax.tree.map(lambda *p: jnp.concatenate(p), *parts)


def _feeds(
    tasks: Sequence[TaskSet | TaskStream],
    seeds: Sequence[int],
    config: TrainConfig,
    network: Architecture,
) -> list[TaskFeed]:
    if len(tasks) != len(seeds) or not tasks:
        raise DataError(f"{len(tasks)} lists of tasks and {len(seeds)} seeds; give one of each.")
    if any(t.pool.samples is not tasks[0].pool.samples for t in tasks):
        raise DataError("all trials must draw their tasks from the same pool.")
    want, have = network.sample_shape, tasks[0].pool.sample_shape
    if tuple(want) != tuple(have):
        raise DataError(f"the network takes samples of shape {want}; the pool has {have}.")
    return [TaskFeed(t, s, config.fresh_samples) for t, s in zip(tasks, seeds, strict=True)]


def _dispatch_rows(feeds: list[TaskFeed], config: TrainConfig, done: int, live: int) -> EpisodeRows:
    """Tasks of the next updates, (trials, updates, tasks, …); room for a whole dispatch."""
    size, updates = config.batch_size, config.validate_every

    def batched(*each: np.ndarray) -> np.ndarray:
        room = [updates * size, *np.max([rows.shape[1:] for rows in each], axis=0)]
        full = np.full((len(each), *room), -1, np.int32)
        for own, rows in zip(full, each, strict=True):
            own[tuple(map(slice, rows.shape))] = rows
        return full.reshape(len(each), updates, size, *room[1:])

    rows = [feed.rows(done * size, (done + live) * size) for feed in feeds]
    return jax.tree.map(batched, *rows)


def _keep_best(
    trials: TrainState, accuracy: Float[np.ndarray, "trials"], check: int, config: TrainConfig
) -> TrainState:
    """Note the validation accuracies; take over the states of trials that are better than ever."""
    scores = np.array(trials.scores)
    highest = np.max(np.nan_to_num(scores, nan=-np.inf), axis=1)
    better = (accuracy > highest) & ~_stale(scores, config.patience)
    scores[:, check] = accuracy
    best = jax.vmap(lambda b, new, old: jax.tree.map(partial(jnp.where, b), new, old))(
        jnp.asarray(better), trials.state, trials.best
    )
    return replace(trials, best=best, scores=scores)


def _stale(
    scores: Float[Array | np.ndarray, "trials checks"], patience: int | None
) -> Bool[np.ndarray, "trials"]:
    """Whether the last ``patience`` checks of a trial brought nothing better."""
    scores = np.asarray(scores)
    checks = (~np.isnan(scores)).sum(1)
    best = np.argmax(np.nan_to_num(scores, nan=-np.inf), axis=1)
    return (checks > 0) & (patience is not None) & (checks - 1 - best >= (patience or 0))


def _raise_if_diverged(losses: Float[Array | np.ndarray, "trials live"], done: int) -> None:
    if not np.isfinite(losses).any():
        raise TaskscapeError(
            f"training diverged: no loss was finite from update {done} on. Lower learning_rate "
            "or the learner's inner_rate, or scale the features down."
        )
