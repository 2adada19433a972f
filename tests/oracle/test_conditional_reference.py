"""The E-step given the task-theme agrees with plain loops, padding and all."""

from collections.abc import Iterator

import conditional_reference as reference
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskscape.model import (
    ConditionalPosterior,
    ThemeStatistics,
    class_evidence,
    infer,
    infer_tasks,
    relative_likelihood,
    responsibilities,
    statistics,
)
from taskscape.model.conditional import items_last

M, C, N, K, L, D = 5, 3, 6, 4, 3, 2
SHIFT = np.array([0.4, -1.0])


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    """Loops and package agree to many digits in double precision only."""
    with jax.enable_x64(True):
        yield


@jax.jit
def ours(
    *tasks: jax.Array,
) -> tuple[ConditionalPosterior, jax.Array, jax.Array, jax.Array, ThemeStatistics]:
    """Posterior, finer lam, bound, r, statistics, from samples and what ``infer`` takes."""
    x, log_lik, sample_mask, class_mask, alpha, delta = tasks
    posterior, bound, _ = infer(
        log_lik, sample_mask, class_mask, alpha, delta, tol=1e-13, max_iter=5000
    )
    r = responsibilities(posterior, log_lik, sample_mask)
    stats = statistics(x, r, posterior, class_mask, jnp.asarray(SHIFT))
    mask = items_last(sample_mask, 1)
    likelihood = relative_likelihood(items_last(log_lik, 2), mask)
    evidence = class_evidence(items_last(posterior.gamma, 2), *likelihood, mask, alpha)
    evidence = evidence.reshape(L, M, C).swapaxes(1, 2)
    lam = infer_tasks(evidence, class_mask.T, delta, tol=1e-13)[0].T
    return posterior, lam, bound, r, stats


def random_tasks(seed: int) -> tuple[np.ndarray, ...]:
    """Samples and log-likelihoods with padding; NaN under the masks."""
    rng = np.random.default_rng(seed)
    class_mask = rng.random((M, C)) < 0.8
    class_mask[:, 0] = True
    sample_mask = (rng.random((M, C, N)) < 0.8) & class_mask[..., None]
    log_lik = rng.normal(size=(M, C, N, K)) * rng.uniform(0.5, 6, (M, 1, 1, 1)) - 10
    x = rng.normal(size=(M, C, N, D))
    hidden = ~sample_mask[..., None]
    alpha, delta = rng.gamma(0.5, 1.0, (L, K)) + 0.05, rng.gamma(1.0, 0.5, L) + 0.1
    return (
        np.where(hidden, np.nan, x),
        np.where(hidden, np.nan, log_lik),
        sample_mask, class_mask, alpha, delta,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_the_e_step_agrees_with_loops(seed: int) -> None:
    tasks = random_tasks(seed)
    x, log_lik, sample_mask, class_mask, alpha, delta = tasks
    posterior, fine_lam, bound, r, stats = ours(*(jnp.asarray(v) for v in tasks))
    w, log_theta, N_k, S1 = np.zeros(L), np.zeros((L, K)), np.zeros(K), np.zeros((K, D))
    for d in range(M):
        classes = np.flatnonzero(class_mask[d])
        own = [log_lik[d, c][sample_mask[d, c]] for c in classes]
        lam, eta, gamma, r_loops, total = reference.infer(own, alpha, delta)
        np.testing.assert_allclose(fine_lam[d], lam, rtol=1e-6)
        # otherwise the rounds over a task end at a change of 1e-5
        np.testing.assert_allclose(posterior.lam[d], lam, atol=1e-4)
        np.testing.assert_allclose(posterior.eta[d][classes], eta, atol=1e-4)
        np.testing.assert_allclose(posterior.gamma[d][classes], gamma, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(bound[d], total, rtol=1e-8)
        assert not np.asarray(posterior.eta[d])[~class_mask[d]].any()
        for i, c in enumerate(classes):
            np.testing.assert_allclose(r[d, c][sample_mask[d, c]], r_loops[i], atol=1e-4)
            w += eta[i]
            log_theta += [eta[i, j] * reference.log_tilde(gamma[i, j]) for j in range(L)]
            N_k += r_loops[i].sum(0)
            S1 += r_loops[i].T @ (x[d, c][sample_mask[d, c]] - SHIFT)
    assert not np.asarray(r)[~sample_mask].any()
    for got, loops in ((stats.w, w), (stats.E_log_theta_sum, log_theta), (stats.N_k, N_k),
                       (stats.S1, S1)):  # fmt: skip
        np.testing.assert_allclose(got, loops, rtol=1e-4, atol=1e-3)
    assert (float(stats.samples), float(stats.classes)) == (
        pytest.approx(sample_mask.sum()), class_mask.sum(),
    )  # fmt: skip
