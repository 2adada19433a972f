"""Stein variational gradient descent agrees with plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meta_cases import DIMS, toy_episode
from taskscape.meta import BMAML, MAML, mlp
from taskscape.meta.bmaml import rbf_kernel, stein_direction


def slow_direction(w: np.ndarray, gradient: np.ndarray, n: float) -> np.ndarray:
    M = len(w)
    squares = [[float(((w[i] - w[j]) ** 2).sum()) for j in range(M)] for i in range(M)]
    h = np.median(squares) / np.log(M + 1)
    direction = np.zeros_like(w)
    for m in range(M):
        for j in range(M):
            k = np.exp(-squares[j][m] / h)
            slope_of_k = -2 / h * k * (w[j] - w[m])  # derivative by w[j]
            direction[m] += (k * gradient[j] + slope_of_k / n) / M
    return direction


@pytest.mark.parametrize("particles", [2, 5])
def test_direction(particles: int) -> None:
    rng = np.random.default_rng(particles)
    w, gradient = rng.normal(size=(2, particles, 7))
    with jax.enable_x64(True):
        result = stein_direction(jnp.asarray(w), jnp.asarray(gradient), 3.0)
        np.testing.assert_allclose(result, slow_direction(w, gradient, 3.0), rtol=1e-10)


def test_repulsion_is_the_derivative_of_the_kernel() -> None:
    w = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)), jnp.float32)
    _, h = rbf_kernel(w)

    def sum_of_kernels(others: jax.Array, m: int) -> jax.Array:
        return jnp.exp(-((others - w[m]) ** 2).sum(1) / h).sum()

    for m in range(4):
        slopes = jax.grad(sum_of_kernels)(w, m).sum(0) / 4
        np.testing.assert_allclose(stein_direction(w, 0 * w)[m], slopes, rtol=1e-4, atol=1e-6)


def test_particles_at_one_place_have_a_finite_direction() -> None:
    w = jnp.ones((3, 4))
    np.testing.assert_allclose(stein_direction(w, 2 * w), 2 * w)


def test_one_particle_moves_as_in_maml() -> None:
    episode, network = toy_episode(), mlp(DIMS, (5,))
    single, plain = BMAML(inner_rate=0.2, particles=1), MAML(inner_rate=0.2)
    key = jax.random.key(0)
    state = single.init(key, network, 3)
    one = jax.tree.map(lambda leaf: leaf[0], state)
    result = single.adapt(state, episode.support, key)
    expected = plain.adapt(one, episode.support, key)
    for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a[0], b, rtol=1e-5, atol=1e-7)
