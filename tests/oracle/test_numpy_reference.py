"""One E-step and one M-step agree with plain loops written from the paper."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpy_reference as reference
import pytest
from jax.tree_util import register_dataclass

from taskscape.model import (
    TaskPosterior,
    ThemePrior,
    Themes,
    advance,
    begin,
    cold_start,
    elbo,
    log_likelihood,
    m_step,
    task_statistics,
    update_r,
    whiten,
)

M, C, N, K, L, D, SWEEPS = 3, 4, 5, 3, 2, 2, 4


SAMPLE_MASK, CLASS_MASK = np.ones((M, C, N), bool), np.ones((M, C), bool)
NU, PSI0, PSEUDO_CLASSES, ALPHA0 = 1.5, (0.6, 0.9), 0.4, 1.2


@register_dataclass
@dataclass(frozen=True)
class Ours:
    """One E-step of four sweeps, the bound there, and one M-step."""

    start: TaskPosterior
    posterior: TaskPosterior
    r: jax.Array
    bound: jax.Array
    themes: Themes


@dataclass(frozen=True)
class Setting:
    """Tasks without padding, themes to start from, and what the package makes of them."""

    x: jax.Array
    themes: Themes
    ours: Ours


@jax.jit
def compute(x: jax.Array, themes: Themes) -> Ours:
    """Everything that is compared with the loops."""
    masks = (jnp.asarray(SAMPLE_MASK), jnp.asarray(CLASS_MASK))
    concentrations = (themes.alpha, themes.delta)
    log_lik = log_likelihood(x, whiten(themes.mu, themes.Sigma))
    start = cold_start(*masks, *concentrations)
    state = jax.lax.fori_loop(
        0, SWEEPS, lambda _, s: advance(s, log_lik, *masks, *concentrations, tol=0.0), begin(start)
    )
    shift = jnp.asarray([0.4, -1.0], x.dtype)
    stats = task_statistics(x, state.posterior, log_lik, *masks, shift)
    prior = ThemePrior(
        nu=jnp.asarray(NU, x.dtype),
        Psi0=jnp.asarray(PSI0, x.dtype),
        pseudo_classes=jnp.asarray(PSEUDO_CLASSES, x.dtype),
        alpha0=jnp.asarray(ALPHA0, x.dtype),
    )
    return Ours(
        start=start,
        posterior=state.posterior,
        r=update_r(log_lik, state.posterior.gamma, masks[0]),
        bound=elbo(state.posterior, log_lik, *masks, *concentrations).total,
        themes=m_step(stats, prior, themes, shift),
    )


@pytest.fixture(params=["float32", "float64"], scope="module")
def setting(request: pytest.FixtureRequest) -> Setting:
    """The same setting in either precision."""
    with jax.enable_x64(request.param == "float64"):
        rng = np.random.default_rng(3)
        roots = rng.normal(size=(K, D, D))
        dtype = jnp.dtype(request.param)
        themes = Themes(
            mu=jnp.asarray(rng.normal(size=(K, D)) * 2, dtype),
            Sigma=jnp.asarray(roots @ roots.transpose(0, 2, 1) + np.eye(D), dtype),
            alpha=jnp.asarray(rng.gamma(2.0, 1.0, (L, K)) + 0.2, dtype),
            delta=jnp.asarray([0.5, 0.7], dtype),
        )
        x = jnp.asarray(rng.normal(size=(M, C, N, D)) * 2, dtype)
        ours = compute(x, themes)
    return Setting(x, themes, ours)


def tolerance(setting: Setting) -> float:
    """Relative error allowed in this precision."""
    return 2e-4 if setting.x.dtype == jnp.float32 else 1e-9


def plain(setting: Setting) -> tuple[np.ndarray, ...]:
    """x, mu, Sigma, alpha and delta as double-precision NumPy arrays."""
    t = setting.themes
    return tuple(np.asarray(a, float) for a in (setting.x, t.mu, t.Sigma, t.alpha, t.delta))


def reference_e_step(setting: Setting) -> list[tuple[np.ndarray, ...]]:
    """The loops, task by task, from the same cold start."""
    x, mu, Sigma, alpha, delta = plain(setting)
    start = setting.ours.start
    gamma, eta, lam = (np.asarray(a, float) for a in (start.gamma, start.eta, start.lam))
    return [
        reference.e_step(x[d], mu, Sigma, alpha, delta, gamma[d], eta[d], lam[d], SWEEPS)
        for d in range(M)
    ]


def test_e_step_and_bound(setting: Setting) -> None:
    x, mu, Sigma, alpha, delta = plain(setting)
    rtol = tolerance(setting)
    posterior = setting.ours.posterior
    for d, expected in enumerate(reference_e_step(setting)):
        actual = (setting.ours.r[d], posterior.gamma[d], posterior.eta[d], posterior.lam[d])
        for ours, loops in zip(actual, expected, strict=True):
            np.testing.assert_allclose(ours, loops, rtol=rtol, atol=rtol)
        loops = reference.bound(x[d], mu, Sigma, alpha, delta, *expected)
        np.testing.assert_allclose(setting.ours.bound[d], loops, rtol=rtol)


def test_m_step(setting: Setting) -> None:
    x, _, _, alpha, _ = plain(setting)
    r, gamma, eta, _ = (np.stack(a) for a in zip(*reference_e_step(setting), strict=True))
    mu, Sigma = reference.m_step_gaussian(x, r, NU, np.array(PSI0))
    solved = reference.m_step_alpha(alpha, eta, gamma, PSEUDO_CLASSES, ALPHA0)
    rtol = tolerance(setting)
    np.testing.assert_allclose(setting.ours.themes.mu, mu, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(setting.ours.themes.Sigma, Sigma, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(setting.ours.themes.alpha, solved, rtol=10 * rtol)
