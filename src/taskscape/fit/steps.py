"""One step of a fit, compiled: E-step over a mini-batch, statistics, M-step."""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from jax.tree_util import register_dataclass
from jaxtyping import Array, Float, Int

from taskscape.fit.config import FitConfig
from taskscape.fit.data import FitBatch
from taskscape.model import (
    TaskPosterior,
    Themes,
    ThemeStatistics,
    blend,
    collapsed_elbo,
    e_step,
    log_likelihood,
    m_step,
    mean_local_themes,
    paper_step,
    relative_prior,
    statistics,
    step_size,
    update_r,
    whiten,
    zero_statistics,
)

__all__ = ["FitState", "StepInfo", "batch_part", "held_out_bound", "init", "revive", "step"]

HELD_OUT_TOL = 1e-4
"""The held-out bound is compared between looks, so its E-steps go further than the fit's."""


@register_dataclass
@dataclass(frozen=True, eq=False)
class FitState:
    """What a fit carries from one step to the next, and all that a checkpoint must hold."""

    themes: Themes
    stats: ThemeStatistics
    """Running average over tasks (online), or the sums of the last pass (batch)."""
    t: Int[Array, ""]
    """Updates done."""
    shift: Float[Array, " D"]
    Psi0: Float[Array, " D"]
    best: Themes
    """The themes with the highest held-out bound so far."""
    best_bound: Float[Array, ""]
    stale: Int[Array, ""]
    """Looks at the held-out bound since it last rose."""


@register_dataclass
@dataclass(frozen=True, eq=False)
class StepInfo:
    """What a step tells about itself."""

    elbo: Float[Array, ""]
    """Nats per sample of the mini-batch, before the update."""
    usage: Float[Array, " K"]
    """Share of the samples that each image-theme explains."""
    sweeps: Float[Array, ""]
    """Mean number of sweeps that the tasks' E-steps took."""
    rho: Float[Array, ""]


def init(themes: Themes, shift: Float[Array, " D"], Psi0: Float[Array, " D"]) -> FitState:
    """The state of a fit about to start from these themes."""
    return FitState(
        themes=themes,
        stats=zero_statistics(themes.K, themes.L, themes.D, themes.covariance, themes.mu.dtype),
        t=jnp.zeros((), jnp.int32),
        shift=shift,
        Psi0=Psi0,
        best=themes,
        best_bound=jnp.asarray(-jnp.inf, themes.mu.dtype),
        stale=jnp.zeros((), jnp.int32),
    )


@partial(jax.jit, static_argnames="config")
def step(state: FitState, batch: FitBatch, config: FitConfig) -> tuple[FitState, StepInfo]:
    """One mini-batch of the online fit.

    Paper: alg:online_ldcc, one turn of the outer loop, over a mini-batch.
    Differs from the paper: by default statistics are averaged and the M-step solved;
    ``update="paper"`` follows eq:online_update to the letter.
    """
    themes = state.themes
    log_lik, posterior, sweeps = _infer(themes, batch, config.tol, config.max_iter, None)
    r = update_r(log_lik, posterior.gamma, batch.sample_mask & batch.class_mask[..., None])
    fresh = _sum_statistics(state, batch, r, posterior)
    fresh = fresh * (1 / fresh.tasks)
    rho = jnp.where(state.t == 0, 1.0, step_size(state.t, config.tau0, config.tau1))
    rho = jnp.asarray(rho, themes.mu.dtype)
    stats = blend(state.stats, fresh, rho)
    if config.update == "paper":
        local = mean_local_themes(batch.x[batch.index], r, posterior, batch.class_mask, themes)
        rho = jnp.asarray(step_size(state.t + 1, config.tau0, config.tau1), themes.mu.dtype)
        moved = paper_step(themes, local, rho)
    else:
        prior = relative_prior(stats, state.Psi0, config.nu_fraction, config.kappa)
        moved = m_step(stats, prior, themes, state.shift)
    bound = _bound(posterior, log_lik, batch, themes).sum() / batch.sample_mask.sum()
    info = StepInfo(bound, fresh.N_k / fresh.samples, sweeps, rho)
    return replace(state, themes=moved, stats=stats, t=state.t + 1), info


@partial(jax.jit, static_argnames="config")
def batch_part(
    state: FitState, batch: FitBatch, start: TaskPosterior, config: FitConfig
) -> tuple[ThemeStatistics, TaskPosterior, Float[Array, ""]]:
    """Part of a full pass: statistics, the posteriors to start from next time, and the bound."""
    log_lik, posterior, _ = _infer(state.themes, batch, config.tol, config.max_iter, start)
    r = update_r(log_lik, posterior.gamma, batch.sample_mask & batch.class_mask[..., None])
    stats = _sum_statistics(state, batch, r, posterior)
    return stats, posterior, _bound(posterior, log_lik, batch, state.themes).sum()


