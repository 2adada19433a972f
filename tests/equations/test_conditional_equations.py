"""The posterior given the task-theme: its updates, its bound, and what it is a bound on."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, gammaln
from small_case import Case, exact_log_evidence

from taskscape.model import (
    ConditionalPosterior,
    TaskPosterior,
    class_evidence,
    cold_start,
    cold_start_given_theme,
    collapsed_elbo,
    e_step,
    infer,
    infer_tasks,
    relative_likelihood,
    task_bound,
    update_eta_given_evidence,
    update_gamma_given_theme,
    update_r,
)
from taskscape.model.conditional import items_first, items_last

compiled_infer = jax.jit(infer)
compiled_e_step = jax.jit(e_step, static_argnames="max_iter")
compiled_bound = jax.jit(collapsed_elbo)


def random_gamma(case: Case) -> jax.Array:
    """Concentrations of every class under each task-theme, in generic position."""
    shape = (*case.class_mask.shape, *case.themes.alpha.shape)
    return jnp.asarray(np.random.default_rng(5).gamma(2.0, 1.0, shape) + 0.3)


def evidence_of(case: Case, gamma: jax.Array) -> jax.Array:
    """The evidence of every class, with the axes of gamma."""
    mask = items_last(case.sample_mask, 1)
    likelihood = relative_likelihood(items_last(case.log_lik, 2), mask)
    evidence = class_evidence(items_last(gamma, 2), *likelihood, mask, case.themes.alpha)
    return items_first(evidence, case.class_mask.shape)


def by_task(evidence: jax.Array) -> jax.Array:
    """The evidence as tasks are inferred from it: task-theme, class, task."""
    return evidence.transpose(2, 1, 0)


def log_beta(a: np.ndarray) -> np.ndarray:
    return gammaln(a).sum(-1) - gammaln(a.sum(-1))


def phi_terms(lam: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """E[ln p(phi)] - E[ln q(phi)], written out."""
    log_phi = digamma(lam) - digamma(lam.sum(-1, keepdims=True))
    return ((delta - lam) * log_phi).sum(-1) - log_beta(delta) + log_beta(lam)


def converged(case: Case, start: jax.Array) -> jax.Array:
    """Gamma after very many sweeps."""
    mask = items_last(case.sample_mask, 1)
    p, _ = relative_likelihood(items_last(case.log_lik, 2), mask)

    def once(_: int, gamma: jax.Array) -> jax.Array:
        return update_gamma_given_theme(gamma, p, mask, case.themes.alpha)[0]

    last = jax.jit(lambda gamma: jax.lax.fori_loop(0, 5000, once, gamma))(items_last(start, 2))
    return items_first(last, case.class_mask.shape)


def test_gamma_is_where_the_gradient_of_the_evidence_vanishes(case: Case) -> None:
    """Eq:r and eq:gamma for every task-theme by itself, r being at its best given gamma."""

    def summed(gamma: jax.Array) -> jax.Array:
        return evidence_of(case, gamma).sum()

    gradient = jax.jit(jax.grad(summed))
    start = random_gamma(case)
    real = np.asarray(case.class_mask)
    assert np.abs(gradient(start))[real].max() > 0.1
    np.testing.assert_allclose(gradient(converged(case, start)), 0, atol=1e-9)


def test_a_sweep_tells_the_evidence_before_it(case: Case) -> None:
    gamma, mask = random_gamma(case), items_last(case.sample_mask, 1)
    p, _ = relative_likelihood(items_last(case.log_lik, 2), mask)
    _, before = update_gamma_given_theme(items_last(gamma, 2), p, mask, case.themes.alpha)
    scale = (case.log_lik.max(-1) * case.sample_mask).sum(-1)
    whole = evidence_of(case, gamma)
    before = items_first(before, case.class_mask.shape)
    np.testing.assert_allclose(before + scale[..., None], whole, rtol=1e-12)


def test_with_certain_task_themes_the_bound_is_that_of_the_paper(case: Case) -> None:
    """The nine expectations of eq:elbo_factorised, for every way to give classes a task-theme."""
    gamma, lam = random_gamma(case), np.asarray(case.posterior.lam)
    evidence = np.asarray(evidence_of(case, gamma))
    log_phi = digamma(lam) - digamma(lam.sum(-1, keepdims=True))
    real = np.asarray(case.class_mask)
    for y in product(range(L), repeat=C):
        eta = np.eye(L)[list(y)] * real[..., None]
        chosen = jnp.einsum("mcl,mclk->mck", jnp.asarray(eta), gamma) + ~real[..., None]
        posterior = TaskPosterior(case.posterior.lam, jnp.asarray(eta), chosen)
        r = update_r(case.log_lik, chosen, case.sample_mask)
        nine = case.terms(r, posterior).total
        by_class = (eta * (evidence + log_phi[:, None])).sum((1, 2))
        ours = by_class + phi_terms(lam, np.asarray(case.themes.delta))
        np.testing.assert_allclose(ours, nine, rtol=1e-11)


def test_task_bound_is_the_bound_with_the_best_eta(case: Case) -> None:
    evidence = evidence_of(case, random_gamma(case))
    lam, mask, delta = case.posterior.lam, case.class_mask, case.themes.delta

    def written_out(logits: jax.Array) -> jax.Array:
        eta = jax.nn.softmax(logits, -1)
        log_phi = digamma(lam) - digamma(lam.sum(-1, keepdims=True))
        each = (eta * (evidence + log_phi[:, None] - jnp.log(eta))).sum(-1)
        return jnp.where(mask, each, 0).sum(-1) + phi_terms(np.asarray(lam), np.asarray(delta))

    eta = update_eta_given_evidence(by_task(evidence), lam.T, mask.T)[0].transpose(2, 1, 0)
    np.testing.assert_allclose(eta.sum(-1), mask, atol=1e-12)
    logits = jnp.log(jnp.where(mask[..., None], eta, 1))
    bound = task_bound(by_task(evidence), lam.T, mask.T, delta)
    np.testing.assert_allclose(written_out(logits), bound, rtol=1e-12)
    slope = jax.grad(lambda logits: written_out(logits).sum())(logits)
    np.testing.assert_allclose(slope, 0, atol=1e-12)


def test_lam_is_where_the_gradient_of_the_task_bound_vanishes(case: Case) -> None:
    """Eq:eta and eq:lambda, by turns."""
    evidence = by_task(evidence_of(case, random_gamma(case)))
    mask, delta = case.class_mask.T, case.themes.delta

    def summed(lam: jax.Array) -> jax.Array:
        return task_bound(evidence, lam, mask, delta).sum()

    lam, eta = infer_tasks(evidence, mask, delta, 1e-13)
    assert np.abs(jax.grad(summed)(lam + 0.3)).max() > 1e-3
    np.testing.assert_allclose(jax.grad(summed)(lam), 0, atol=1e-9)
    np.testing.assert_allclose(lam.T, delta + eta.sum(1).T, atol=1e-11)


M, C, N, K, L = 12, 3, 3, 3, 2


def random_tasks(seed: int) -> tuple[jax.Array, ...]:
    """Tasks with padding, as ``infer`` takes them: log-likelihoods, masks, alpha, delta."""
    rng = np.random.default_rng(seed)
    class_mask = rng.random((M, C)) < 0.8
    class_mask[:, 0] = True
    sample_mask = (rng.random((M, C, N)) < 0.9) & class_mask[..., None]
    return (
        jnp.asarray(rng.normal(size=(M, C, N, K)) * rng.uniform(0.3, 4, (M, 1, 1, 1))),
        jnp.asarray(sample_mask),
        jnp.asarray(class_mask),
        jnp.asarray(rng.gamma(0.5, 1.0, (L, K)) + 0.02),
        jnp.asarray(rng.gamma(1.0, 0.5, L) + 0.1),
    )


def best_bound(tasks: tuple[jax.Array, ...]) -> jax.Array:
    """The bound after very many sweeps from the usual start."""
    return compiled_infer(*tasks, 1e-12, 5000, cold_start_given_theme(*tasks))[1]


def paper_posterior(
    tasks: tuple[jax.Array, ...], start: TaskPosterior | None = None
) -> TaskPosterior:
    """The paper's E-step after very many sweeps."""
    start = cold_start(*tasks[1:]) if start is None else start
    return compiled_e_step(*tasks, 1e-12, 5000, start).posterior


