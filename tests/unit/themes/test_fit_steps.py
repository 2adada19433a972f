"""One step of a fit, against slow loops in NumPy, and the repair of flawed themes."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import digamma, gammaln, softmax

from taskscape.model import Themes, ThemeStatistics, m_step, relative_prior
from taskscape.themes import FitConfig, steps
from taskscape.themes.data import FitBatch
from taskscape.themes.health import dead_themes, duplicates, flaws, repair, revive, split
from taskscape.themes.steps import FitState, held_out_bound, init, step

M, C, N, K, L, D = 4, 3, 4, 3, 2, 2
CONFIG = FitConfig(
    task_themes=L, image_themes=K, batch_size=M, tol=1e-9, max_iter=3, nu_fraction=0.05, kappa=0.1
).of_steps()


def themes_at(far: float = 0.0) -> Themes:
    """Three image-themes; the third ``far`` away from all samples."""
    rng = np.random.default_rng(1)
    roots = rng.normal(size=(K, D, D))
    Sigma = roots @ roots.transpose(0, 2, 1) + 0.5 * np.eye(D)
    mu = rng.normal(size=(K, D)) * 2
    mu[2] += far
    return Themes(
        mu=jnp.asarray(mu, dtype=float),
        Sigma=jnp.asarray(Sigma, dtype=float),
        alpha=jnp.asarray(rng.gamma(2, 1, (L, K)) + 0.3, dtype=float),
        delta=jnp.asarray([0.5, 0.8], dtype=float),
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


def start_state(far: float = 0.0) -> FitState:
    return init(
        themes_at(far),
        jnp.asarray([0.3, -0.2], dtype=float),
        jnp.asarray([2.0, 3.0], dtype=float),
    )


@pytest.mark.parametrize("warm", [False, True])
def test_blocks_on_a_cpu_give_what_one_program_gives(warm: bool, monkeypatch: pytest.MonkeyPatch):
    with jax.enable_x64(True):  # rounding would hide what is asked
        state, batch = start_state(), a_batch()
        begun = steps.batch_part(state, batch, None, CONFIG)[1] if warm else None
        blocks = steps.batch_part(state, batch, begun, CONFIG)
        monkeypatch.setattr(steps, "on_cpu", lambda: False)
        whole = steps.batch_part(state, batch, begun, CONFIG)
    for a, b in zip(jax.tree.leaves(blocks), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


# -- the same in loops ------------------------------------------------------------------------


def log_normal(x, mu, Sigma):
    gap = x - mu
    return -0.5 * (
        D * np.log(2 * np.pi) + np.log(np.linalg.det(Sigma)) + gap @ np.linalg.inv(Sigma) @ gap
    )


def log_tilde(a):
    return digamma(a) - digamma(a.sum())


def slow_paper_posterior(own, alpha, delta, sweeps):
    """Eta, and r and gamma of each class under each task-theme: the same for all, as in the paper.

    ``own`` are the log-likelihoods of each class.
    """
    eta = [delta / delta.sum() for _ in own]
    gamma = [np.full(K, (len(x) + e @ alpha.sum(1)) / K) for x, e in zip(own, eta, strict=True)]
    lam = delta + sum(eta)
    for _ in range(sweeps):
        for c, x in enumerate(own):
            gamma[c] = sum(softmax(n + log_tilde(gamma[c])) for n in x) + eta[c] @ alpha
            score = log_tilde(lam) + alpha @ log_tilde(gamma[c])
            eta[c] = softmax(score - gammaln(alpha).sum(1) + gammaln(alpha.sum(1)))
        lam = delta + sum(eta)
    r = [[softmax(n + log_tilde(g)) for n in x] for x, g in zip(own, gamma, strict=True)]
    return eta, [[r_c] * L for r_c in r], [[g] * L for g in gamma]


def slow_posterior(own, alpha, delta, _):
    """The same for a posterior given the task-theme, by very many sweeps."""
    r, gamma, F = [], [], np.zeros((len(own), L))
    for c, x in enumerate(own):
        r.append([])
        gamma.append([])
        for j in range(L):
            g = alpha[j] + sum(softmax(n + np.log(alpha[j])) for n in x)
            for _ in range(400):
                g = alpha[j] + sum(softmax(n + log_tilde(g)) for n in x)
            q = [softmax(n + log_tilde(g)) for n in x]
            log_B, log_B_prior = (gammaln(a).sum() - gammaln(a.sum()) for a in (g, alpha[j]))
            F[c, j] = (alpha[j] - g) @ log_tilde(g) + log_B - log_B_prior
            F[c, j] += sum(p @ (n + log_tilde(g) - np.log(p)) for n, p in zip(x, q, strict=True))
            r[c].append(q)
            gamma[c].append(g)
    lam = delta + len(own) * delta / delta.sum()
    for _ in range(400):
        eta = [softmax(log_tilde(lam) + F_c) for F_c in F]
        lam = delta + sum(eta)
    return eta, r, gamma


def slow_statistics(batch, themes, shift, posterior_of, sweeps):
    """Sums over tasks, one sample at a time."""
    mu, Sigma, alpha, delta = (
        np.asarray(v, np.float64) for v in (themes.mu, themes.Sigma, themes.alpha, themes.delta)
    )
    N_k, S1, S2 = np.zeros(K), np.zeros((K, D)), np.zeros((K, D, D))
    w, log_theta, samples, classes = np.zeros(L), np.zeros((L, K)), 0, 0
    for d in range(M):
        xs = [
            [np.asarray(batch.x[batch.index[d, c, n]], np.float64) for n in range(N)
             if batch.sample_mask[d, c, n]]
            for c in range(C) if batch.class_mask[d, c]
        ]  # fmt: skip
        if not xs:
            continue
        own = [
            [np.array([log_normal(x, mu[k], Sigma[k]) for k in range(K)]) for x in x_c]
            for x_c in xs
        ]
        eta, r, gamma = posterior_of(own, alpha, delta, sweeps)
        for c, x_c in enumerate(xs):
            classes += 1
            samples += len(x_c)
            for j in range(L):
                w[j] += eta[c][j]
                log_theta[j] += eta[c][j] * log_tilde(gamma[c][j])
                for x, weights in zip(x_c, r[c][j], strict=True):
                    for k in range(K):
                        part = eta[c][j] * weights[k]
                        N_k[k] += part
                        S1[k] += part * (x - shift)
                        S2[k] += part * np.outer(x - shift, x - shift)
    tasks = int(np.asarray(batch.class_mask).any(1).sum())
    return [v / tasks for v in (N_k, S1, S2, w, log_theta, samples, classes)]


def averages(stats):
    """The running statistics in the order of the loops."""
    return (
        stats.N_k, stats.S1, stats.S2, stats.w, stats.E_log_theta_sum, stats.samples, stats.classes
    )  # fmt: skip


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


@pytest.mark.parametrize("update", ["statistics", "paper"])
def test_two_online_steps_agree_with_loops(update: str):
    """The averages of both posteriors; the themes, too, where they follow from the averages."""
    shift, Psi0 = np.array([0.3, -0.2]), np.array([2.0, 3.0])
    given_theme = update == "statistics"
    config = replace(CONFIG, update=update, **({"max_iter": 300} if given_theme else {}))
    posterior_of = slow_posterior if given_theme else slow_paper_posterior
    state, running = start_state(), None
    for t, seed in enumerate((0, 7)):
        batch = a_batch(seed)
        fresh = slow_statistics(batch, state.themes, shift, posterior_of, config.max_iter)
        decayed = (config.tau0 + t + 1) ** -config.tau1
        rho = 1.0 if t == 0 else decayed
        before = fresh if running is None else running
        running = [(1 - rho) * old + rho * new for old, new in zip(before, fresh, strict=True)]
        state, info = step(state, batch, config)
        for ours, loops in zip(averages(state.stats), running, strict=True):
            np.testing.assert_allclose(ours, loops, rtol=3e-4, atol=3e-4)
        if given_theme:
            mu, Sigma, alpha = slow_m_step(running, shift, Psi0)
            np.testing.assert_allclose(state.themes.mu, mu, rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(state.themes.Sigma, Sigma, rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(state.themes.alpha, alpha, rtol=2e-3)
        assert int(state.t) == t + 1
        assert float(info.rho) == pytest.approx(rho if given_theme else decayed)
        np.testing.assert_allclose(info.usage, fresh[0] / fresh[5], rtol=1e-3)
        assert float(state.stats.tasks) == pytest.approx(1)
        assert 3 <= float(info.sweeps) <= config.max_iter


def test_the_statistics_of_the_start_count_as_one_step_before():
    """No mini-batch replaces what the start was learned from."""
    first, _ = step(start_state(), a_batch(), CONFIG)
    begun = replace(init(first.themes, first.shift, first.Psi0), stats=first.stats)
    after, info = step(begun, a_batch(7), CONFIG)
    alone, _ = step(init(first.themes, first.shift, first.Psi0), a_batch(7), CONFIG)
    rho = (CONFIG.tau0 + 1) ** -CONFIG.tau1
    assert float(info.rho) == pytest.approx(rho)
    for blended, old, new in zip(
        averages(after.stats), averages(first.stats), averages(alone.stats), strict=True
    ):
        np.testing.assert_allclose(blended, (1 - rho) * old + rho * new, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("update", ["statistics", "paper"])
def test_a_mini_batch_without_classes_changes_no_theme(update: str):
    """All classes of its tasks may be held out."""
    config = replace(CONFIG, update=update)
    state, _ = step(start_state(), a_batch(), config)
    batch = a_batch(7)
    empty = replace(
        batch,
        sample_mask=jnp.zeros_like(batch.sample_mask),
        class_mask=jnp.zeros_like(batch.class_mask),
    )
    after, info = step(state, empty, config)
    for was, now in zip(jax.tree.leaves(state.stats), jax.tree.leaves(after.stats), strict=True):
        np.testing.assert_allclose(now, was, rtol=1e-6)
    for was, now in zip(jax.tree.leaves(state.themes), jax.tree.leaves(after.themes), strict=True):
        np.testing.assert_allclose(now, was, rtol=1e-3, atol=1e-4)
    assert np.isfinite([float(info.elbo), float(info.sweeps), *np.asarray(info.usage)]).all()


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
    bound, samples = held_out_bound(themes_at(), batch, CONFIG)
    assert float(samples) == int(batch.sample_mask.sum())
    doubled = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), replace(batch, x=batch.x))
    doubled = replace(doubled, x=batch.x)
    twice, samples_of_two = held_out_bound(themes_at(), doubled, CONFIG)
    assert float(twice) == pytest.approx(2 * float(bound), rel=1e-5)
    assert float(samples_of_two) == 2 * float(samples)


# -- revival ----------------------------------------------------------------------------------


def with_a_dead_theme(where: float) -> FitState:
    """Statistics of two themes, around ``where``; the third explains nothing."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, D)) * [1.0, 3.0] + where
    r = np.zeros((60, K))
    r[:40, 0], r[40:, 1] = 1, 1
    moments = np.einsum("sk,sd,se->kde", r, x, x)
    stats = ThemeStatistics(
        *(jnp.asarray(v, dtype=float) for v in (
            r.sum(0), r.T @ x, moments, [4.0, 6.0],
            [[-5.0, -6.0, -300.0], [-9.0, -7.0, -500.0]], 60.0, 10.0, 3.0,
        ))
    )  # fmt: skip
    state = replace(start_state(), stats=stats, shift=jnp.zeros(D))
    prior = relative_prior(stats, state.Psi0, CONFIG.nu_fraction, CONFIG.kappa)
    return replace(state, themes=m_step(stats, prior, state.themes, state.shift))


