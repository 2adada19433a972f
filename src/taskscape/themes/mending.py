"""Dead and duplicate themes: seen in the statistics, and given half of a full one."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from taskscape.model import Themes
from taskscape.themes.steps import FitState, StepSettings, maximise

DEAD_SHARE = 0.02
"""A theme is dead when it explains less than this part of an even share."""
_ALIKE = 0.05
"""Two task-themes are duplicates when no concentration differs by more than this, relatively."""
_TILT = float(np.log(2.0))


def dead_themes(explained: Float[np.ndarray, "themes"], total: float) -> Int[np.ndarray, "dead"]:
    """Themes that explain next to nothing."""
    return np.flatnonzero(explained < DEAD_SHARE / len(explained) * total)


def duplicates(alpha: Float[np.ndarray, "L K"]) -> Int[np.ndarray, "pairs 2"]:
    """Pairs of task-themes that are the same; equal alpha gives equal eta for ever."""
    log_alpha = np.log(alpha)
    gap = np.abs(log_alpha[:, None] - log_alpha[None]).max(axis=-1)
    return np.argwhere(np.triu(gap < _ALIKE, 1))


def flaws(state: FitState) -> int:
    """The number of dead themes plus the number of pairs of duplicates."""
    stats = state.stats
    return (
        len(dead_themes(np.asarray(stats.N_k), float(stats.samples)))
        + len(dead_themes(np.asarray(stats.w), float(stats.classes)))
        + len(duplicates(np.asarray(state.themes.alpha)))
    )


def mend(state: FitState, settings: StepSettings) -> tuple[FitState, int]:
    """Merge duplicate task-themes, which leaves one of each pair dead, and revive all dead themes.

    Returns the new state and how many themes were revived.
    """
    dead_images = dead_themes(np.asarray(state.stats.N_k), float(state.stats.samples))
    for dead in dead_images:
        full = jnp.argmax(state.stats.N_k)
        state = revive(state, jnp.asarray(int(dead)), full, settings)
    for kept, other in duplicates(np.asarray(state.themes.alpha)):
        state = _merge(state, int(kept), int(other))
    dead_tasks = dead_themes(np.asarray(state.stats.w), float(state.stats.classes))
    for dead in dead_tasks:
        state = split(state, jnp.asarray(int(dead)), jnp.argmax(state.stats.w), settings)
    return state, len(dead_images) + len(dead_tasks)


def _merge(state: FitState, kept: int, other: int) -> FitState:
    def merged(x: Array) -> Array:
        return x.at[kept].add(x[other]).at[other].set(0)

    w, sums = merged(state.stats.w), merged(state.stats.E_log_theta_sum)
    return replace(state, stats=replace(state.stats, w=w, E_log_theta_sum=sums))


@jax.jit
def split(
    state: FitState, dead: Int[Array, ""], full: Int[Array, ""], settings: StepSettings
) -> FitState:
    r"""Give a dead task-theme half of the fullest one, tilted apart.

    The image-themes, in the order of the full theme's concentrations, go by turns to one half and
    to the other; each half expects θ of the other's image-themes to be half as large:

    .. math:: E[\ln\theta_k] \gets E[\ln\theta_k] - \ln 2 \quad
        \text{for } k \text{ of the other half}

    Only lowering keeps what is expected possible for some Dirichlet.
    """
    stats = state.stats
    w, sums = stats.w[full] / 2, stats.E_log_theta_sum[full] / 2
    order = jnp.argsort(-state.themes.alpha[full])
    mine = jnp.zeros(order.shape, bool).at[order[::2]].set(True)
    halves = stats.E_log_theta_sum.at[full].set(sums - jnp.where(mine, 0, _TILT * w))
    halves = halves.at[dead].set(sums - jnp.where(mine, _TILT * w, 0))
    parted = replace(stats, w=stats.w.at[full].set(w).at[dead].set(w), E_log_theta_sum=halves)
    return replace(state, stats=parted, themes=maximise(state, parted, settings))


@jax.jit
def revive(
    state: FitState, dead: Int[Array, ""], full: Int[Array, ""], settings: StepSettings
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
    parted = replace(
        stats,
        N_k=stats.N_k.at[full].set(N).at[dead].set(N),
        S1=stats.S1.at[full].set(S1 - nudge).at[dead].set(S1 + nudge),
        S2=S2,
        E_log_theta_sum=stats.E_log_theta_sum.at[:, full].set(halved).at[:, dead].set(halved),
    )
    return replace(state, stats=parted, themes=maximise(state, parted, settings))


def _widest(themes: Themes, k: Int[Array, ""]) -> Float[Array, " D"]:
    """The direction of largest variance of a theme, one standard deviation long."""
    if themes.covariance == "diag":
        variances = themes.Sigma[k]
        widest = jnp.argmax(variances)
        return jnp.zeros_like(variances).at[widest].set(jnp.sqrt(variances[widest]))
    Sigma = themes.Sigma[k] if themes.covariance == "full" else themes.Sigma
    variance, direction = jnp.linalg.eigh(Sigma)
    return jnp.sqrt(jnp.maximum(variance[-1], 0)) * direction[:, -1]