def exact(tasks: tuple[jax.Array, ...]) -> np.ndarray:
    """The log-evidence of each task, by enumeration."""
    log_lik, sample_mask, class_mask = (np.asarray(v) for v in tasks[:3])
    return np.array(
        [
            exact_log_evidence(
                [log_lik[d, c][sample_mask[d, c]] for c in np.flatnonzero(class_mask[d])],
                *tasks[3:],
            )
            for d in range(M)
        ]
    )


@pytest.mark.parametrize("seed", range(3))
def test_no_posterior_of_the_paper_has_a_higher_bound(seed: int) -> None:
    """The paper's family is part of this one: resume from its optima, and the bound only rises."""
    tasks, rng = random_tasks(seed), np.random.default_rng(seed)
    papers, ours = [], [best_bound(tasks)]
    for i in range(4):
        eta = jnp.asarray(rng.dirichlet(np.ones(L), (M, C))) * tasks[2][..., None]
        gamma = jnp.asarray(rng.gamma(1.0, 1.0, (M, C, K)) + 0.1)
        start = None if i == 0 else TaskPosterior(tasks[4] + eta.sum(1), eta, gamma)
        paper = paper_posterior(tasks, start)
        papers.append(compiled_bound(paper, *tasks))
        same = jnp.broadcast_to(paper.gamma[..., None, :], (M, C, L, K))
        further = ConditionalPosterior(paper.lam, paper.eta, same)
        ours.append(compiled_infer(*tasks, 1e-12, 5000, further)[1])
        assert (ours[-1] >= papers[-1] - 1e-9).all()
    gain = np.max(ours, 0) - np.max(papers, 0)
    assert gain.min() > -1e-9
    assert gain.mean() > 1e-3