@pytest.mark.parametrize("where", [0.0, 30.0])
def test_a_dead_theme_takes_half_of_the_fullest(where: float):
    before = with_a_dead_theme(where)
    after = revive(before, jnp.asarray(2), jnp.asarray(0), CONFIG)
    np.testing.assert_allclose(after.stats.N_k, [20, 20, 20])
    np.testing.assert_allclose(after.stats.S1.sum(0), before.stats.S1.sum(0), rtol=1e-5)
    np.testing.assert_allclose(after.stats.S2.sum(0), before.stats.S2.sum(0), rtol=1e-5, atol=1e-2)
    Sigma, was = np.asarray(after.themes.Sigma), np.asarray(before.themes.Sigma[0])
    assert np.linalg.eigvalsh(Sigma).min() > 0.3
    # both keep three quarters of the variance along the split, and all of it across
    assert Sigma[0][1, 1] == pytest.approx(Sigma[2][1, 1], rel=1e-2)
    assert 0.6 < Sigma[0][1, 1] / was[1, 1] < 0.9
    assert Sigma[0][0, 0] == pytest.approx(was[0, 0], rel=0.15)
    gap = np.asarray(after.themes.mu[2] - after.themes.mu[0])
    assert np.linalg.norm(gap) == pytest.approx(np.sqrt(np.linalg.eigvalsh(was)[-1]), rel=1e-3)
    np.testing.assert_allclose(after.stats.E_log_theta_sum[:, 2], after.stats.E_log_theta_sum[:, 0])
    assert np.isfinite(after.themes.alpha).all()
    assert (np.asarray(after.themes.alpha) > 0).all()


