"""The parts of the Dirichlet module that no equation of the paper covers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from taskscape.model import expected_log, inverse_digamma, moment_match, solve_alpha

compiled_solve = jax.jit(solve_alpha)


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 2e-5), ("float64", 1e-10)])
def test_inverse_digamma(dtype: str, rtol: float) -> None:
    with jax.enable_x64(dtype == "float64"):
        x = np.logspace(-5, 5, 41)
        y = jnp.asarray(scipy.special.digamma(x), dtype)
        # Near the root of digamma at 1.46 the input has lost digits already, hence atol.
        np.testing.assert_allclose(inverse_digamma(y), x, rtol=rtol, atol=rtol)


def test_moment_match_recovers_a_dirichlet() -> None:
    alpha = np.array([0.5, 2.0, 1.0])
    theta = np.random.default_rng(0).dirichlet(alpha, 20_000)
    matched = moment_match(jnp.asarray(theta, jnp.float32), jnp.ones(20_000))
    np.testing.assert_allclose(matched, alpha, rtol=0.05)


def test_moment_match_uses_its_weights() -> None:
    rng = np.random.default_rng(0)
    theta = np.concatenate([rng.dirichlet([5, 1, 1], 5000), rng.dirichlet([1, 1, 5], 5000)])
    weights = jnp.repeat(jnp.array([0.0, 1.0]), 5000)
    matched = moment_match(jnp.asarray(theta, jnp.float32), weights)
    np.testing.assert_allclose(matched, [1, 1, 5], rtol=0.1)


@pytest.mark.parametrize(
    "theta",
    [[[1.0, 0.0, 0.0]] * 3, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]],
    ids=["one corner", "every corner"],
)
def test_moment_match_of_corners_is_usable(theta: list[list[float]]) -> None:
    matched = moment_match(jnp.asarray(theta), jnp.ones(3))
    assert (matched > 0).all()
    assert 0.05 < matched.sum() <= 1001


def test_solve_alpha_in_float32_over_a_wide_range() -> None:
    rng = np.random.default_rng(0)
    for scale, rtol in [(0.05, 1e-4), (1.0, 1e-4), (30.0, 5e-3)]:
        alpha = jnp.asarray(rng.gamma(2.0, scale, (4, 8)) + 0.01, jnp.float32)
        for start in (1e-3, 1.0, 1e4):
            solved = compiled_solve(
                jnp.full(4, 50.0), 50.0 * expected_log(alpha), jnp.full((4, 8), start)
            )
            np.testing.assert_allclose(solved, alpha, rtol=rtol)


def test_solve_alpha_stays_finite_where_no_maximum_exists() -> None:
    """Classes with one and the same mixture would be fitted by an infinite concentration."""
    log_theta = jnp.log(jnp.array([[0.5, 0.3, 0.2]]))
    solved = compiled_solve(jnp.array([10.0]), 10.0 * log_theta, jnp.ones((1, 3)))
    assert jnp.isfinite(solved).all()
    assert 1e3 < solved.sum() < 2e6
    np.testing.assert_allclose(solved[0] / solved.sum(), [0.5, 0.3, 0.2], rtol=1e-2)


def test_solve_alpha_without_classes_or_choice_keeps_the_start() -> None:
    start = jnp.array([[0.3, 4.0]])
    np.testing.assert_array_equal(solve_alpha(jnp.zeros(1), jnp.zeros((1, 2)), start), start)
    np.testing.assert_array_equal(
        solve_alpha(jnp.ones(1), jnp.zeros((1, 1)), start[:, :1]), start[:, :1]
    )