@partial(jax.jit, static_argnames="max_iter")
def held_out_bound(
    themes: Themes, batch: FitBatch, tol: float = HELD_OUT_TOL, max_iter: int = 100
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The bound of these tasks and the number of their samples, both summed."""
    log_lik, posterior, _ = _infer(themes, batch, tol, max_iter, None)
    real = batch.sample_mask & batch.class_mask[..., None]
    return _bound(posterior, log_lik, batch, themes).sum(), real.sum(dtype=log_lik.dtype)


@partial(jax.jit, static_argnames="config")
def revive(
    state: FitState, dead: Int[Array, ""], full: Int[Array, ""], config: FitConfig
) -> FitState:
    """Give a dead image-theme half of the fullest one, split across its widest direction.

    The counts and moments of the full theme are halved, the two means moved half a standard
    deviation each way, and E[ln θ] of both lowered by ln 2, as if θ had been shared between them.
    The moments of the two add up to those of the one, so both covariances lose what the means
    gained, a quarter of the largest variance, and stay positive.
    """
    stats, themes = state.stats, state.themes
    N, S1 = stats.N_k[full] / 2, stats.S1[full] / 2
    nudge = 0.5 * N * _widest(themes, full)
    S2 = stats.S2
    if stats.covariance != "tied":
        half, offset = S2[full] / 2, S1 / jnp.where(N > 0, N, 1)
        if stats.covariance == "diag":
            turn = 2 * nudge * offset
        else:
            turn = jnp.outer(nudge, offset) + jnp.outer(offset, nudge)
        S2 = S2.at[full].set(half - turn).at[dead].set(half + turn)
    halved = stats.E_log_theta_sum[:, full] - jnp.log(2.0).astype(N.dtype) * stats.w
    split = replace(
        stats,
        N_k=stats.N_k.at[full].set(N).at[dead].set(N),
        S1=stats.S1.at[full].set(S1 - nudge).at[dead].set(S1 + nudge),
        S2=S2,
        E_log_theta_sum=stats.E_log_theta_sum.at[:, full].set(halved).at[:, dead].set(halved),
    )
    prior = relative_prior(split, state.Psi0, config.nu_fraction, config.kappa)
    return replace(state, stats=split, themes=m_step(split, prior, themes, state.shift))


def _infer(
    themes: Themes, batch: FitBatch, tol: float, max_iter: int, start: TaskPosterior | None
) -> tuple[Float[Array, "M C N K"], TaskPosterior, Float[Array, ""]]:
    log_lik = log_likelihood(batch.x, whiten(themes))[batch.index]
    inferred = e_step(
        log_lik, batch.sample_mask, batch.class_mask, themes.alpha, themes.delta,
        tol, max_iter, start,
    )  # fmt: skip
    sweeps = inferred.iterations.mean(where=batch.class_mask.any(-1))
    return log_lik, inferred.posterior, sweeps


def _sum_statistics(
    state: FitState, batch: FitBatch, r: Float[Array, "M C N K"], posterior: TaskPosterior
) -> ThemeStatistics:
    K = r.shape[-1]
    r_of_sample = (
        jnp.zeros((batch.x.shape[0], K), r.dtype).at[batch.index.reshape(-1)].add(r.reshape(-1, K))
    )
    return statistics(
        batch.x, r_of_sample, posterior, batch.class_mask, state.shift, state.themes.covariance
    )


def _bound(
    posterior: TaskPosterior, log_lik: Float[Array, "M C N K"], batch: FitBatch, themes: Themes
) -> Float[Array, " M"]:
    total = collapsed_elbo(
        posterior, log_lik, batch.sample_mask, batch.class_mask, themes.alpha, themes.delta
    )
    return jnp.where(batch.class_mask.any(-1), total, 0)


def _widest(themes: Themes, k: Int[Array, ""]) -> Float[Array, " D"]:
    """The direction of largest variance of a theme, one standard deviation long."""
    if themes.covariance == "diag":
        variances = themes.Sigma[k]
        widest = jnp.argmax(variances)
        return jnp.zeros_like(variances).at[widest].set(jnp.sqrt(variances[widest]))
    Sigma = themes.Sigma[k] if themes.covariance == "full" else themes.Sigma
    variance, direction = jnp.linalg.eigh(Sigma)
    return jnp.sqrt(jnp.maximum(variance[-1], 0)) * direction[:, -1]
