"""Is the representation any good? What to look at and to try, and what a fit repairs by itself."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from taskscape.model import Themes
from taskscape.notebook import ShownInNotebooks
from taskscape.themes.steps import FitState, StepSettings, maximise

DEAD_SHARE = 0.02
"""A theme is dead when it explains less than this part of an even share."""
_ALIKE = 0.05
"""Two task-themes are duplicates when no concentration differs by more than this, relatively."""
_TILT = float(np.log(2.0))
_RUNAWAY = 1e3
_COLLAPSED = 10
"""With no more than this many distinct λ, tasks can hardly be told apart."""
_ENOUGH = 100
"""Fewer tasks do not tell on how many points tasks fall."""
_SAME_DIRECTION = 0.01
"""A direction in which λ varies by less, in classes, is none."""
_NEARLY_ALL = 0.9
"""Share of unseen classes in one task-theme above which they are hardly told apart."""
_AGREE = 0.5
"""Rank correlation of distances below which fits do not confirm each other."""


@dataclass(frozen=True, repr=False)
class Health(ShownInNotebooks):
    """How the themes are used, how many points tasks fall on, and advice where needed."""

    image_theme_usage: tuple[float, ...]
    """Share of the samples that each image-theme explains."""
    task_theme_usage: tuple[float, ...]
    """Share of the classes learned from that each task-theme explains."""
    tested_on: str
    """Which tasks the following is about."""
    n_tasks: int
    distinct: int
    """Distinct λ among these tasks, rounded to 0.1."""
    rank: int
    """Directions in which λ of these tasks varies, of L − 1."""
    largest_share: float
    """Share of these tasks' classes in the task-theme that has most of them."""
    duplicates: int
    """Pairs of task-themes that are the same."""
    largest_alpha: float
    """Largest total concentration of a task-theme."""
    agreement: float | None
    """Mean rank correlation, between fits of an ensemble, of the tasks' distances from training."""
    advice: tuple[str, ...]

    def __repr__(self) -> str:
        said = f"{len(self.advice)} remarks, see summary()" if self.advice else "nothing to remark"
        return f"Health({said}; {self.n_tasks:,} {self.tested_on})"

    @property
    def ok(self) -> bool:
        """Whether nothing needs attention."""
        return not self.advice

    def summary(self) -> str:
        """A few lines in words."""
        image = ", ".join(f"{u:.0%}" for u in self.image_theme_usage)
        task = ", ".join(f"{u:.0%}" for u in self.task_theme_usage)
        lines = [
            f"image-themes explain {image} of the samples",
            f"task-themes explain {task} of the classes",
            f"{self.n_tasks:,} {self.tested_on} fall on {self.distinct:,} distinct points (rounded "
            f"to 0.1), in {self.rank} of {len(self.task_theme_usage) - 1} directions",
        ]
        if self.agreement is not None:
            lines.append(
                f"the fits agree on distances with a rank correlation of {self.agreement:.2f}"
            )
        return "\n".join([*lines, *(f"! {a}" for a in self.advice)])

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)


def check_health(
    themes: Themes,
    image_usage: Float[np.ndarray, "K"],
    task_usage: Float[np.ndarray, "L"],
    lam: Float[np.ndarray, "tasks L"],
    tested_on: str = "tasks",
    agreement: float | None = None,
) -> Health:
    """Evaluate themes by their shares of what was learned from, and by λ of some tasks."""
    delta = np.asarray(themes.delta)
    mass = (lam - delta).sum(axis=0)
    health = Health(
        image_theme_usage=tuple(np.round(image_usage, 6).tolist()),
        task_theme_usage=tuple(np.round(task_usage, 6).tolist()),
        tested_on=tested_on,
        n_tasks=len(lam),
        distinct=count_points(lam),
        rank=_rank(lam),
        largest_share=round(float(mass.max() / max(mass.sum(), np.finfo(np.float32).tiny)), 6),
        duplicates=len(duplicates(np.asarray(themes.alpha))),
        largest_alpha=float(np.asarray(themes.alpha).sum(axis=1).max()),
        agreement=None if agreement is None else round(agreement, 4),
        advice=(),
    )
    return replace(health, advice=(*_of_themes(health), *_of_tasks(health, _possible(lam, delta))))


