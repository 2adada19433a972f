"""One step of a fit, against slow loops in NumPy, and the revival of dead themes."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import digamma, gammaln

from fit_cases import share_compiled
from taskscape import FitConfig
from taskscape.fit.data import FitBatch
from taskscape.fit.steps import FitState, held_out_bound, init, revive, step
from taskscape.model import Themes, ThemeStatistics, m_step, relative_prior

share_compiled()

M, C, N, K, L, D = 4, 3, 4, 3, 2, 2
CONFIG = FitConfig(
    task_themes=L, image_themes=K, batch_size=M, tol=1e-9, max_iter=3, nu_fraction=0.05, kappa=0.1
)


def themes_at(covariance: str = "full", far: float = 0.0) -> Themes:
    """Three image-themes; the third ``far`` away from all samples."""
    rng = np.random.default_rng(1)
    roots = rng.normal(size=(K, D, D))
    Sigma = roots @ roots.transpose(0, 2, 1) + 0.5 * np.eye(D)
    if covariance == "diag":
        Sigma = np.diagonal(Sigma, axis1=1, axis2=2)
    elif covariance == "tied":
        Sigma = Sigma[0]
    mu = rng.normal(size=(K, D)) * 2
    mu[2] += far
    return Themes(
        mu=jnp.asarray(mu, dtype=float),
        Sigma=jnp.asarray(Sigma, dtype=float),
        alpha=jnp.asarray(rng.gamma(2, 1, (L, K)) + 0.3, dtype=float),
        delta=jnp.asarray([0.5, 0.8], dtype=float),
        covariance=covariance,
    )


def a_batch(seed: int = 0) -> FitBatch:
    """Three tasks and a padded one; samples shared between tasks; a class with few samples."""
    rng = np.random.default_rng(seed)
    class_mask = np.ones((M, C), bool)
    class_mask[1, 2] = False
    class_mask[3] = False
    sample_mask = np.ones((M, C, N), bool) & class_mask[..., None]
    sample_mask[2, 0, 2:] = False
    x = rng.normal(size=(20, D)) * 2
    x[15:] = 0  # rows that nobody uses
    return FitBatch(
        x=jnp.asarray(x, dtype=float),
        index=jnp.asarray(np.where(sample_mask, rng.integers(0, 15, (M, C, N)), 0), jnp.int32),
        sample_mask=jnp.asarray(sample_mask),
        class_mask=jnp.asarray(class_mask),
    )


def start_state(covariance: str = "full", far: float = 0.0) -> FitState:
    return init(
        themes_at(covariance, far),
        jnp.asarray([0.3, -0.2], dtype=float),
        jnp.asarray([2.0, 3.0], dtype=float),
    )


# -- the same in loops ------------------------------------------------------------------------


def log_normal(x, mu, Sigma):
    gap = x - mu
    return -0.5 * (
        D * np.log(2 * np.pi) + np.log(np.linalg.det(Sigma)) + gap @ np.linalg.inv(Sigma) @ gap
    )


def log_tilde(a):
    return digamma(a) - digamma(a.sum())


def slow_statistics(batch, themes, shift, sweeps):
    """Sums over tasks after some sweeps from the cold start, one sample at a time."""
    mu, Sigma, alpha, delta = (
        np.asarray(v, np.float64) for v in (themes.mu, themes.Sigma, themes.alpha, themes.delta)
    )
    N_k, S1, S2 = np.zeros(K), np.zeros((K, D)), np.zeros((K, D, D))
    w, log_theta, samples, classes = np.zeros(L), np.zeros((L, K)), 0, 0
    for d in range(M):
        own = [
            [np.asarray(batch.x[batch.index[d, c, n]], np.float64) for n in range(N)
             if batch.sample_mask[d, c, n]]
            for c in range(C) if batch.class_mask[d, c]
        ]  # fmt: skip
        if not own:
            continue
        eta = [delta / delta.sum() for _ in own]
        gamma = [
            np.full(K, (len(xs) + e @ alpha.sum(1)) / K) for xs, e in zip(own, eta, strict=True)
        ]
        lam = delta + sum(eta)

        def responsibility(x, g):
            r = np.exp(log_tilde(g) + [log_normal(x, mu[k], Sigma[k]) for k in range(K)])
            return r / r.sum()

        for _ in range(sweeps):
            for c, xs in enumerate(own):
                gamma[c] = sum(responsibility(x, gamma[c]) for x in xs) + eta[c] @ alpha
            old_lam = lam
            for c in range(len(own)):
                score = log_tilde(old_lam) + alpha @ log_tilde(gamma[c])
                score -= gammaln(alpha).sum(1) - gammaln(alpha.sum(1))
                eta[c] = np.exp(score - score.max())
                eta[c] /= eta[c].sum()
            lam = delta + sum(eta)
        for c, xs in enumerate(own):
            w += eta[c]
            log_theta += np.outer(eta[c], log_tilde(gamma[c]))
            classes += 1
            for x in xs:
                r = responsibility(x, gamma[c])
                samples += 1
                for k in range(K):
                    N_k[k] += r[k]
                    S1[k] += r[k] * (x - shift)
                    S2[k] += r[k] * np.outer(x - shift, x - shift)
    tasks = int(np.asarray(batch.class_mask).any(1).sum())
    return [v / tasks for v in (N_k, S1, S2, w, log_theta, samples, classes)]


def slow_m_step(sums, shift, Psi0):
    N_k, S1, S2, w, log_theta, samples, classes = sums
    nu, pseudo = CONFIG.nu_fraction * samples / K, CONFIG.kappa * classes / L
    mu = shift + S1 / N_k[:, None]
    Sigma = np.stack(
        [
            (S2[k] - np.outer(S1[k], S1[k]) / N_k[k] + nu * np.diag(Psi0)) / (N_k[k] + nu)
            for k in range(K)
        ]
    )
    prior = pseudo * (digamma(1.0) - digamma(float(K)))

    def loss(log_alpha, j):
        a = np.exp(log_alpha)
        log_B = gammaln(a).sum() - gammaln(a.sum())
        return -((a - 1) @ (log_theta[j] + prior) - (w[j] + pseudo) * log_B)

    alpha = np.stack(
        [
            np.exp(minimize(loss, np.zeros(K), args=(j,), tol=1e-12, method="BFGS",
                            options={"gtol": 1e-9}).x)
            for j in range(L)
        ]
    )  # fmt: skip
    return mu, Sigma, alpha


def test_two_online_steps_agree_with_loops():
    state, shift, Psi0 = start_state(), np.array([0.3, -0.2]), np.array([2.0, 3.0])
    running = None
    for t, seed in enumerate((0, 7)):
        batch = a_batch(seed)
        fresh = slow_statistics(batch, state.themes, shift, CONFIG.max_iter)
        rho = 1.0 if t == 0 else (CONFIG.tau0 + t) ** -CONFIG.tau1
        running = (
            fresh
            if running is None
            else [(1 - rho) * old + rho * new for old, new in zip(running, fresh, strict=True)]
        )
        state, info = step(state, batch, CONFIG)
        stats = state.stats
        got = (stats.N_k, stats.S1, stats.S2, stats.w, stats.E_log_theta_sum,
               stats.samples, stats.classes)  # fmt: skip
        for ours, loops in zip(got, running, strict=True):
            np.testing.assert_allclose(ours, loops, rtol=2e-4, atol=2e-4)
        mu, Sigma, alpha = slow_m_step(running, shift, Psi0)
        np.testing.assert_allclose(state.themes.mu, mu, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(state.themes.Sigma, Sigma, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(state.themes.alpha, alpha, rtol=2e-3)
        assert int(state.t) == t + 1
        assert float(info.rho) == pytest.approx(rho)
        np.testing.assert_allclose(info.usage, fresh[0] / fresh[5], rtol=1e-3)
        assert float(stats.tasks) == pytest.approx(1)
        assert float(info.sweeps) == pytest.approx(3)


def test_the_literal_update_differs_and_leaves_an_unused_theme_alone():
    state = start_state(far=1000.0)
    paper = replace(CONFIG, update="paper")
    after, info = step(state, a_batch(), paper)
    statistics, _ = step(state, a_batch(), CONFIG)
    assert float(info.rho) == pytest.approx((paper.tau0 + 1) ** -paper.tau1)
    np.testing.assert_allclose(after.themes.mu[2], state.themes.mu[2], rtol=1e-6)
    np.testing.assert_allclose(after.themes.Sigma[2], state.themes.Sigma[2], atol=1e-5)
    assert not np.allclose(after.themes.mu[:2], state.themes.mu[:2], atol=1e-3)
    assert not np.allclose(after.themes.mu[:2], statistics.themes.mu[:2], atol=1e-3)
    for leaf in jax.tree.leaves(after.themes):
        assert np.isfinite(leaf).all()
    assert (np.asarray(after.themes.alpha) > 0).all()


def test_what_the_padding_holds_does_not_matter():
    clean, batch = a_batch(), a_batch()
    spoiled = replace(
        batch,
        index=jnp.where(batch.sample_mask, batch.index, 17),
        x=batch.x.at[15:].set(1e6),
    )
    ours, theirs = step(start_state(), clean, CONFIG), step(start_state(), spoiled, CONFIG)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_the_held_out_bound_sums_over_real_samples():
    batch = a_batch()
    bound, samples = held_out_bound(themes_at(), batch)
    assert float(samples) == int(batch.sample_mask.sum())
    doubled = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), replace(batch, x=batch.x))
    doubled = replace(doubled, x=batch.x)
    twice, samples_of_two = held_out_bound(themes_at(), doubled)
    assert float(twice) == pytest.approx(2 * float(bound), rel=1e-5)
    assert float(samples_of_two) == 2 * float(samples)


# -- revival ----------------------------------------------------------------------------------


def with_a_dead_theme(covariance: str, where: float) -> FitState:
    """Statistics of two themes, around ``where``; the third explains nothing."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, D)) * [1.0, 3.0] + where
    r = np.zeros((60, K))
    r[:40, 0], r[40:, 1] = 1, 1
    moments = np.einsum("sk,sd,se->kde", r, x, x)
    if covariance == "diag":
        moments = np.diagonal(moments, axis1=1, axis2=2)
    elif covariance == "tied":
        moments = moments.sum(0)
    stats = ThemeStatistics(
        *(jnp.asarray(v, dtype=float) for v in (
            r.sum(0), r.T @ x, moments, [4.0, 6.0],
            [[-5.0, -6.0, -300.0], [-9.0, -7.0, -500.0]], 60.0, 10.0, 3.0,
        )),
        covariance=covariance,
    )  # fmt: skip
    state = replace(start_state(covariance), stats=stats, shift=jnp.zeros(D))
    prior = relative_prior(stats, state.Psi0, CONFIG.nu_fraction, CONFIG.kappa)
    return replace(state, themes=m_step(stats, prior, state.themes, state.shift))


