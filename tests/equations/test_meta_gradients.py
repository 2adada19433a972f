"""Meta-gradients agree with finite differences and with computations by hand."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from meta_cases import DIMS, toy_episode
from taskscape.meta import ABML, BMAML, MAML, VAMPIRE, Learner, Shots, mlp

WAY, KEY = 3, 7


def flat_loss(learner: Learner, widths: tuple[int, ...]) -> tuple[Callable[..., Any], jax.Array]:
    """The meta-loss as a function of one vector, and a place to look at it."""
    state = learner.init(jax.random.key(1), mlp(DIMS, widths), WAY)
    place, rebuild = ravel_pytree(state)
    episode = toy_episode(WAY)
    return lambda v: learner.loss(rebuild(v), episode, jax.random.key(KEY)), place.astype(float)


@pytest.mark.parametrize(
    "learner",
    [
        MAML(inner_rate=0.3, inner_steps=3),
        ABML(inner_rate=0.3, inner_steps=3, kl_weight=0.01, initial_std=0.3),
        VAMPIRE(inner_rate=0.3, inner_steps=3, kl_weight=0.01, initial_std=0.3),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_meta_gradient_against_finite_differences(learner: Learner) -> None:
    loss, place = flat_loss(learner, (4,))
    loss, gradient = jax.jit(loss), jax.jit(jax.grad(loss))(place)
    rng = np.random.default_rng(0)
    for _ in range(5):
        way, step = rng.normal(size=place.shape), 1e-5
        slope = (loss(place + step * way) - loss(place - step * way)) / (2 * step)
        np.testing.assert_allclose(gradient @ way, slope, rtol=1e-5, atol=1e-8)


def by_hand(shots: Shots, W: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and Hessian of the mean cross-entropy of a softmax regression, in (W, b)."""
    x = np.hstack([np.asarray(shots.x), np.ones((len(shots.x), 1))])
    logits = x @ np.vstack([W, b])
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    y = np.eye(WAY)[np.asarray(shots.y)]
    gradient = x.T @ (p - y) / len(x)
    hessian = np.zeros((gradient.size, gradient.size))
    for xn, pn in zip(x, p, strict=True):
        hessian += np.kron(np.outer(xn, xn), np.diag(pn) - np.outer(pn, pn)) / len(x)
    return gradient.ravel(), hessian


@pytest.mark.parametrize("first_order", [False, True])
def test_maml_against_an_unrolled_computation_by_hand(first_order: bool) -> None:
    """d loss / d w0 = (I - a H(w0)) (I - a H(w1)) g_query(w2); without the factors: first order."""
    rate, episode = 0.3, toy_episode(WAY)
    learner = MAML(inner_rate=rate, inner_steps=2, first_order=first_order)
    loss, place = flat_loss(learner, ())  # no hidden layer: softmax regression
    w, factors = np.asarray(place), []
    for _ in range(2):
        gradient, hessian = by_hand(episode.support, *parts(w))
        factors.append(np.eye(len(w)) - rate * hessian)
        w = w - rate * gradient
    expected, _ = by_hand(episode.query, *parts(w))
    if not first_order:
        expected = factors[0] @ factors[1] @ expected
    np.testing.assert_allclose(jax.grad(loss)(place), expected, rtol=1e-10, atol=1e-12)


def parts(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return w[: DIMS * WAY].reshape(DIMS, WAY), w[DIMS * WAY :]


def test_chaser_loss_pulls_the_chaser_only() -> None:
    """Its gradient is that of the squared distance to a leader that does not move."""
    learner = BMAML(inner_rate=0.3, inner_steps=2, leader_steps=2, particles=3)
    episode, key = toy_episode(WAY), jax.random.key(KEY)
    state = learner.init(jax.random.key(1), mlp(DIMS, (4,)), WAY)
    whole = (episode.support, episode.query)
    move = jax.jit(lambda s: learner._move(learner.adapt(s, episode.support, key), whole, 2))
    leader = move(state)

    def distance(start: Any) -> jax.Array:
        chaser = learner.adapt(start, episode.support, key)
        return ((ravel_pytree(chaser)[0] - ravel_pytree(leader)[0]) ** 2).sum()

    loss, gradient = jax.jit(jax.value_and_grad(learner.loss))(state, episode, key)
    expected, expected_gradient = jax.jit(jax.value_and_grad(distance))(state)
    np.testing.assert_allclose(loss, expected, rtol=1e-12)
    result = ravel_pytree(gradient)[0]
    np.testing.assert_allclose(result, ravel_pytree(expected_gradient)[0], rtol=1e-9, atol=1e-15)
    assert jnp.linalg.norm(result) > 0
