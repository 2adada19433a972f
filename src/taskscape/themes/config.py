"""Settings of a fit, checked before any work starts."""

from dataclasses import dataclass, field, fields
from typing import Literal

from jax.tree_util import register_dataclass

from taskscape.arguments import check_number, check_whole
from taskscape.errors import DataError
from taskscape.model import Covariance
from taskscape.model.params import Count, Scalar

__all__ = ["FitConfig", "StepSettings"]

Update = Literal["statistics", "paper"]
_MOST_THEMES = 10_000


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
    update: Update = field(metadata={"static": True})


@dataclass(frozen=True)
class FitConfig:
    """How to fit: the model's size, its priors, and the way to the optimum."""

    task_themes: int = 4
    """L of the paper."""
    image_themes: int = 8
    """K of the paper."""
    delta: float = 0.5
    """Symmetric concentration of the task mixture, δ of the paper."""
    covariance: Covariance = "full"
    """Of the image-themes: one matrix each ("full"), variances ("diag"), one for all ("tied")."""
    method: Literal["online", "batch"] = "online"
    """Mini-batches with a decaying step, or full passes over a fixed task set."""
    update: Update = "statistics"
    """Online: average sufficient statistics, or the paper to the letter: its posterior, in which a
    class's mixture does not depend on its task-theme, and averages of means and covariances."""
    batch_size: int = 256
    """Tasks in a mini-batch."""
    tau0: float = 4.0
    """Delay of the step size ρ = (τ0 + t)^−τ1."""
    tau1: float = 0.7
    """Decay of the step size, in (0.5, 1]."""
    tol: float = 3e-4
    """The E-step of a class ends when less than this part of its samples moves between themes."""
    max_iter: int = 50
    """Most sweeps of an E-step during the fit."""
    max_tasks: int | None = None
    """Most tasks to learn from, counting repeats; None leaves it to the other limits."""
    max_passes: int = 10
    """Most passes over a task set."""
    evaluate_every: int = 10
    """Mini-batches between two looks at the held-out bound."""
    patience: int = 5
    """Stop after this many looks in a row without a gain."""
    min_gain: float = 1e-3
    """Nats per sample that count as a gain."""
    nu_fraction: float = 1e-3
    """Weight of the covariances' prior, as a share of the samples of a theme."""
    kappa: float = 0.02
    """Weight of the task-themes' prior, as a share of the classes of a theme."""

    def __post_init__(self) -> None:
        positive = (
            "task_themes", "image_themes", "delta", "batch_size", "tol", "max_iter", "max_passes",
            "evaluate_every", "patience", "nu_fraction", "kappa",
        )  # fmt: skip
        whole = (
            "task_themes", "image_themes", "batch_size", "max_iter", "max_tasks", "max_passes",
            "evaluate_every", "patience",
        )  # fmt: skip
        for name in whole:
            if name != "max_tasks" or self.max_tasks is not None:
                check_whole(getattr(self, name), name)
        for name in ("delta", "tau0", "tau1", "tol", "min_gain", "nu_fraction", "kappa"):
            check_number(getattr(self, name), name)
        for name in ("task_themes", "image_themes"):
            if getattr(self, name) > _MOST_THEMES:
                check_whole(getattr(self, name), name, most=_MOST_THEMES)
        for name in positive:
            if not getattr(self, name) > 0:
                raise DataError(f"{name}={getattr(self, name)} must be greater than 0.")
        if not 0.5 < self.tau1 <= 1 or self.tau0 < 0:
            raise DataError(
                f"tau0={self.tau0}, tau1={self.tau1}: the online fit converges for tau0 ≥ 0 and "
                "tau1 in (0.5, 1]."
            )
        if self.max_tasks is not None and self.max_tasks < 1:
            raise DataError(f"max_tasks={self.max_tasks} must be at least 1, or None.")
        choices = {
            "covariance": ("full", "diag", "tied"),
            "method": ("online", "batch"),
            "update": ("statistics", "paper"),
        }
        for name, allowed in choices.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in allowed:
                raise DataError(f"{name}={value!r} must be one of {allowed}.")
        if self.method == "batch" and self.update == "paper":
            raise DataError("update='paper' is an online rule; use method='online' with it.")

    def of_steps(self) -> StepSettings:
        """What the compiled steps need to know."""
        needed = {f.name: getattr(self, f.name) for f in fields(StepSettings)}
        return StepSettings(**needed)