@pytest.mark.parametrize("where", [0.0, 30.0])
@pytest.mark.parametrize("covariance", ["full", "diag", "tied"])
def test_a_dead_theme_takes_half_of_the_fullest(covariance: str, where: float):
    before = with_a_dead_theme(covariance, where)
    after = revive(before, jnp.asarray(2), jnp.asarray(0), CONFIG)
    np.testing.assert_allclose(after.stats.N_k, [20, 20, 20])
    np.testing.assert_allclose(after.stats.S1.sum(0), before.stats.S1.sum(0), rtol=1e-5)
    if covariance != "tied":
        np.testing.assert_allclose(
            after.stats.S2.sum(0), before.stats.S2.sum(0), rtol=1e-5, atol=1e-2
        )
    Sigma = np.asarray(after.themes.Sigma)
    if covariance == "diag":
        Sigma = np.einsum("kd,de->kde", Sigma, np.eye(D))
    else:
        Sigma = np.broadcast_to(Sigma, (K, D, D))
    assert np.linalg.eigvalsh(Sigma).min() > 0.3
    # both keep three quarters of the variance along the split, and all of it across
    was = np.asarray(before.themes.Sigma)
    was = np.diag(was[0]) if covariance == "diag" else was[0] if covariance == "full" else was
    assert Sigma[0][1, 1] == pytest.approx(Sigma[2][1, 1], rel=1e-2)
    if covariance != "tied":
        assert 0.6 < Sigma[0][1, 1] / was[1, 1] < 0.9
        assert Sigma[0][0, 0] == pytest.approx(was[0, 0], rel=0.15)
    gap = np.asarray(after.themes.mu[2] - after.themes.mu[0])
    assert np.linalg.norm(gap) == pytest.approx(np.sqrt(np.linalg.eigvalsh(was)[-1]), rel=1e-3)
    np.testing.assert_allclose(after.stats.E_log_theta_sum[:, 2], after.stats.E_log_theta_sum[:, 0])
    assert np.isfinite(after.themes.alpha).all()
    assert (np.asarray(after.themes.alpha) > 0).all()


def test_a_revived_theme_is_used():
    state = with_a_dead_theme("full", 0.0)
    batch = a_batch()
    dead = replace(state, themes=replace(state.themes, mu=state.themes.mu.at[2].add(1e3)))
    _, told = step(dead, batch, CONFIG)
    assert float(told.usage[2]) < 1e-6
    _, told = step(revive(dead, jnp.asarray(2), jnp.asarray(0), CONFIG), batch, CONFIG)
    assert float(told.usage[2]) > 0.05
