"""apdx:alpha: gradient and Hessian against autodiff, the Newton direction against a dense solve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_case import Case, gradient_of_alpha, hessian_of_alpha

from taskscape.model import (
    alpha_gradient,
    alpha_hessian_constant,
    alpha_hessian_diagonal,
    alpha_objective,
    expected_log,
    newton_direction,
    solve_alpha,
)


@pytest.fixture
def sums(case: Case) -> tuple[jax.Array, jax.Array]:
    """w and the sum of eta E[ln theta] over tasks and classes."""
    E_log_theta = expected_log(case.posterior.gamma)
    w = case.posterior.eta.sum((0, 1))
    return w, jnp.einsum("mcl,mck->lk", case.posterior.eta, E_log_theta)


def hessian_blocks(alpha: jax.Array, w: jax.Array) -> jax.Array:
    """diag(q_l) + u_l 1 1^T for every l."""
    q, u = alpha_hessian_diagonal(alpha, w), alpha_hessian_constant(alpha, w)
    return jax.vmap(jnp.diag)(q) + u[:, None, None]


def test_gradient_and_hessian_against_autodiff(
    case: Case, sums: tuple[jax.Array, jax.Array]
) -> None:
    """g and H sum over tasks and classes; the paper multiplies one task's sum by M."""
    alpha = case.themes.alpha
    gradient = gradient_of_alpha(*case.arguments(case.r, case.posterior))
    np.testing.assert_allclose(alpha_gradient(alpha, *sums), gradient, rtol=1e-9, atol=1e-10)
    hessian = hessian_of_alpha(*case.arguments(case.r, case.posterior))
    blocks = hessian_blocks(alpha, sums[0])
    for i in range(case.themes.L):
        for j in range(case.themes.L):
            expected = blocks[i] if i == j else jnp.zeros_like(blocks[i])
            np.testing.assert_allclose(hessian[i, :, j], expected, rtol=1e-9, atol=1e-10)


def test_printed_gradient_holds_only_if_every_task_has_the_same_eta(
    case: Case, sums: tuple[jax.Array, jax.Array]
) -> None:
    printed_w = case.posterior.eta.shape[0] * case.posterior.eta[0].sum(0)
    printed = alpha_gradient(case.themes.alpha, printed_w, sums[1])
    assert jnp.abs(printed - alpha_gradient(case.themes.alpha, *sums)).max() > 0.1


def test_eq_inverse_hessian_gradient(case: Case, sums: tuple[jax.Array, jax.Array]) -> None:
    alpha, w = case.themes.alpha, sums[0]
    g = alpha_gradient(alpha, *sums)
    q, u = alpha_hessian_diagonal(alpha, w), alpha_hessian_constant(alpha, w)
    dense = jnp.linalg.solve(hessian_blocks(alpha, w), g[..., None])[..., 0]
    np.testing.assert_allclose(newton_direction(g, q, u), dense, rtol=1e-9)
    printed_b = (g * q).sum(-1) / (1 / u + (1 / q).sum(-1))
    printed = (g - printed_b[:, None]) / q
    assert jnp.abs(printed - dense).max() > 0.1


@pytest.mark.parametrize("start", [1e-4, 0.3, 1.0, 50.0, 1e5])
def test_solved_alpha_has_zero_gradient_from_any_start(
    case: Case, sums: tuple[jax.Array, jax.Array], start: float
) -> None:
    alpha = solve_alpha(*sums, jnp.full_like(case.themes.alpha, start))
    assert (alpha > 0).all()
    np.testing.assert_allclose(alpha_gradient(alpha, *sums), 0, atol=1e-8)
    for seed in range(3):
        noise = np.exp(0.1 * np.random.default_rng(seed).normal(size=alpha.shape))
        assert (alpha_objective(alpha * noise, *sums) < alpha_objective(alpha, *sums)).all()
