"""The E-step as a procedure: its start, its building blocks, its warm starts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskscape.model import TaskPosterior, advance, begin, cold_start, e_step

M, C, N, K, L = 6, 3, 8, 4, 3

compiled_e_step = jax.jit(e_step)


@pytest.fixture(scope="module")
def inputs() -> tuple[jax.Array, ...]:
    """log_lik, sample_mask, class_mask, alpha, delta."""
    rng = np.random.default_rng(0)
    class_mask = np.ones((M, C), bool)
    class_mask[2, 1:] = False
    return (
        jnp.asarray(rng.normal(size=(M, C, N, K)) * 2, jnp.float32),
        jnp.asarray(np.ones((M, C, N), bool) & class_mask[..., None]),
        jnp.asarray(class_mask),
        jnp.asarray(rng.gamma(1.0, 1.0, (L, K)) + 0.1, jnp.float32),
        jnp.full(L, 0.5),
    )


def test_start_is_deterministic_and_favours_no_image_theme(inputs: tuple[jax.Array, ...]) -> None:
    start = cold_start(*inputs[1:])
    again = cold_start(*inputs[1:])
    for one, other in zip(jax.tree.leaves(start), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(start.gamma, start.gamma[..., :1].repeat(K, -1))
    np.testing.assert_allclose(start.eta[0], 1 / L)
    np.testing.assert_array_equal(start.eta[2, 1:], 0)
    np.testing.assert_array_equal(start.gamma[2, 1:], 1)
    np.testing.assert_allclose(start.lam[0], 0.5 + C / L)


def test_blocks_of_sweeps_add_up_to_the_e_step(inputs: tuple[jax.Array, ...]) -> None:
    """Whoever drops converged tasks between blocks gets what the plain loop gives."""
    whole = compiled_e_step(*inputs)
    block = jax.jit(
        lambda state: jax.lax.fori_loop(0, 4, lambda _, s: advance(s, *inputs, tol=1e-5), state)
    )
    state = begin(cold_start(*inputs[1:]))
    while (state.change >= 1e-5).any():
        state = block(state)
    # Two compilations round differently, which may shift the stop by a sweep.
    np.testing.assert_allclose(state.sweeps, whole.sweeps, atol=2)
    np.testing.assert_allclose(state.posterior.lam, whole.posterior.lam, atol=1e-4)
    np.testing.assert_allclose(state.posterior.gamma, whole.posterior.gamma, atol=1e-3)


def test_warm_start_at_the_end_stops_at_once(inputs: tuple[jax.Array, ...]) -> None:
    done = compiled_e_step(*inputs, tol=1e-6)
    again = compiled_e_step(*inputs, tol=1e-5, start=done.posterior)
    np.testing.assert_array_equal(again.sweeps, 1)
    np.testing.assert_allclose(again.posterior.lam, done.posterior.lam, atol=1e-4)


def test_max_iter_bounds_the_sweeps(inputs: tuple[jax.Array, ...]) -> None:
    state = e_step(*inputs, tol=0.0, max_iter=3)
    np.testing.assert_array_equal(state.sweeps, 3)


def test_e_step_maps_over_tasks(inputs: tuple[jax.Array, ...]) -> None:
    batched = compiled_e_step(*inputs)
    mapped = jax.vmap(e_step, in_axes=(0, 0, 0, None, None))(*inputs)
    np.testing.assert_allclose(mapped.sweeps, batched.sweeps, atol=2)
    np.testing.assert_allclose(mapped.posterior.lam, batched.posterior.lam, atol=1e-4)
    assert isinstance(mapped.posterior, TaskPosterior)


def test_a_class_without_samples_has_the_prior_of_its_task(inputs: tuple[jax.Array, ...]) -> None:
    log_lik, sample_mask, class_mask, alpha, delta = inputs
    state = compiled_e_step(log_lik, sample_mask.at[0, 0].set(False), class_mask, alpha, delta)
    expected = state.posterior.eta[0, 0] @ alpha
    np.testing.assert_allclose(state.posterior.gamma[0, 0], expected, rtol=1e-3)
