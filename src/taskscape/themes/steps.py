"""One step of a fit, compiled: E-step over a mini-batch, statistics, M-step."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jaxtyping import Array, Bool, Float, Int

from taskscape.compiling import compiled, keep_programs
from taskscape.distributed.mesh import SAME, SPLIT, on_each_device, sum_over_devices
from taskscape.io.arrays import get_array, tree_from
from taskscape.model import (
    ConditionalPosterior,
    LocalThemes,
    TaskPosterior,
    Themes,
    ThemeStatistics,
    blend,
    cold_start_given_theme,
    collapsed_elbo,
    e_step,
    infer,
    log_likelihood,
    m_step,
    mean_local_themes,
    paper_step,
    relative_prior,
    responsibilities,
    statistics,
    step_size,
    update_eta_given_evidence,
    update_r,
    whiten,
    zero_statistics,
)
from taskscape.model.params import Count, Scalar
from taskscape.themes.data import FitBatch
from taskscape.themes.embed import Fits, Posteriors, settle_classes, settle_tasks
from taskscape.themes.side_by_side import on_cpu

HELD_OUT_TOL = 3e-5
"""The held-out bound is compared between looks, so its E-steps go further than the fit's."""
_LAM_PER_SHARE = 3.0
"""The paper's E-step watches the mean change of λ instead."""

keep_programs()


@register_dataclass
@dataclass(frozen=True, eq=False)
class StepSettings:
    """What a compiled step needs of the settings: other numbers need no other program."""

    tol: Scalar
    max_iter: Count
    tau0: Scalar
    tau1: Scalar
    nu_fraction: Scalar
    kappa: Scalar
    update: str = field(metadata={"static": True})


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
    """The themes with the fewest flaws so far and, among these, the highest held-out bound."""
    best_bound: Float[Array, ""]
    best_flaws: Int[Array, ""]
    """Dead and duplicate themes among the best."""
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
        stats=zero_statistics(themes.K, themes.L, themes.D, themes.mu.dtype),
        t=jnp.zeros((), jnp.int32),
        shift=shift,
        Psi0=Psi0,
        best=themes,
        best_bound=jnp.asarray(-jnp.inf, themes.mu.dtype),
        best_flaws=jnp.asarray(themes.K + themes.L, jnp.int32),
        stale=jnp.zeros((), jnp.int32),
    )


def step(state: FitState, batch: FitBatch, settings: StepSettings) -> tuple[FitState, StepInfo]:
    """One mini-batch of the online fit.

    Paper: alg:online_ldcc, one turn of the outer loop, over a mini-batch.
    Differs from the paper: by default statistics are averaged, beginning with those of the start,
    and the M-step solved; ``update="paper"`` follows eq:online_update to the letter.
    """
    return _learn(state, batch, _infer(state.themes, batch, settings), settings)


@jax.jit
def _learn(
    state: FitState, batch: FitBatch, inferred: "_Inferred", settings: StepSettings
) -> tuple[FitState, StepInfo]:
    themes = state.themes
    sums = _sums(state, batch, inferred, settings)
    nothing_new = sums.stats.tasks == 0  # all of its classes may be held out
    fresh = sums.stats * (1 / jnp.maximum(sums.stats.tasks, 1))
    nothing_before = state.stats.samples == 0
    rho = jnp.where(nothing_before, 1.0, step_size(state.t + 1, settings.tau0, settings.tau1))
    stats = blend(state.stats, fresh, rho.astype(themes.mu.dtype))
    if settings.update == "paper":
        assert sums.local is not None
        rho = jnp.asarray(step_size(state.t + 1, settings.tau0, settings.tau1))
        moved = paper_step(themes, sums.local, rho)
    else:
        moved = maximise(state, stats, settings)
    moved, stats = jax.tree.map(
        lambda old, new: jnp.where(nothing_new, old, new), (themes, state.stats), (moved, stats)
    )
    info = StepInfo(
        elbo=sums.bound / jnp.maximum(sums.samples, 1),
        usage=fresh.N_k / jnp.where(nothing_new, 1, fresh.samples),
        sweeps=sums.sweeps / jnp.maximum(sums.stats.tasks, 1),
        rho=jnp.asarray(rho, themes.mu.dtype),
    )
    return replace(state, themes=moved, stats=stats, t=state.t + 1), info


@jax.jit
def maximise(state: FitState, stats: ThemeStatistics, settings: StepSettings) -> Themes:
    """The M-step, with priors relative to the statistics."""
    prior = relative_prior(stats, state.Psi0, settings.nu_fraction, settings.kappa)
    return m_step(stats, prior, state.themes, state.shift)


def batch_part(
    state: FitState, batch: FitBatch, start: ConditionalPosterior | None, settings: StepSettings
) -> tuple[ThemeStatistics, ConditionalPosterior, Float[Array, ""]]:
    """Part of a full pass: statistics, the posteriors to start from next time, and the bound.

    Without a ``start``, tasks begin as those that were not seen before.
    """
    inferred = _infer(state.themes, batch, settings, start)
    assert isinstance(inferred.posterior, ConditionalPosterior)
    sums = _sums(state, batch, inferred, settings)
    return sums.stats, inferred.posterior, sums.bound


