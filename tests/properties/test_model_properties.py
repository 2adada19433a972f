"""What must hold for any tasks and themes, whatever their values."""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.tree_util import register_dataclass

from taskscape.model import (
    TaskPosterior,
    ThemePrior,
    Themes,
    cold_start,
    e_step,
    elbo,
    expected_log,
    kl_divergence,
    log_beta,
    log_likelihood,
    m_step,
    penalised_bound,
    relative_prior,
    solve_alpha,
    task_statistics,
    update_r,
    whiten,
)

M, C, N, K, L, D = 4, 3, 5, 3, 2, 3
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=12, deadline=None)


@register_dataclass
@dataclass(frozen=True)
class Tasks:
    """Samples and what is real among them."""

    x: jax.Array
    sample_mask: jax.Array
    class_mask: jax.Array


@register_dataclass
@dataclass(frozen=True)
class Pass:
    """What one pass over all tasks gives."""

    posterior: TaskPosterior
    r: jax.Array
    bound: jax.Array
    penalised: jax.Array
    themes: Themes


def random_tasks(seed: int, dtype: str = "float32") -> Tasks:
    """Overlapping clusters; some classes and samples are padding, no task is empty."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(6, D)) * 2
    x = centres[rng.integers(6, size=(M, C, N))] + rng.normal(size=(M, C, N, D))
    class_mask = rng.random((M, C)) < 0.8
    class_mask[:, 0] = True
    sample_mask = (rng.random((M, C, N)) < 0.8) & class_mask[..., None]
    return Tasks(jnp.asarray(x, dtype), jnp.asarray(sample_mask), jnp.asarray(class_mask))


def random_themes(seed: int, dtype: str = "float32") -> Themes:
    """Themes in generic position."""
    rng = np.random.default_rng(seed + 1)
    roots = rng.normal(size=(K, D, D))
    Sigma = roots @ roots.transpose(0, 2, 1) / D + 0.5 * np.eye(D)
    return Themes(
        mu=jnp.asarray(rng.normal(size=(K, D)) * 2, dtype),
        Sigma=jnp.asarray(Sigma, dtype),
        alpha=jnp.asarray(rng.gamma(1.0, 1.0, (L, K)) + 0.1, dtype),
        delta=jnp.asarray(rng.gamma(1.0, 0.5, L) + 0.1, dtype),
    )


@partial(jax.jit, static_argnames=("sweeps", "tol"))
def one_pass(
    tasks: Tasks,
    themes: Themes,
    start: TaskPosterior,
    Psi0: jax.Array,
    shift: jax.Array,
    sweeps: int = 60,
    tol: float = 1e-6,
) -> Pass:
    """A warm-started E-step over all tasks, the bound there, and the M-step."""
    masks, concentrations = (tasks.sample_mask, tasks.class_mask), (themes.alpha, themes.delta)
    log_lik = log_likelihood(tasks.x, whiten(themes.mu, themes.Sigma))
    posterior = e_step(
        log_lik, *masks, *concentrations, tol=tol, max_iter=sweeps, start=start
    ).posterior
    bound = elbo(posterior, log_lik, *masks, *concentrations).total
    stats = task_statistics(tasks.x, posterior, log_lik, *masks, shift)
    prior = relative_prior(stats, Psi0, nu_fraction=0.05, kappa=0.05)
    return Pass(
        posterior=posterior,
        r=update_r(log_lik, posterior.gamma, tasks.sample_mask),
        bound=bound,
        penalised=penalised_bound(bound.sum(), themes, prior),
        themes=m_step(stats, prior, themes, shift),
    )


@jax.jit
def compiled_log_likelihood(x: jax.Array, themes: Themes) -> jax.Array:
    """Log-likelihoods under themes that are not factored yet."""
    return log_likelihood(x, whiten(themes.mu, themes.Sigma))


def run(tasks: Tasks, themes: Themes, scale: float = 1.0, shift: float = 0.0) -> Pass:
    """One pass from cold, with priors and shift in the units of the samples."""
    start = cold_start(tasks.sample_mask, tasks.class_mask, themes.alpha, themes.delta)
    Psi0 = jnp.full(D, scale**2, tasks.x.dtype)
    return one_pass(tasks, themes, start, Psi0, jnp.full(D, shift, tasks.x.dtype))


def assert_close(actual: jax.Array, expected: jax.Array, tolerance: float = 2e-3) -> None:
    """Equal up to float32 rounding, amplified by an E-step that stops at a tolerance."""
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@few
@given(seeds)
def test_posteriors_are_distributions(seed: int) -> None:
    tasks, themes = random_tasks(seed), random_themes(seed)
    result = run(tasks, themes)
    np.testing.assert_allclose(result.r.sum(-1), tasks.sample_mask, atol=1e-5)
    np.testing.assert_allclose(result.posterior.eta.sum(-1), tasks.class_mask, atol=1e-5)
    assert (result.posterior.lam >= themes.delta).all()
    assert (result.posterior.gamma > 0).all()
    total = themes.delta.sum() + tasks.class_mask.sum(-1)
    np.testing.assert_allclose(result.posterior.lam.sum(-1), total, rtol=1e-5)
    assert (result.themes.alpha > 0).all()
    assert (jnp.linalg.eigvalsh(result.themes.Sigma) > 0).all()


@few
@given(seeds)
def test_relabelling_image_themes_relabels_the_result(seed: int) -> None:
    tasks, themes = random_tasks(seed), random_themes(seed)
    order = np.random.default_rng(seed).permutation(K)
    relabelled = replace(
        themes, mu=themes.mu[order], Sigma=themes.Sigma[order], alpha=themes.alpha[:, order]
    )
    plain, other = run(tasks, themes), run(tasks, relabelled)
    assert_close(other.posterior.lam, plain.posterior.lam)
    assert_close(other.posterior.gamma, plain.posterior.gamma[..., order])
    assert_close(other.themes.mu, plain.themes.mu[order])
    assert_close(other.bound, plain.bound)


@few
@given(seeds)
def test_relabelling_task_themes_and_classes_relabels_the_result(seed: int) -> None:
    tasks, themes = random_tasks(seed), random_themes(seed)
    rng = np.random.default_rng(seed)
    rows, classes, samples = rng.permutation(L), rng.permutation(C), rng.permutation(N)
    plain = run(tasks, themes)
    relabelled = replace(themes, alpha=themes.alpha[rows], delta=themes.delta[rows])
    shuffled = Tasks(
        x=tasks.x[:, classes][:, :, samples],
        sample_mask=tasks.sample_mask[:, classes][:, :, samples],
        class_mask=tasks.class_mask[:, classes],
    )
    other = run(shuffled, relabelled)
    assert_close(other.posterior.lam, plain.posterior.lam[:, rows])
    assert_close(other.posterior.eta, plain.posterior.eta[:, classes][..., rows])
    assert_close(other.themes.alpha, plain.themes.alpha[rows], 2e-2)
    assert_close(other.themes.Sigma, plain.themes.Sigma)


@few
@given(seeds, st.sampled_from([jnp.nan, jnp.inf, 1e6]))
def test_padding_changes_nothing(seed: int, filler: float) -> None:
    tasks, themes = random_tasks(seed), random_themes(seed)
    filled = replace(tasks, x=jnp.where(tasks.sample_mask[..., None], tasks.x, filler))
    plain, other = run(tasks, themes), run(filled, themes)
    for leaf, same in zip(jax.tree.leaves(plain), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(leaf, same)


def test_more_padding_changes_nothing() -> None:
    tasks, themes = random_tasks(5), random_themes(5)
    padded = Tasks(
        x=jnp.pad(tasks.x, [(0, 2), (0, 1), (0, 3), (0, 0)], constant_values=9.0),
        sample_mask=jnp.pad(tasks.sample_mask, [(0, 2), (0, 1), (0, 3)]),
        class_mask=jnp.pad(tasks.class_mask, [(0, 2), (0, 1)]),
    )
    plain, other = run(tasks, themes), run(padded, themes)
    assert_close(other.posterior.lam[:M], plain.posterior.lam, 1e-5)
    assert_close(other.bound[:M], plain.bound, 1e-5)
    np.testing.assert_allclose(other.posterior.lam[M:], jnp.stack([themes.delta] * 2))
    np.testing.assert_allclose(other.bound[M:], 0, atol=1e-6)
    assert_close(other.themes.Sigma, plain.themes.Sigma, 1e-4)
    assert_close(other.themes.alpha, plain.themes.alpha, 1e-3)


@few
@given(seeds, st.floats(0.01, 100.0), st.floats(-50.0, 50.0))
def test_scale_and_shift_of_all_features_change_no_lam(
    seed: int, scale: float, shift: float
) -> None:
    tasks, themes = random_tasks(seed), random_themes(seed)
    moved = replace(tasks, x=scale * (tasks.x + shift))
    moved_themes = replace(themes, mu=scale * (themes.mu + shift), Sigma=scale**2 * themes.Sigma)
    plain, other = run(tasks, themes), run(moved, moved_themes, scale, scale * shift)
    assert_close(other.posterior.lam, plain.posterior.lam)
    assert_close(other.themes.alpha, plain.themes.alpha, 2e-2)
    assert_close(other.themes.mu / scale - shift, plain.themes.mu)
    assert_close(other.themes.Sigma / scale**2, plain.themes.Sigma)


@few
@given(seeds)
def test_result_of_a_task_does_not_depend_on_its_batch(seed: int) -> None:
    tasks, themes = random_tasks(seed), random_themes(seed)
    log_lik = compiled_log_likelihood(tasks.x, themes)
    run_e_step = jax.jit(e_step)
    together = run_e_step(log_lik, tasks.sample_mask, tasks.class_mask, themes.alpha, themes.delta)
    alone = run_e_step(
        log_lik[1], tasks.sample_mask[1], tasks.class_mask[1], themes.alpha, themes.delta
    )
    # Two compilations round differently, which may shift the stop by a sweep.
    assert abs(together.sweeps[1] - alone.sweeps) <= 2
    assert_close(together.posterior.lam[1], alone.posterior.lam, 1e-4)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_penalised_bound_never_falls(dtype: str) -> None:
    """Warm-started passes, with E-steps cut short so that nothing has converged."""
    rounding = 1e-11 if dtype == "float64" else 3e-6
    with jax.enable_x64(dtype == "float64"):
        for seed in range(6):
            tasks = random_tasks(seed, dtype)
            themes = random_themes(seed, dtype)
            masks = (tasks.sample_mask, tasks.class_mask)
            posterior = cold_start(*masks, themes.alpha, themes.delta)
            history = []
            for _ in range(12):
                result = one_pass(
                    tasks,
                    themes,
                    posterior,
                    jnp.ones(D, dtype),
                    jnp.zeros(D, dtype),
                    sweeps=2,
                    tol=0.0,
                )
                posterior, themes = result.posterior, result.themes
                history.append(float(result.penalised))
            rises = np.diff(history)
            assert rises.min() > -rounding * max(map(abs, history))
            assert rises[0] > 0


@few
@given(st.lists(st.floats(0.05, 50.0), min_size=8, max_size=8))
def test_kl_is_a_divergence(values: list[float]) -> None:
    with jax.enable_x64(True):
        a, b = jnp.asarray(values[:4]), jnp.asarray(values[4:])
        assert kl_divergence(a, b) >= -1e-9
        np.testing.assert_allclose(kl_divergence(a, a), 0, atol=1e-9)


@few
@given(seeds)
def test_mean_kl_needs_only_mean_lam_and_mean_log_beta(seed: int) -> None:
    """KL is affine in the second argument's (lam, ln B(lam)), so its mean over tasks is too."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(seed)
        one = jnp.asarray(rng.gamma(1.0, 2.0, L) + 0.1)
        many = jnp.asarray(rng.gamma(1.0, 2.0, (20, L)) + 0.1)
        exact = kl_divergence(jnp.broadcast_to(one, many.shape), many).mean()
        cheap = log_beta(many).mean() - log_beta(one)
        cheap += ((one - many.mean(0)) * expected_log(one)).sum()
        np.testing.assert_allclose(cheap, exact, rtol=1e-9, atol=1e-9)