@pytest.mark.parametrize(
    ("more", "most", "mean"), [(0.0, 4.0, 1.7), (1.0, 2.5, 1.1), (10.0, 1.0, 0.3)]
)
def test_the_bound_lies_below_the_evidence_and_near_it(
    more: float, most: float, mean: float
) -> None:
    """Every y and z is enumerated; theta and phi are integrated in closed form.

    The tasks have up to nine samples. With small concentrations, where the samples of a class
    take sides together, a posterior that factorises stays a nat or two below.
    """
    gaps, gaps_of_paper = [], []
    for seed in range(4):
        *given, alpha, delta = random_tasks(seed)
        tasks = (*given, alpha + more, delta + more)
        truth = exact(tasks)
        gaps.append(truth - best_bound(tasks))
        gaps_of_paper.append(truth - compiled_bound(paper_posterior(tasks), *tasks))
    assert np.min(gaps) > 0
    assert np.max(gaps) < most
    assert np.mean(gaps) < mean
    assert np.mean(gaps) < np.mean(gaps_of_paper)


def test_where_nothing_is_in_doubt_the_bound_is_the_evidence() -> None:
    """Samples that fit one image-theme only, and a task's mixture that is known beforehand."""
    log_lik, *masks, alpha, _ = random_tasks(0)
    z = np.random.default_rng(1).integers(0, K, (M, C, N))
    clear = jnp.where(jnp.asarray(np.eye(K)[z]) > 0, log_lik, log_lik - 500)
    tasks = (clear, *masks, alpha, jnp.asarray([2e5, 1e5]))
    np.testing.assert_allclose(best_bound(tasks), exact(tasks), atol=2e-4)