def _of_themes(health: Health) -> list[str]:
    """Advice about dead, duplicate and runaway themes."""
    advice = []
    for kind, usage, rest in (
        ("image", health.image_theme_usage, ", or reduce the dimensions (prepare)."),
        ("task", health.task_theme_usage, ", or try more restarts."),
    ):
        dead = dead_themes(np.array(usage), 1.0)
        if len(dead):
            advice.append(
                f"{len(dead)} of {len(usage)} {kind}-themes are hardly used "
                f"({', '.join(map(str, dead))}): ask for fewer {kind}_themes{rest}"
            )
    if health.duplicates:
        advice.append(
            f"{health.duplicates} pairs of task-themes are the same: ask for fewer task_themes, or "
            "try more restarts."
        )
    if health.largest_alpha > _RUNAWAY:
        advice.append(
            f"a task-theme has a total concentration of {health.largest_alpha:.0f}: its classes "
            "are all alike to the model; raise kappa, or use more image_themes."
        )
    return advice


def _of_tasks(health: Health, possible: int) -> list[str]:
    """Advice where tasks cannot be told apart, or fits do not agree about them."""
    advice, L = [], len(health.task_theme_usage)
    enough = health.n_tasks >= _ENOUGH and L > 1
    if enough and health.distinct <= min(_COLLAPSED, possible // 4):
        advice.append(
            f"{health.n_tasks:,} {health.tested_on} fall on {health.distinct:,} points, so "
            "task-themes hardly tell them apart: prepare the features (power, unit length, "
            "principal components), or ask for more themes."
        )
    elif enough and health.largest_share > _NEARLY_ALL:
        advice.append(
            f"{health.largest_share:.0%} of the classes in {health.tested_on} belong to one "
            "task-theme, so such tasks are hardly told apart: ask for more image_themes and "
            "task_themes, or prepare the features otherwise."
        )
    elif enough and 2 * health.rank < L - 1:
        advice.append(
            f"{health.tested_on} vary in only {health.rank} of {L - 1} directions: ask for fewer "
            "task_themes, or try more restarts."
        )
    if health.agreement is not None and health.agreement < _AGREE:
        advice.append(
            f"the fits agree on distances with a rank correlation of {health.agreement:.2f} only: "
            "trust the ensemble rather than a single fit, and give it more members."
        )
    return advice


def count_points(lam: Float[np.ndarray, "tasks L"]) -> int:
    """How many different λ there are, rounded to 0.1."""
    return len(np.unique(np.round(lam, 1), axis=0))


def _rank(lam: Float[np.ndarray, "tasks L"]) -> int:
    """Directions in which λ varies, among those that keep its sum."""
    shares = lam / lam.sum(axis=1, keepdims=True) * lam.sum(axis=1).mean()
    spread = np.linalg.svd(shares - shares.mean(axis=0), compute_uv=False) / np.sqrt(len(lam))
    return int((spread > _SAME_DIRECTION).sum())


def _possible(lam: Float[np.ndarray, "tasks L"], delta: Float[np.ndarray, "L"]) -> int:
    """How many λ there can be when every class of a task belongs to one task-theme."""
    ways = np.unique(np.round((lam - delta).sum(axis=1)).astype(int))
    return sum(math.comb(int(way) + len(delta) - 1, len(delta) - 1) for way in ways)


# -- repair -------------------------------------------------------------------------------------


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


def repair(state: FitState, settings: StepSettings) -> tuple[FitState, int]:
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
    half, offset = stats.S2[full] / 2, S1 / jnp.where(N > 0, N, 1)
    turn = jnp.outer(nudge, offset) + jnp.outer(offset, nudge)
    halved = stats.E_log_theta_sum[:, full] - jnp.log(2.0).astype(N.dtype) * stats.w
    parted = replace(
        stats,
        N_k=stats.N_k.at[full].set(N).at[dead].set(N),
        S1=stats.S1.at[full].set(S1 - nudge).at[dead].set(S1 + nudge),
        S2=stats.S2.at[full].set(half - turn).at[dead].set(half + turn),
        E_log_theta_sum=stats.E_log_theta_sum.at[:, full].set(halved).at[:, dead].set(halved),
    )
    return replace(state, stats=parted, themes=maximise(state, parted, settings))


def _widest(themes: Themes, k: Int[Array, ""]) -> Float[Array, " D"]:
    """The direction of largest variance of a theme, one standard deviation long."""
    variance, direction = jnp.linalg.eigh(themes.Sigma[k])
    return jnp.sqrt(jnp.maximum(variance[-1], 0)) * direction[:, -1]
