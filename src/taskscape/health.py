"""Is the representation any good? What to look at after a fit, and what to try."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.model import Themes

__all__ = ["Health", "check_health"]

_DEAD_IMAGE_THEME = 0.02
"""Below this part of an even share of the samples, an image-theme is dead."""
_DEAD_TASK_THEME = 0.02
_RUNAWAY = 1e3
_COLLAPSED = 10
"""With no more than this many distinct λ, tasks can hardly be told apart."""


@dataclass(frozen=True)
class Health:
    """How the themes are used, how many points tasks fall on, and advice where needed."""

    image_theme_usage: tuple[float, ...]
    """Share of the samples that each image-theme explains."""
    task_theme_usage: tuple[float, ...]
    """Share of the classes that each task-theme explains."""
    n_tasks: int
    distinct: int
    """Distinct λ among these tasks, rounded to 0.1."""
    largest_alpha: float
    """Largest total concentration of a task-theme."""
    advice: tuple[str, ...]

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
            f"{self.n_tasks:,} tasks fall on {self.distinct:,} distinct points (rounded to 0.1)",
        ]
        return "\n".join([*lines, *(f"! {a}" for a in self.advice)])

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)


def check_health(
    themes: Themes, usage: Float[np.ndarray, "K"], lam: Float[np.ndarray, "tasks L"]
) -> Health:
    """Judge themes by how the samples and some tasks use them."""
    delta = np.asarray(themes.delta)
    mass = (lam - delta).sum(axis=0)
    shares = mass / max(mass.sum(), np.finfo(np.float32).tiny)
    distinct = len(np.unique(np.round(lam, 1), axis=0))
    total = float(np.asarray(themes.alpha).sum(axis=1).max())
    advice = []
    dead = np.flatnonzero(usage < _DEAD_IMAGE_THEME / themes.K)
    if len(dead):
        advice.append(
            f"{len(dead)} of {themes.K} image-themes are hardly used ({_list(dead)}): ask for "
            "fewer image_themes, reduce the dimensions (prepare), or try covariance='diag'."
        )
    unused = np.flatnonzero(shares < _DEAD_TASK_THEME / themes.L)
    if len(unused):
        advice.append(
            f"{len(unused)} of {themes.L} task-themes are hardly used ({_list(unused)}): ask for "
            "fewer task_themes, or try more restarts."
        )
    if total > _RUNAWAY:
        advice.append(
            f"a task-theme has a total concentration of {total:.0f}: its classes are all alike to "
            "the model; raise kappa, or use more image_themes."
        )
    if len(lam) >= 100 and distinct <= min(_COLLAPSED, _possible(lam, delta) // 4):
        advice.append(
            f"{len(lam):,} tasks fall on {distinct} points, so distances mean little: prepare the "
            "features (power, unit length, principal components), or ask for more themes."
        )
    return Health(
        tuple(np.round(usage, 6).tolist()),
        tuple(np.round(shares, 6).tolist()),
        len(lam),
        distinct,
        total,
        tuple(advice),
    )


def _possible(lam: Float[np.ndarray, "tasks L"], delta: Float[np.ndarray, "L"]) -> int:
    """How many λ there can be when every class of a task belongs to one task-theme."""
    ways = np.unique(np.round((lam - delta).sum(axis=1)).astype(int))
    return sum(math.comb(int(way) + len(delta) - 1, len(delta) - 1) for way in ways)


def _list(numbers: Int[np.ndarray, "n"]) -> str:
    return ", ".join(map(str, numbers.tolist()))