def test_a_revived_theme_is_used():
    state = with_a_dead_theme(0.0)
    batch = a_batch()
    dead = replace(state, themes=replace(state.themes, mu=state.themes.mu.at[2].add(1e3)))
    _, output = step(dead, batch, CONFIG)
    assert float(output.usage[2]) < 1e-6
    _, output = step(revive(dead, jnp.asarray(2), jnp.asarray(0), CONFIG), batch, CONFIG)
    assert float(output.usage[2]) > 0.05


# -- flaws --------------------------------------------------------------------------------------


def twice_the_same() -> FitState:
    """A state after a step, whose two task-themes are the same to the last bit."""
    state, _ = step(start_state(), a_batch(), CONFIG)
    stats, themes = state.stats, state.themes
    return replace(
        state,
        stats=replace(
            stats,
            w=jnp.full(L, stats.w.mean()),
            E_log_theta_sum=jnp.stack([stats.E_log_theta_sum.mean(0)] * L),
        ),
        themes=replace(
            themes, alpha=jnp.stack([themes.alpha[0]] * L), delta=jnp.full(L, 0.5, themes.mu.dtype)
        ),
    )


def test_duplicates_are_pairs_of_nearly_equal_rows():
    alpha = np.array([[1.0, 2.0, 0.1], [3.0, 2.0, 0.1], [1.01, 2.02, 0.099], [1.0, 2.0, 0.11]])
    assert duplicates(alpha).tolist() == [[0, 2]]
    assert duplicates(alpha[:2]).shape == (0, 2)
    assert duplicates(np.ones((3, 2))).tolist() == [[0, 1], [0, 2], [1, 2]]


