"""Scores agree with slow loops and do not depend on how the work is cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meta_cases import DIMS, toy_pool, toy_tasks
from taskscape.devices import free_bytes
from taskscape.errors import DataError, TaskscapeError
from taskscape.meta import (
    MAML,
    ProtoNet,
    Shots,
    evaluate,
    evaluate_many,
    evaluation,
    mlp,
)
from taskscape.meta.evaluation import BINS, _score_all, task_scores

LEARNER, NETWORK = ProtoNet(), mlp(DIMS, (4,))


def state(seed: int = 0) -> object:
    return LEARNER.init(jax.random.key(seed), NETWORK, 4)


def test_scores_of_a_task_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=40)
    y, mask = rng.integers(3, size=40), rng.random(40) < 0.7
    query = Shots(jnp.zeros((40, 1)), jnp.asarray(y), jnp.asarray(mask), jnp.ones(3, bool))
    result = task_scores(jnp.asarray(p), query)
    p, y = p[mask], y[mask]
    np.testing.assert_allclose(result.accuracy, np.mean(p.argmax(1) == y), rtol=1e-6)
    np.testing.assert_allclose(
        result.log_likelihood, np.log(p[np.arange(len(y)), y]).mean(), rtol=1e-5
    )
    error = 0.0
    for b in range(BINS):
        inside = (p.max(1) >= b / BINS) & (p.max(1) < (b + 1) / BINS)
        if inside.any():
            gap = (p[inside].argmax(1) == y[inside]).mean() - p[inside].max(1).mean()
            error += inside.mean() * abs(gap)
    count, confidence, right = result.bins
    np.testing.assert_allclose(abs(right - confidence).sum() / count.sum(), error, rtol=1e-5)


def test_other_settings_need_no_other_program() -> None:
    tasks, learner = toy_tasks(toy_pool(), "test", 40), MAML(inner_rate=0.3)
    start = learner.init(jax.random.key(0), NETWORK, 4)
    whole = evaluate(learner, start, tasks)
    part = evaluate(learner, start, tasks[:33])
    np.testing.assert_allclose(part.log_likelihood, whole.log_likelihood[:33], rtol=1e-5)
    programs = _score_all._cache_size()
    faster = evaluate(MAML(inner_rate=0.6), start, tasks)
    assert (faster.log_likelihood != whole.log_likelihood).all()
    assert _score_all._cache_size() == programs


def test_less_precision_finds_about_the_same() -> None:
    tasks = toy_tasks(toy_pool(), "test", 20)
    exact, tf32, rough = (
        evaluate(LEARNER, state(), tasks, precision=p) for p in ("float32", "tf32", "bfloat16")
    )
    np.testing.assert_array_equal(tf32.log_likelihood, exact.log_likelihood)  # a CPU has none
    assert (rough.log_likelihood != exact.log_likelihood).any()
    np.testing.assert_allclose(rough.log_likelihood, exact.log_likelihood, atol=0.05)
    with pytest.raises(DataError, match="precision='half' is not known; use 'float32', "):
        evaluate(LEARNER, state(), tasks, precision="half")


def test_many_trials_leave_room_for_few_tasks_on_an_accelerator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert evaluation.tasks_at_once(50) == 16
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert [evaluation.tasks_at_once(n) for n in (1, 2, 8, 50, 1000)] == [256, 256, 128, 20, 16]


def test_several_episodes() -> None:
    tasks = toy_tasks(toy_pool(), "test", 6)
    scores = evaluate(LEARNER, state(), tasks, episodes=4)
    assert scores.accuracy_by_episode.shape == (6, 4)
    np.testing.assert_allclose(scores.accuracy, scores.accuracy_by_episode.mean(1), rtol=1e-6)
    once = evaluate(LEARNER, state(), tasks)
    np.testing.assert_allclose(scores.accuracy_by_episode[:, 0], once.accuracy)


def test_many_states_at_once() -> None:
    tasks, states = toy_tasks(toy_pool(), "test", 5), [state(s) for s in range(3)]
    together = evaluate_many(LEARNER, jax.tree.map(lambda *s: jnp.stack(s), *states), tasks)
    for one, result in zip(states, together, strict=True):
        alone = evaluate(LEARNER, one, tasks)
        np.testing.assert_allclose(result.accuracy, alone.accuracy)
        np.testing.assert_allclose(result.log_likelihood, alone.log_likelihood, rtol=1e-4)


def test_nearest_centroid_needs_no_weights() -> None:
    tasks = toy_tasks(toy_pool(), "test", 5)
    flat = LEARNER.init(jax.random.key(0), mlp(DIMS, ()), 4)
    assert evaluate(LEARNER, flat, tasks).accuracy.mean() > 0.8


def test_nothing_to_evaluate() -> None:
    tasks = toy_tasks(toy_pool(), "test", 5)
    with pytest.raises(DataError, match=r"there are no tasks to evaluate\."):
        evaluate(LEARNER, state(), tasks[:0])
    with pytest.raises(DataError, match="episodes=0 must be at least 1"):
        evaluate(LEARNER, state(), tasks, episodes=0)


def starved(program, most: int, seen: list[int]):
    """The program on a device that has memory for this many tasks, or trials, side by side."""

    def run(*args):
        seen.append(args[3])
        if args[3] > most:
            raise jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 129922760704 bytes."
            )
        return program(*args)

    return run


def test_chunks_halve_where_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = toy_tasks(toy_pool(), "test", 13)
    whole = evaluate(LEARNER, state(), tasks, episodes=2)
    seen: list[int] = []
    monkeypatch.setattr(evaluation, "_score_all", starved(_score_all, 3, seen))
    cut = evaluate(LEARNER, state(), tasks, episodes=2)
    assert seen == [13, 7, 4, 2] * 2
    np.testing.assert_allclose(cut.accuracy_by_episode, whole.accuracy_by_episode)
    np.testing.assert_allclose(cut.log_likelihood, whole.log_likelihood, rtol=1e-5)
    np.testing.assert_allclose(cut.calibration_error, whole.calibration_error, rtol=1e-5)


def test_a_device_too_small_for_one_task_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, seen = toy_tasks(toy_pool(), "test", 5), []
    monkeypatch.setattr(evaluation, "_score_all", starved(_score_all, 0, seen))
    with pytest.raises(TaskscapeError, match=r"RESOURCE_EXHAUSTED.* Evaluate fewer"):
        evaluate(LEARNER, state(), tasks)
    assert seen == [5, 3, 2, 1]


def test_other_failures_are_not_taken_for_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    monkeypatch.setattr(evaluation, "_score_all", broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        evaluate(LEARNER, state(), toy_tasks(toy_pool(), "test", 5))


def test_free_memory_is_what_the_device_accounts_for() -> None:
    class Device:
        def __init__(self, account: dict[str, int] | None) -> None:
            self.account = account

        def memory_stats(self) -> dict[str, int] | None:
            return self.account

    assert free_bytes(Device(None)) is None
    assert free_bytes(Device({"bytes_limit": 100, "bytes_in_use": 30})) == 70
