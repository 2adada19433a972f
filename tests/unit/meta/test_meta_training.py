"""The training loop: trials, validation, early stopping, checkpoints, errors."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from meta_cases import DIMS, toy_pool, toy_tasks
from taskscape.errors import DataError, TaskscapeError
from taskscape.io.arrays import arrays_of, tree_from
from taskscape.meta import (
    MAML,
    Learner,
    ProtoNet,
    TrainConfig,
    TrainState,
    begin,
    mlp,
    train,
    train_many,
    training,
)
from taskscape.meta.episodes import EpisodeRows, TaskFeed, gather
from taskscape.meta.training import advance, run_updates
from taskscape.tasks import TaskSet, sample_tasks

LEARNER, NETWORK = ProtoNet(), mlp(DIMS, (8,))
CONFIG = TrainConfig(updates=10, batch_size=3, learning_rate=0.01, validate_every=4)
POOL = toy_pool()


def same(a: object, b: object, **tolerance: float) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, **{"rtol": 1e-4, "atol": 1e-6, **tolerance})


def test_trials_side_by_side_are_trials_one_by_one() -> None:
    lists = [toy_tasks(POOL, "train", 30, seed=s) for s in (0, 1)]
    validation = toy_tasks(POOL, "val", 10)
    together = train_many(LEARNER, NETWORK, lists, CONFIG, seeds=[5, 6], validation=validation)
    assert together.losses.shape == (2, 10)
    assert together.scores.shape == (2, 3)
    for i, seed in enumerate((5, 6)):
        alone = train(LEARNER, NETWORK, lists[i], CONFIG, seed=seed, validation=validation)
        same(together[i].state, alone.state)
        np.testing.assert_allclose(together[i].losses, alone.losses, rtol=1e-4)
    assert np.isfinite(together.losses).all()


def test_trials_take_turns_where_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = [toy_tasks(POOL, "train", 30, seed=s) for s in range(3)]
    together = train_many(LEARNER, NETWORK, lists, CONFIG, seeds=[5, 6, 7])
    seen: list[int] = []

    def starved(*args: object) -> TrainState:
        seen.append(args[-1].step.shape[0])
        if seen[-1] > 2:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory.")
        return advance(*args)

    monkeypatch.setattr(training, "advance", starved)
    in_turns = train_many(LEARNER, NETWORK, lists, CONFIG, seeds=[5, 6, 7])
    assert seen == [3, 2, 1, 2, 1, 2, 1]
    same(in_turns.state, together.state)
    np.testing.assert_allclose(in_turns.losses, together.losses, rtol=1e-4)


def test_one_trial_that_does_not_fit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def starved(*args: object) -> TrainState:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory.")

    monkeypatch.setattr(training, "advance", starved)
    with pytest.raises(TaskscapeError, match=r"RESOURCE_EXHAUSTED.* Lower batch_size=3"):
        train(LEARNER, NETWORK, toy_tasks(POOL, "train", 30), CONFIG)


def test_the_loss_falls() -> None:
    config = replace(CONFIG, updates=80, validate_every=80)
    losses = train(LEARNER, NETWORK, toy_tasks(POOL, "train", 240), config).losses
    assert losses[-20:].mean() < 0.7 * losses[:20].mean()


def test_a_resumed_training_ends_where_an_unbroken_one_does() -> None:
    tasks, validation = toy_tasks(POOL, "train", 30), toy_tasks(POOL, "val", 10)
    kept: list[dict[str, np.ndarray]] = []

    def checkpoint(trials: TrainState) -> None:
        kept.append(arrays_of(trials))

    whole = train(LEARNER, NETWORK, tasks, CONFIG, validation=validation, checkpoint=checkpoint)
    assert len(kept) == 3
    like = begin(LEARNER, NETWORK, CONFIG, n_way=4)
    resumed = train(
        LEARNER, NETWORK, tasks, CONFIG, validation=validation, resume=tree_from(kept[0], like)
    )
    same(resumed.state, whole.state, rtol=0, atol=0)
    np.testing.assert_array_equal(resumed.losses, whole.losses)
    np.testing.assert_array_equal(resumed.scores, whole.scores)


def test_early_stopping_keeps_the_best_state() -> None:
    config = replace(CONFIG, updates=40, learning_rate=1e-9, patience=2)
    tasks, validation = toy_tasks(POOL, "train", 30), toy_tasks(POOL, "val", 10)
    trained = train(LEARNER, NETWORK, tasks, config, validation=validation)
    assert np.isfinite(trained.scores).sum() == 3  # the first is the best; two more, then the end
    assert np.isfinite(trained.losses).sum() == 12


def test_an_endless_stream() -> None:
    stream = sample_tasks(POOL, n_way=4, n_shot=3, n_query=5, split="train", stream=True)
    trained = train(LEARNER, NETWORK, stream, CONFIG)
    assert np.isfinite(trained.losses).all()
    assert np.isnan(trained.scores).all()


def plain_losses(learner: Learner, tasks: TaskSet, config: TrainConfig, rate: Any) -> list[float]:
    """The training of seed 0 as a loop over updates and tasks, with nothing but optax."""
    state = learner.init(jax.random.key(0), NETWORK, 4)
    steps = [optax.adamw(rate, weight_decay=config.weight_decay)]
    if config.clip_norm is not None:
        steps.insert(0, optax.clip_by_global_norm(config.clip_norm))
    optimiser = optax.chain(*steps)
    opt_state, samples, losses = optimiser.init(state), jnp.asarray(POOL.samples), []
    feed, base = TaskFeed(tasks, seed=0), jax.random.fold_in(jax.random.key(0), 1)

    @jax.jit
    def one(state: Any, rows: EpisodeRows, key: jax.Array) -> Any:
        return jax.value_and_grad(learner.loss)(state, gather(samples, rows), key)

    for u in range(config.updates):
        rows = feed.rows(u * config.batch_size, (u + 1) * config.batch_size)
        keys = jax.random.split(jax.random.fold_in(base, u), config.batch_size)
        each = [
            one(state, jax.tree.map(lambda r, t=t: r[t], rows), key) for t, key in enumerate(keys)
        ]
        loss, gradient = jax.tree.map(lambda *parts: sum(parts) / len(parts), *each)
        change, opt_state = optimiser.update(gradient, opt_state, state)
        state = optax.apply_updates(state, change)
        losses.append(float(loss))
    return losses


PLAIN = {
    "cosine": (CONFIG, optax.cosine_decay_schedule(0.01, 10)),
    "constant": (
        replace(CONFIG, schedule="constant", weight_decay=0.1, clip_norm=None),
        optax.constant_schedule(0.01),
    ),
    "warmup": (
        replace(CONFIG, warmup=3, clip_norm=0.5),
        optax.join_schedules(
            [optax.linear_schedule(0.0, 0.01, 3), optax.cosine_decay_schedule(0.01, 7)], [3]
        ),
    ),
}


@pytest.mark.parametrize("learner", [LEARNER, MAML(inner_steps=2)], ids=["protonet", "maml"])
@pytest.mark.parametrize("schedule", PLAIN)
def test_a_training_is_that_of_a_plain_loop(learner: Learner, schedule: str) -> None:
    config, rate = PLAIN[schedule]
    tasks = toy_tasks(POOL, "train", 9)
    ours = train(learner, NETWORK, tasks, config, n_way=4).losses
    np.testing.assert_allclose(ours, plain_losses(learner, tasks, config, rate), rtol=1e-3)


def test_other_numbers_need_no_other_program() -> None:
    tasks = toy_tasks(POOL, "train", 30)
    first = train(MAML(inner_rate=0.1), NETWORK, tasks, CONFIG)
    programs = run_updates._cache_size()
    changes = {"updates": 6, "learning_rate": 0.02, "warmup": 2, "schedule": "constant"}
    other = replace(CONFIG, **changes, weight_decay=0.1, clip_norm=None, patience=3)
    second = train(MAML(inner_rate=0.2), NETWORK, tasks, other)
    assert run_updates._cache_size() == programs
    assert first.learner == MAML(inner_rate=0.1)
    assert second.losses.shape == (6,)


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_less_precision_learns_the_same(precision: Any) -> None:
    config, tasks = replace(CONFIG, updates=40, validate_every=40), toy_tasks(POOL, "train", 120)
    exact = train(LEARNER, NETWORK, tasks, config)
    rough = train(LEARNER, NETWORK, tasks, replace(config, precision=precision))
    assert {leaf.dtype for leaf in jax.tree.leaves(rough.state)} == {jnp.dtype("float32")}
    assert (rough.losses == exact.losses).all() == (precision == "tf32")  # a CPU has none
    np.testing.assert_allclose(rough.losses, exact.losses, atol=0.1)


def test_one_pass_counts_updates() -> None:
    assert TrainConfig.one_pass(1000, batch_size=16).updates == 63
    assert TrainConfig.one_pass(100, batch_size=4, epochs=3).updates == 75


def test_divergence_is_an_error() -> None:
    wild = MAML(inner_rate=1e30)
    with pytest.raises(TaskscapeError, match=r"from update 0 on\. Lower learning_rate"):
        train(wild, NETWORK, toy_tasks(POOL, "train", 9), CONFIG)


def test_errors_say_what_to_do() -> None:
    tasks = toy_tasks(POOL, "train", 9)
    with pytest.raises(DataError, match=r"shape \(9,\); the pool has \(6,\)"):
        train(LEARNER, mlp(9), tasks)
    with pytest.raises(DataError, match="1 lists of tasks and 2 seeds"):
        train_many(LEARNER, NETWORK, [tasks], seeds=[0, 1])
    with pytest.raises(DataError, match="from the same pool"):
        train_many(LEARNER, NETWORK, [tasks, toy_tasks(toy_pool(), "train", 9)], seeds=[0, 1])
    with pytest.raises(DataError, match="updates=0 must be at least 1"):
        TrainConfig(updates=0)
    with pytest.raises(DataError, match=r"learning_rate=0.0 must be .* above 0"):
        TrainConfig(learning_rate=0.0)
    with pytest.raises(DataError, match="precision='half' is not known; use 'float32'"):
        TrainConfig(precision="half")


def test_a_state_of_other_settings_is_refused() -> None:
    arrays = arrays_of(LEARNER.init(jax.random.key(0), NETWORK, 4))
    wider = LEARNER.init(jax.random.key(0), mlp(DIMS, (9,)), 4)
    with pytest.raises(DataError, match=r"weights\[0\] is .*\[6, 8\], expected .*\[6, 9\]"):
        tree_from(arrays, wider)
    deeper = LEARNER.init(jax.random.key(0), mlp(DIMS, (8, 8)), 4)
    with pytest.raises(DataError, match=r"weights\[1\] is missing"):
        tree_from(arrays, deeper)


def test_sizes_that_no_memory_holds_are_refused_before_work_begins():
    with pytest.raises(DataError, match=r"^batch_size=0 must be at least 1\.$"):
        TrainConfig.one_pass(100, batch_size=0)
    pool = toy_pool()
    tasks = sample_tasks(pool, 8, n_way=3, n_shot=2, n_query=2)
    for absurd in ({"batch_size": 10**9}, {"validate_every": 10**10}, {"updates": 10**13}):
        with pytest.raises(DataError, match=r"would take about .* GiB of memory; .* Lower one of"):
            train(ProtoNet(), mlp(pool.sample_shape[0], (4,)), tasks, TrainConfig(**absurd))
