"""The variances of ABML and VAMPIRE adapt, stay sane under the true posterior, and are learned."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meta_cases import DIMS, toy_episode, toy_pool, toy_tasks
from taskscape.errors import DataError
from taskscape.meta import ABML, VAMPIRE, Shots, TrainConfig, conv4, mlp, train
from taskscape.meta.gaussian_weights import GaussianWeights, draw

BOTH = pytest.mark.parametrize("kind", [ABML, VAMPIRE])


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_variances_leave_the_prior_where_the_data_speak_and_nowhere_else() -> None:
    learner, support = VAMPIRE(kl_weight=1.0, initial_std=0.5), toy_episode(shot=10).support
    silent = Shots(support.x.at[:, 2].set(0), support.y, support.mask, support.class_mask)
    state = learner.init(jax.random.key(0), mlp(DIMS, ()), 3)
    q = jax.jit(learner.adapt)(state, silent, jax.random.key(1))
    ratio = np.exp(0.5 * np.asarray(q.rebuild(q.log_variance).weights[0])) / 0.5
    np.testing.assert_allclose(ratio[2], 1, rtol=1e-5)
    np.testing.assert_allclose(q.rebuild(q.mean).weights[0][2], state.mean.weights[0][2], rtol=1e-5)
    spoken = np.delete(ratio, 2, axis=0)
    assert spoken.max() < 0.95
    assert np.median(spoken) < 0.8


@BOTH
@pytest.mark.parametrize("std", [0.02, 1.0])
def test_training_with_the_whole_divergence_stays_finite(kind: Any, std: float) -> None:
    """The step of the means used to be unstable where β / (n s²) was above 2 over the rate."""
    pool = toy_pool()
    learner = kind(kl_weight=1.0, initial_std=std, inner_steps=3)
    config = TrainConfig(updates=200, batch_size=2, learning_rate=1e-2, validate_every=200)
    tasks = toy_tasks(pool, "train", 100)
    trained = train(learner, mlp(DIMS, ()), tasks, config)
    assert np.isfinite(trained.losses).all()
    assert trained.losses[-20:].mean() < trained.losses[:20].mean()
    support = toy_episode(4).support
    q = jax.jit(learner.adapt)(trained.state, support, jax.random.key(0))
    assert np.abs(flat(q.mean)).max() < 10
    growth = flat(trained.state.prior().log_variance) / 2 - np.log(std)
    assert np.abs(growth).max() > np.log(2)  # steps of 1e-2 in ln s² would end at half of it
    assert growth.std() > 0.2  # and each weight has its own


def test_samples_of_kernels_have_gradients_in_many_tasks_and_trials() -> None:
    """On kernels as they are, rather than flat, this killed the process on CPUs (jaxlib 0.10.2)."""
    prior = VAMPIRE(initial_std=0.1).init(jax.random.key(0), conv4((16, 16), 8), 5).prior()
    eps = jax.random.normal(jax.random.key(1), (1, 4, 2, flat(prior.mean).size))
    q = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (1, 4, *leaf.shape)), prior)

    def squares(q: GaussianWeights, eps: jax.Array) -> jax.Array:
        drawn = jax.vmap(lambda e: draw(q, e))(eps)
        return jnp.asarray(sum((leaf**2).sum() for leaf in jax.tree.leaves(drawn)))

    slope = jax.jit(jax.vmap(jax.vmap(jax.grad(squares))))(q, eps)
    by_hand = ((flat(prior.mean) + 0.1 * eps) * 0.1 * eps).sum(2)[0, 3]
    result = flat(jax.tree.map(lambda leaf: leaf[0, 3], slope.log_variance))
    np.testing.assert_allclose(result, by_hand, rtol=1e-4, atol=1e-5)


def test_settings_that_leave_no_posterior_are_refused() -> None:
    with pytest.raises(DataError, match=r"kl_weight=0.0 must be .* above 0"):
        VAMPIRE(kl_weight=0.0)
    with pytest.raises(DataError, match=r"precision_rate=1.5 must be .* at most 1"):
        ABML(precision_rate=1.5)
