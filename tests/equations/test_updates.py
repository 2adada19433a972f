"""After each update the gradient of the bound with respect to that variable is zero."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_case import Case, compiled_terms

from taskscape.model import (
    cold_start,
    e_step,
    sweep,
    update_eta,
    update_gamma,
    update_lam,
    update_r,
)


def on_simplex(gradient: jax.Array) -> jax.Array:
    """The part of a gradient that moves along the simplex of the last axis."""
    return gradient - gradient.mean(-1, keepdims=True)


def test_eq_r(case: Case) -> None:
    r = update_r(case.log_lik, case.posterior.gamma, case.sample_mask)
    gradient = case.gradient(r, case.posterior)[0][case.sample_mask]
    np.testing.assert_allclose(on_simplex(gradient), 0, atol=1e-10)
    np.testing.assert_allclose(r.sum(-1), case.sample_mask, atol=1e-12)


def test_eq_gamma(case: Case) -> None:
    gamma = update_gamma(case.r, case.posterior.eta, case.themes.alpha, case.class_mask)
    _, gradient = case.gradient(case.r, replace(case.posterior, gamma=gamma))
    np.testing.assert_allclose(gradient.gamma, 0, atol=1e-10)
    paper = 1 + case.r.sum(2) + jnp.einsum("mcl,lk->mck", case.posterior.eta, case.themes.alpha - 1)
    np.testing.assert_allclose(gamma, paper, rtol=1e-12)


def test_eq_eta(case: Case) -> None:
    eta = update_eta(case.posterior.gamma, case.posterior.lam, case.themes.alpha, case.class_mask)
    _, gradient = case.gradient(case.r, replace(case.posterior, eta=eta))
    np.testing.assert_allclose(on_simplex(gradient.eta[case.class_mask]), 0, atol=1e-10)
    np.testing.assert_allclose(eta.sum(-1), case.class_mask, atol=1e-12)


def test_eq_lambda(case: Case) -> None:
    lam = update_lam(case.posterior.eta, case.themes.delta)
    _, gradient = case.gradient(case.r, replace(case.posterior, lam=lam))
    np.testing.assert_allclose(gradient.lam, 0, atol=1e-10)


def test_alg_online_ldcc_e_step_ends_where_every_gradient_is_zero(case: Case) -> None:
    state = e_step(
        case.log_lik,
        case.sample_mask,
        case.class_mask,
        case.themes.alpha,
        case.themes.delta,
        tol=1e-13,
        max_iter=5000,
    )
    assert (state.change < 1e-13).all()
    r = update_r(case.log_lik, state.posterior.gamma, case.sample_mask)
    of_r, of_posterior = case.gradient(r, state.posterior)
    np.testing.assert_allclose(on_simplex(of_r[case.sample_mask]), 0, atol=1e-9)
    np.testing.assert_allclose(on_simplex(of_posterior.eta[case.class_mask]), 0, atol=1e-8)
    np.testing.assert_allclose(of_posterior.gamma, 0, atol=1e-8)
    np.testing.assert_allclose(of_posterior.lam, 0, atol=1e-9)


def test_alg_online_ldcc_e_step_stops_at_the_first_small_change(case: Case) -> None:
    inputs = (case.log_lik, case.sample_mask, case.class_mask)
    themes = (case.themes.alpha, case.themes.delta)
    tol = 1e-3
    state = e_step(*inputs, *themes, tol=tol)
    one_sweep = jax.jit(sweep)
    posterior = cold_start(*inputs[1:], *themes)
    history = [posterior.lam]
    for _ in range(int(state.sweeps.max())):
        posterior = one_sweep(posterior, *inputs, *themes)
        history.append(posterior.lam)
    change = np.abs(np.diff(np.stack(history), axis=0)).mean(-1)
    for task, sweeps in enumerate(state.sweeps.tolist()):
        assert (change[: sweeps - 1, task] >= tol).all()
        assert change[sweeps - 1, task] < tol
        np.testing.assert_allclose(state.posterior.lam[task], history[sweeps][task], rtol=1e-12)


def test_printed_bound_for_gamma_has_flipped_signs(case: Case) -> None:
    """The paper prints -ln B(gamma) + (gamma - 1) E[ln theta], whose gradient is not zero."""

    def printed(gamma: jax.Array) -> jax.Array:
        terms = case.terms(case.r, replace(case.posterior, gamma=gamma))
        return (terms.log_p_z + terms.log_p_theta + terms.log_q_theta).sum()

    gamma = update_gamma(case.r, case.posterior.eta, case.themes.alpha, case.class_mask)
    assert jnp.abs(jax.grad(printed)(gamma)).max() > 0.1


@pytest.mark.parametrize("hidden", [jnp.nan, 1e30])
def test_terms_ignore_what_is_under_the_masks(case: Case, hidden: float) -> None:
    expected = case.terms(case.r, case.posterior)
    mask = case.sample_mask[..., None]
    terms = compiled_terms(
        jnp.where(mask, case.r, hidden),
        replace(
            case.posterior, eta=jnp.where(case.class_mask[..., None], case.posterior.eta, hidden)
        ),
        jnp.where(mask, case.log_lik, hidden),
        case.sample_mask,
        case.class_mask,
        case.themes.alpha,
        case.themes.delta,
    )
    for leaf, other in zip(jax.tree.leaves(expected), jax.tree.leaves(terms), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=1e-12)
