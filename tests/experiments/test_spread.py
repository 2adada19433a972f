"""How far weights spread, against computations by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.spread import disagreement, spread, weight_spread
from meta_cases import DIMS, toy_episode, toy_pool, toy_tasks
from taskscape.meta import BMAML, mlp
from taskscape.meta.gaussian_weights import GaussianMeta, GaussianWeights

NETWORK = mlp(DIMS, (5,))


def test_gaussians() -> None:
    state = GaussianMeta(jnp.zeros(4), jnp.zeros(4), 0.5, 10.0)
    mean, std = jnp.array([0.0, 1, 0, 0]), jnp.array([0.5, 0.25, 0.5, 0.45])
    measured = spread(state, GaussianWeights(mean, 2 * jnp.log(std), lambda weights: weights))
    expected = {
        "std_ratio": 3.4 / 4, "least_std_ratio": 0.5, "narrowed": 0.25, "prior_std": 0.5,
        "shift": 1.0,  # 2 standard deviations in one of 4 weights
    }  # fmt: skip
    assert {k: pytest.approx(float(v), rel=1e-4) for k, v in measured.items()} == expected


def test_particles() -> None:
    learner, network = BMAML(particles=3), mlp(1, ())
    state = learner.init(jax.random.key(0), network, 2)
    after = jax.tree.map(lambda leaf: leaf + 1, state)
    measured = {k: float(v) for k, v in spread(state, after).items()}
    w = np.concatenate([np.asarray(leaf).reshape(3, -1) for leaf in jax.tree.leaves(state)], 1)
    pairs = [((w[i] - w[j]) ** 2).sum() for i, j in ((0, 1), (0, 2), (1, 2))]
    assert measured["distance_before"] == pytest.approx(np.sqrt(np.mean(pairs)), rel=1e-5)
    assert measured["distance_after"] == pytest.approx(measured["distance_before"], rel=1e-5)
    assert measured["moved"] == pytest.approx(2, rel=1e-5)  # by 1 in each of 4 weights
    assert measured["moves_apart"] == pytest.approx(0, abs=1e-6)
    still = spread(state, state)
    assert float(still["moved"]) == float(still["moves_apart"]) == 0


def test_disagreement_counts_members_that_differ_from_the_average() -> None:
    query = toy_episode(way=3, asked=1).query
    p = jax.nn.one_hot(jnp.array([[0, 1, 2], [0, 1, 2], [0, 2, 2]]), 3)
    assert float(disagreement(p, query)) == pytest.approx(1 / 9)
    first = type(query)(query.x, query.y, jnp.array([True, False, False]), query.class_mask)
    assert float(disagreement(p, first)) == 0


def test_every_task_has_its_spread_whatever_the_chunk() -> None:
    tasks, learner = toy_tasks(toy_pool(), "test", 5), BMAML(particles=3, inner_steps=1)
    state = learner.init(jax.random.key(0), NETWORK, 4)
    part, alone = (weight_spread(learner, state, tasks, chunk_size=n) for n in (2, None))
    for name, values in part.items():
        assert values.shape == (5,)
        np.testing.assert_allclose(values, alone[name], rtol=1e-4, atol=1e-6)