def test_a_theme_is_dead_when_it_explains_next_to_nothing():
    assert dead_themes(np.array([50.0, 49.0, 0.6, 0.7]), 100.0).tolist() == []
    assert dead_themes(np.array([50.0, 49.5, 0.4, 0.6]), 100.0).tolist() == [2]
    assert dead_themes(np.array([0.0, 1.0]), 1.0).tolist() == [0]


def test_equal_task_themes_are_parted_and_stay_apart():
    """Left alone they would be equal for ever."""
    equal = twice_the_same()
    assert flaws(equal) == 1
    left = equal
    for seed in range(3):
        left, _ = step(left, a_batch(seed), CONFIG)
    assert duplicates(np.asarray(left.themes.alpha)).tolist() == [[0, 1]]
    fixed, n = repair(equal, CONFIG)
    assert n == 1
    assert float(fixed.stats.w.sum()) == pytest.approx(float(equal.stats.w.sum()), rel=1e-5)
    for seed in range(6):
        assert flaws(fixed) == 0
        fixed, _ = step(fixed, a_batch(seed), CONFIG)
    gap = np.abs(np.diff(np.log(np.asarray(fixed.themes.alpha)), axis=0)).max()
    assert gap > 0.2
    assert np.isfinite(np.asarray(fixed.themes.alpha)).all()


def test_a_dead_task_theme_takes_half_of_the_fullest_and_gains_classes():
    state, _ = step(start_state(), a_batch(), CONFIG)
    stats = state.stats
    dead = replace(
        state,
        stats=replace(
            stats,
            w=jnp.stack([stats.w.sum(), jnp.zeros(())]),
            E_log_theta_sum=jnp.stack([stats.E_log_theta_sum.sum(0), jnp.zeros(K)]),
        ),
    )
    dead = replace(
        dead, themes=replace(dead.themes, alpha=dead.themes.alpha.at[1].set(jnp.full(K, 1e3)))
    )
    assert flaws(dead) == 1
    parted = split(dead, jnp.asarray(1), jnp.asarray(0), CONFIG)
    np.testing.assert_allclose(parted.stats.w, stats.w.sum() / 2, rtol=1e-6)
    # each half expects less of the image-themes of the other, and the same of its own
    change = np.asarray(parted.stats.E_log_theta_sum - dead.stats.E_log_theta_sum[0] / 2)
    lowered = -np.log(2) * float(parted.stats.w[0])
    assert np.isclose(change, 0, atol=1e-4).sum() == K
    assert np.isclose(change, lowered, rtol=1e-4).sum() == K
    np.testing.assert_allclose(change.sum(0), lowered, rtol=1e-4)
    fixed, n = repair(dead, CONFIG)
    assert n == 1
    np.testing.assert_allclose(fixed.themes.alpha, parted.themes.alpha, rtol=1e-5)
    after, _ = step(replace(fixed, stats=init(fixed.themes, fixed.shift, fixed.Psi0).stats),
                    a_batch(), CONFIG)  # fmt: skip
    assert float(after.stats.w.min()) > 0.1 * float(after.stats.w.sum())
    assert flaws(after) == 0


def test_a_sound_state_is_not_repaired():
    state, _ = step(start_state(), a_batch(), CONFIG)
    same, n = repair(state, CONFIG)
    assert (n, flaws(state)) == (0, 0)
    assert same is state
