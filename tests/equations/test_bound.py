"""The bound: against exact enumeration, and its nine terms against Monte Carlo."""

from dataclasses import fields, replace
from functools import cache

import jax
import numpy as np
import pytest
import scipy.stats
from scipy.special import gammaln
from small_case import Case, build_case, exact_log_evidence

from taskscape.model import ElboTerms, e_step, elbo, update_r

TERMS = [field.name for field in fields(ElboTerms)]
DRAWS = 20_000


def one_hot(rng: np.random.Generator, p: np.ndarray, draws: int) -> np.ndarray:
    """Draws from every categorical of the last axis of p, as one-hot vectors."""
    levels = rng.random((draws, *p.shape[:-1], 1))
    index = (levels > np.cumsum(p, -1)[..., :-1]).sum(-1)
    return np.eye(p.shape[-1])[index]


def log_dirichlet(theta: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Log-density, over leading axes."""
    log_norm = gammaln(alpha).sum(-1) - gammaln(alpha.sum(-1))
    return ((alpha - 1) * np.log(theta)).sum(-1) - log_norm


def log_densities(case: Case, task: int, draws: int) -> dict[str, np.ndarray]:
    """Each log-density of eq:elbo_factorised at draws from eq:q, for one task."""
    rng = np.random.default_rng(task)
    real = np.asarray(case.class_mask[task])
    mask = np.asarray(case.sample_mask[task])[real]
    alpha, delta = np.asarray(case.themes.alpha), np.asarray(case.themes.delta)
    lam = np.asarray(case.posterior.lam[task])
    eta, gamma, r, x = (
        np.asarray(a[task])[real]
        for a in (case.posterior.eta, case.posterior.gamma, case.r, case.x)
    )
    phi = rng.dirichlet(lam, draws)
    y = one_hot(rng, eta, draws)
    theta = np.stack([rng.dirichlet(g, draws) for g in gamma], 1)
    z = one_hot(rng, r, draws) * mask[..., None]
    log_normal = np.stack(
        [
            scipy.stats.multivariate_normal(m, S).logpdf(x)
            for m, S in zip(np.asarray(case.themes.mu), np.asarray(case.themes.Sigma), strict=True)
        ],
        -1,
    )
    log_dir = np.stack([log_dirichlet(theta, a) for a in alpha], -1)
    safe_r = np.where(r > 0, r, 1)
    return {
        "log_p_x": (z * log_normal).sum((1, 2, 3)),
        "log_p_z": (z * np.log(theta)[:, :, None]).sum((1, 2, 3)),
        "log_p_theta": (y * log_dir).sum((1, 2)),
        "log_p_y": (y * np.log(phi)[:, None]).sum((1, 2)),
        "log_p_phi": log_dirichlet(phi, delta),
        "log_q_z": (z * np.log(safe_r)).sum((1, 2, 3)),
        "log_q_theta": log_dirichlet(theta, gamma).sum(1),
        "log_q_y": (y * np.log(eta)).sum((1, 2)),
        "log_q_phi": log_dirichlet(phi, lam),
    }


@cache
def shared_draws(task: int) -> dict[str, np.ndarray]:
    """The draws of one task of the small case, made once."""
    return log_densities(build_case(), task, DRAWS)


@pytest.mark.parametrize("name", TERMS)
def test_eq_elbo_factorised_term_against_monte_carlo(case: Case, name: str) -> None:
    terms = case.terms(case.r, case.posterior)
    for task in range(3):
        draws = shared_draws(task)[name]
        error = draws.std() / np.sqrt(DRAWS)
        assert abs(float(getattr(terms, name)[task]) - draws.mean()) < 4 * error + 1e-9


def test_eq_elbo_total_against_monte_carlo(case: Case) -> None:
    """E_q[ln p - ln q], with the logarithm of q that the paper's eq:elbo lacks."""
    total = case.terms(case.r, case.posterior).total
    for task in range(3):
        logs = shared_draws(task)
        draws = sum(logs[n] if n.startswith("log_p") else -logs[n] for n in TERMS)
        assert abs(float(total[task]) - draws.mean()) < 4 * draws.std() / np.sqrt(DRAWS)


def test_eq_q_factorises(case: Case) -> None:
    """ln q(phi, y, theta, z) is the sum of its four factors, each normalised: E_q[p / q] = p(x)."""
    masks = (case.sample_mask, case.class_mask)
    state = e_step(case.log_lik, *masks, case.themes.alpha, case.themes.delta)
    r = update_r(case.log_lik, state.posterior.gamma, case.sample_mask)
    logs = log_densities(replace(case, posterior=state.posterior, r=r), 1, 100_000)
    log_ratio = sum(logs[n] if n.startswith("log_p") else -logs[n] for n in TERMS)
    ratio = np.exp(log_ratio - log_ratio.max())
    estimate = np.log(ratio.mean()) + log_ratio.max()
    error = ratio.std() / ratio.mean() / np.sqrt(ratio.size)
    exact = exact_log_likelihood(case, 1)
    assert error < 0.05
    assert abs(estimate - exact) < 4 * error


def exact_log_likelihood(case: Case, task: int) -> float:
    """ln p(x) of one task of the case."""
    real, mask = np.asarray(case.class_mask[task]), np.asarray(case.sample_mask[task])
    log_lik = np.asarray(case.log_lik[task])
    own = [log_lik[c][mask[c]] for c in np.flatnonzero(real)]
    return exact_log_evidence(own, case.themes.alpha, case.themes.delta)


def test_eq_mle_lies_above_the_bound(case: Case) -> None:
    themes = (case.themes.alpha, case.themes.delta)
    masks = (case.sample_mask, case.class_mask)
    state = e_step(case.log_lik, *masks, *themes, tol=1e-10, max_iter=1000)
    best = elbo(state.posterior, case.log_lik, *masks, *themes).total
    generic = case.terms(case.r, case.posterior).total
    for task in range(3):
        exact = exact_log_likelihood(case, task)
        assert float(generic[task]) < float(best[task]) < exact
        assert exact - float(best[task]) < 2.5  # mean field is not exact, but not far off


def test_total_is_what_p_expects_less_what_q_expects(case: Case) -> None:
    terms = case.terms(case.r, case.posterior)
    by_hand = sum(getattr(terms, name) * (1 if name.startswith("log_p") else -1) for name in TERMS)
    np.testing.assert_allclose(terms.total, by_hand, rtol=1e-12)
    assert jax.tree.leaves(terms)[0].shape == (3,)