@few
@given(
    st.lists(st.floats(0.02, 100.0), min_size=K, max_size=K),
    st.floats(1e-4, 1e4),
    st.floats(0.5, 1e6),
)
def test_solve_alpha_inverts_expected_log(values: list[float], start: float, w: float) -> None:
    with jax.enable_x64(True):
        alpha = jnp.asarray([values])
        weights = jnp.asarray([w])
        solved = jax.jit(solve_alpha)(weights, w * expected_log(alpha), jnp.full((1, K), start))
        np.testing.assert_allclose(solved, alpha, rtol=1e-6)


@few
@given(st.floats(0.05, 20.0), st.floats(1e-3, 1e3))
def test_alpha_without_classes_is_the_prior(alpha0: float, pseudo_classes: float) -> None:
    """A task-theme that no class uses goes to the prior's concentration, and no further."""
    tasks, themes = random_tasks(0), random_themes(0)
    nobody = replace(
        tasks,
        sample_mask=jnp.zeros_like(tasks.sample_mask),
        class_mask=jnp.zeros_like(tasks.class_mask),
    )
    start = cold_start(nobody.sample_mask, nobody.class_mask, themes.alpha, themes.delta)
    log_lik = jnp.zeros((M, C, N, K))
    masks = (nobody.sample_mask, nobody.class_mask)
    stats = jax.jit(task_statistics)(nobody.x, start, log_lik, *masks, jnp.zeros(D))
    prior = ThemePrior(
        nu=jnp.asarray(2.0),
        Psi0=jnp.full(D, 0.7),
        pseudo_classes=jnp.asarray(pseudo_classes),
        alpha0=jnp.asarray(alpha0),
    )
    fitted = jax.jit(m_step)(stats, prior, themes, jnp.zeros(D))
    np.testing.assert_allclose(fitted.alpha, alpha0, rtol=1e-3)
    np.testing.assert_allclose(fitted.mu, themes.mu, rtol=1e-6)
    np.testing.assert_allclose(fitted.Sigma, jnp.stack([0.7 * jnp.eye(D)] * K), rtol=1e-6)
