"""Settings of a fit, checked before any work starts."""

from dataclasses import dataclass, field, fields
from typing import Literal

from jax.tree_util import register_dataclass

from taskscape.arguments import check_choice, check_number, check_whole, public
from taskscape.errors import DataError
from taskscape.model import Covariance
from taskscape.model.params import Count, Scalar

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


@public
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
        for name in ("task_themes", "image_themes"):
            check_whole(getattr(self, name), name, 1, _MOST_THEMES)
        for name in ("batch_size", "max_iter", "max_passes", "evaluate_every", "patience"):
            check_whole(getattr(self, name), name, 1)
        if self.max_tasks is not None:
            check_whole(self.max_tasks, "max_tasks", 1)
        for name in ("delta", "tol", "nu_fraction", "kappa"):
            check_number(getattr(self, name), name, 0, open_="low")
        for name in ("tau0", "tau1", "min_gain"):
            check_number(getattr(self, name), name)
        if not 0.5 < self.tau1 <= 1 or self.tau0 < 0:
            raise DataError(
                f"tau0={self.tau0}, tau1={self.tau1}: the online fit converges for tau0 ≥ 0 and "
                "tau1 in (0.5, 1]."
            )
        check_choice(self.covariance, "covariance", ("full", "diag", "tied"))
        check_choice(self.method, "method", ("online", "batch"))
        check_choice(self.update, "update", ("statistics", "paper"))
        if self.method == "batch" and self.update == "paper":
            raise DataError("update='paper' is an online rule; use method='online' with it.")

    def of_steps(self) -> StepSettings:
        """What the compiled steps need to know."""
        needed = {f.name: getattr(self, f.name) for f in fields(StepSettings)}
        return StepSettings(**needed)