def held_out_bound(
    themes: Themes, batch: FitBatch, settings: StepSettings
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The bound of these tasks and the number of their samples, both summed."""
    finer = replace(settings, tol=min(settings.tol, HELD_OUT_TOL), max_iter=2 * settings.max_iter)
    return _bound_and_samples(batch, _infer(themes, batch, finer).bound)


@jax.jit
def _bound_and_samples(
    batch: FitBatch, bound: Float[Array, " M"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    real = batch.sample_mask & batch.class_mask[..., None]
    return bound.sum(), real.sum(dtype=bound.dtype)


@register_dataclass
@dataclass(frozen=True, eq=False)
class _Inferred:
    """What the E-step says of the tasks of a mini-batch."""

    posterior: TaskPosterior | ConditionalPosterior
    r: Float[Array, "M C N K"]
    bound: Float[Array, " M"]
    sweeps: Int[Array, " M"]


def _infer(
    themes: Themes,
    batch: FitBatch,
    settings: StepSettings,
    start: ConditionalPosterior | None = None,
) -> _Inferred:
    """The E-step; a program of its own, so that mini-batches and held-out tasks share it.

    On a CPU by the programs that embed tasks: what still moves continues by itself.
    """
    if batch.mesh is not None:
        return _infer_on_each_device(themes, batch, settings, start)
    if not on_cpu() or settings.update == "paper":
        given = _given(themes, batch, _log_lik(themes, batch))
        if start is None and settings.update != "paper":
            start = _cold(*given)
        return _infer_from(*given, settings, start)
    table = np.asarray(_log_lik_of_samples(themes, batch.x))
    class_mask = np.asarray(batch.class_mask).T
    C, M = class_mask.shape
    real = np.asarray(batch.sample_mask).T & class_mask
    index = np.asarray(batch.index).T
    gamma: tuple[np.ndarray, ...] = ()
    lam: tuple[np.ndarray, ...] = ()
    if start is not None:
        own = np.asarray(start.gamma)
        gamma = (own.transpose(2, 3, 1, 0).reshape(*own.shape[2:], -1),)
        lam = (np.asarray(start.lam).T,)
    problems = (index.reshape(len(index), -1), real.reshape(len(real), -1), *gamma)
    fits = settle_classes(table.__getitem__, problems, themes, settings.tol, settings.max_iter)
    fits = jax.tree.map(lambda x: np.asarray(x).reshape(*x.shape[:-1], C, M), fits)
    posteriors = settle_tasks((class_mask, fits._replace(gamma=None), *lam), themes)
    return _in_tasks(table[index], real, class_mask, fits, posteriors)


@compiled
def _in_tasks(
    log_lik: Float[Array, "N C M K"],
    real: Bool[Array, "N C M"],
    class_mask: Bool[Array, "C M"],
    fits: Fits,
    posteriors: Posteriors,
) -> _Inferred:
    """Tasks first, with what each sample is."""
    assert fits.gamma is not None
    eta, _ = update_eta_given_evidence(fits.evidence, posteriors.lam, class_mask)
    posterior = ConditionalPosterior(
        lam=posteriors.lam.T, eta=eta.transpose(2, 1, 0), gamma=fits.gamma.transpose(3, 2, 0, 1)
    )
    masks = real.T
    samples = jnp.where(class_mask, fits.samples, 0).sum(0)
    r = responsibilities(posterior, log_lik.transpose(2, 1, 0, 3), masks)
    return _Inferred(posterior, r, posteriors.elbo * jnp.maximum(samples, 1), posteriors.sweeps)


@jax.jit
def _log_lik_of_samples(themes: Themes, x: Float[Array, "U D"]) -> Float[Array, "U K"]:
    return log_likelihood(x, whiten(themes.mu, themes.Sigma))


@compiled
def _infer_on_each_device(
    themes: Themes, batch: FitBatch, settings: StepSettings, start: ConditionalPosterior | None
) -> _Inferred:
    """The same for tasks that are split over devices: no device waits for another."""

    def of_share(
        themes: Themes, batch: FitBatch, settings: StepSettings, start: ConditionalPosterior | None
    ) -> _Inferred:
        log_lik = log_likelihood(batch.x, whiten(themes.mu, themes.Sigma))[batch.index]
        given = _given(themes, batch, log_lik)
        if start is None and settings.update != "paper":
            start = cold_start_given_theme(*given)
        return _inferred(*given, settings, start)

    assert batch.mesh is not None
    of_all = on_each_device(of_share, batch.mesh, (SAME, SPLIT, SAME, SPLIT), SPLIT)
    return of_all(themes, batch, settings, start)


@jax.jit
def _log_lik(themes: Themes, batch: FitBatch) -> Float[Array, "M C N K"]:
    return log_likelihood(batch.x, whiten(themes.mu, themes.Sigma))[batch.index]


def _given(
    themes: Themes, batch: FitBatch, log_lik: Float[Array, "M C N K"]
) -> tuple[Array, Array, Array, Array, Array]:
    """What an E-step is given, in the order of its arguments."""
    return log_lik, batch.sample_mask, batch.class_mask, themes.alpha, themes.delta


_cold = compiled(cold_start_given_theme)


def _inferred(
    log_lik: Float[Array, "M C N K"],
    sample_mask: Bool[Array, "M C N"],
    class_mask: Bool[Array, "M C"],
    alpha: Float[Array, "L K"],
    delta: Float[Array, " L"],
    settings: StepSettings,
    start: ConditionalPosterior | None,
) -> _Inferred:
    real = sample_mask & class_mask[..., None]
    given = (log_lik, sample_mask, class_mask, alpha, delta)
    posterior: TaskPosterior | ConditionalPosterior
    if settings.update == "paper":
        state = e_step(*given, _LAM_PER_SHARE * settings.tol, settings.max_iter)
        posterior, sweeps = state.posterior, state.sweeps
        bound = collapsed_elbo(posterior, *given)
        r = update_r(log_lik, posterior.gamma, real)
    else:
        posterior, bound, sweeps = infer(*given, settings.tol, settings.max_iter, start)
        r = responsibilities(posterior, log_lik, real)
    has_classes = class_mask.any(-1)
    return _Inferred(
        posterior, r, jnp.where(has_classes, bound, 0), jnp.where(has_classes, sweeps, 0)
    )


_infer_from = compiled(_inferred)


@register_dataclass
@dataclass(frozen=True, eq=False)
class _Sums:
    """What is summed over the tasks of a mini-batch."""

    stats: ThemeStatistics
    bound: Float[Array, ""]
    samples: Float[Array, ""]
    sweeps: Float[Array, ""]
    local: LocalThemes | None
    """For the paper's update alone: an average over the tasks."""


@jax.jit
def _sums(state: FitState, batch: FitBatch, inferred: _Inferred, settings: StepSettings) -> _Sums:
    """One collective, where tasks are split over devices."""
    if batch.mesh is None:
        return _sums_of_share(state, batch, inferred, settings)

    def of_all(*share: Any) -> _Sums:
        own = _sums_of_share(*share)
        own = replace(own, local=jax.tree.map(lambda mean: own.stats.tasks * mean, own.local))
        sums = sum_over_devices(own)
        tasks = jnp.maximum(sums.stats.tasks, 1)
        return replace(sums, local=jax.tree.map(lambda total: total / tasks, sums.local))

    summed = on_each_device(of_all, batch.mesh, (SAME, SPLIT, SPLIT, SAME), SAME)
    return summed(state, batch, inferred, settings)


def _sums_of_share(
    state: FitState, batch: FitBatch, inferred: _Inferred, settings: StepSettings
) -> _Sums:
    r, posterior, local = inferred.r, inferred.posterior, None
    K = r.shape[-1]
    r_of_sample = (
        jnp.zeros((batch.x.shape[0], K), r.dtype).at[batch.index.reshape(-1)].add(r.reshape(-1, K))
    )
    if settings.update == "paper":
        assert isinstance(posterior, TaskPosterior)
        x = batch.x[batch.index]
        local = mean_local_themes(x, r, posterior, batch.class_mask, state.themes)
    return _Sums(
        stats=statistics(batch.x, r_of_sample, posterior, batch.class_mask, state.shift),
        bound=inferred.bound.sum(),
        samples=batch.sample_mask.sum(dtype=r.dtype),
        sweeps=inferred.sweeps.sum(dtype=r.dtype),
        local=local,
    )


# -- from disk ----------------------------------------------------------------------------------


def state_from_arrays(arrays: Mapping[str, np.ndarray], prefix: str) -> FitState:
    """The state of a fit that :func:`taskscape.io.arrays.arrays_of` took apart."""
    L, K = get_array(arrays, f"{prefix}.themes.alpha", axes=2).shape
    (D,) = get_array(arrays, f"{prefix}.shift", axes=1).shape
    themes = Themes(
        mu=jnp.zeros((K, D)),
        Sigma=jnp.zeros((K, D, D)),
        alpha=jnp.ones((L, K)),
        delta=jnp.ones(L),
    )
    return tree_from(arrays, init(themes, jnp.zeros(D), jnp.zeros(D)), prefix)


def posterior_from_arrays(
    arrays: Mapping[str, np.ndarray], prefix: str
) -> ConditionalPosterior | None:
    """Posteriors of tasks, if there are any."""
    if f"{prefix}.lam" not in arrays:
        return None
    names = ("lam", "eta", "gamma")
    return ConditionalPosterior(
        **{name: jnp.asarray(get_array(arrays, f"{prefix}.{name}")) for name in names}
    )
