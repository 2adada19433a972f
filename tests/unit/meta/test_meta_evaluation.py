"""Scores agree with slow loops and do not depend on how the work is cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meta_cases import DIMS, toy_pool, toy_tasks
from taskscape.errors import DataError
from taskscape.meta import ProtoNet, Shots, class_interval, evaluate, evaluate_many, mlp
from taskscape.meta.evaluation import BINS, task_scores

LEARNER, NETWORK = ProtoNet(), mlp(DIMS, (4,))


def state(seed: int = 0) -> object:
    return LEARNER.init(jax.random.key(seed), NETWORK, 4)


def test_scores_of_a_task_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=40)
    y, mask = rng.integers(3, size=40), rng.random(40) < 0.7
    query = Shots(jnp.zeros((40, 1)), jnp.asarray(y), jnp.asarray(mask), jnp.ones(3, bool))
    found = task_scores(jnp.asarray(p), query)
    p, y = p[mask], y[mask]
    np.testing.assert_allclose(found.accuracy, np.mean(p.argmax(1) == y), rtol=1e-6)
    np.testing.assert_allclose(
        found.log_likelihood, np.log(p[np.arange(len(y)), y]).mean(), rtol=1e-5
    )
    error = 0.0
    for b in range(BINS):
        inside = (p.max(1) >= b / BINS) & (p.max(1) < (b + 1) / BINS)
        if inside.any():
            gap = (p[inside].argmax(1) == y[inside]).mean() - p[inside].max(1).mean()
            error += inside.mean() * abs(gap)
    np.testing.assert_allclose(found.calibration_error, error, rtol=1e-5)


def test_chunks_do_not_matter() -> None:
    tasks = toy_tasks(toy_pool(), "test", 13)
    whole, cut = (evaluate(LEARNER, state(), tasks, chunk_size=c) for c in (None, 4))
    np.testing.assert_allclose(cut.accuracy, whole.accuracy)
    np.testing.assert_allclose(cut.log_likelihood, whole.log_likelihood, rtol=1e-5)
    np.testing.assert_allclose(
        cut.pooled_calibration_error, whole.pooled_calibration_error, rtol=1e-5
    )


def test_several_episodes_and_their_halves() -> None:
    tasks = toy_tasks(toy_pool(), "test", 6)
    found = evaluate(LEARNER, state(), tasks, episodes=4)
    assert found.accuracy_by_episode.shape == (6, 4)
    np.testing.assert_allclose(found.accuracy, found.accuracy_by_episode.mean(1), rtol=1e-6)
    np.testing.assert_allclose(sum(found.halves()) / 2, found.accuracy, rtol=1e-6)
    once = evaluate(LEARNER, state(), tasks)
    np.testing.assert_allclose(found.accuracy_by_episode[:, 0], once.accuracy)
    assert found.reliability[:, 0].sum() == 6 * 4 * 4 * 5
    with pytest.raises(DataError) as error:
        once.halves()
    assert str(error.value) == "halves need at least 2 episodes per task; evaluate with episodes=2."


def test_many_states_at_once() -> None:
    tasks, states = toy_tasks(toy_pool(), "test", 5), [state(s) for s in range(3)]
    together = evaluate_many(LEARNER, jax.tree.map(lambda *s: jnp.stack(s), *states), tasks)
    for one, found in zip(states, together, strict=True):
        alone = evaluate(LEARNER, one, tasks)
        np.testing.assert_allclose(found.accuracy, alone.accuracy)
        np.testing.assert_allclose(found.log_likelihood, alone.log_likelihood, rtol=1e-4)


def test_nearest_centroid_needs_no_weights() -> None:
    tasks = toy_tasks(toy_pool(), "test", 5)
    flat = LEARNER.init(jax.random.key(0), mlp(DIMS, ()), 4)
    assert evaluate(LEARNER, flat, tasks).accuracy.mean() > 0.8


def test_interval_by_leaving_out_classes() -> None:
    rng = np.random.default_rng(0)
    skill, classes = rng.normal(size=12), np.array([rng.permutation(12)[:3] for _ in range(4000)])
    values = skill[classes].mean(1)
    low, high = class_interval(values, classes)
    # the mean over tasks is nearly the mean of the classes, whose standard error is known
    expected = 1.96 * skill.std(ddof=1) / np.sqrt(12)
    np.testing.assert_allclose((high - low) / 2, expected, rtol=0.1)
    np.testing.assert_allclose((high + low) / 2, values.mean())
    with pytest.raises(DataError) as error:
        class_interval(values[:1], classes[:1])
    assert str(error.value) == (
        "leaving out a class leaves no task; evaluate more tasks, over more classes."
    )


def test_nothing_to_evaluate() -> None:
    tasks = toy_tasks(toy_pool(), "test", 5)
    with pytest.raises(DataError, match=r"there are no tasks to evaluate\."):
        evaluate(LEARNER, state(), tasks[:0])
    with pytest.raises(DataError, match="episodes=0 and chunk_size=None must be at least 1"):
        evaluate(LEARNER, state(), tasks, episodes=0)
