"""Settings of a fit, checked before any work starts."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from taskscape.errors import DataError
from taskscape.settings import check_settings, setting

if TYPE_CHECKING:
    from taskscape.themes.steps import StepSettings


@dataclass(frozen=True)
class FitConfig:
    """How to fit: the model's size, its priors, and the way to the optimum."""

    task_themes: int = setting(4, "L of the co-clustering", at_least=1, at_most=10_000)
    image_themes: int = setting(8, "K of the co-clustering", at_least=1, at_most=10_000)
    delta: float = setting(0.5, "δ, the symmetric concentration of the task mixture", above=0)
    method: Literal["online", "batch"] = setting(
        "online", "mini-batches with a decaying step, or full passes over a fixed task set"
    )
    update: Literal["statistics", "paper"] = setting(
        "statistics",
        "online: average sufficient statistics; or to the letter, with the paper's posterior, in "
        "which a class's mixture does not depend on its task-theme, and averages of parameters",
    )
    batch_size: int = setting(256, "tasks in a mini-batch", at_least=1)
    tau0: float = setting(4.0, "delay of the step size ρ = (τ0 + t)^−τ1", at_least=0)
    tau1: float = setting(0.7, "decay of the step size", above=0.5, at_most=1)
    tol: float = setting(3e-4, "share of samples that still moves as an E-step ends", above=0)
    max_iter: int = setting(50, "most sweeps of an E-step during the fit", at_least=1)
    max_tasks: int | None = setting(None, "most tasks to learn from, with repeats", at_least=1)
    max_passes: int = setting(10, "most passes over the tasks", at_least=1)
    evaluate_every: int = setting(5, "mini-batches between looks at held-out tasks", at_least=1)
    patience: int = setting(3, "looks in a row without a gain that end the fit", at_least=1)
    min_gain: float = setting(1e-3, "nats per sample that count as a gain")
    nu_fraction: float = setting(1e-3, "weight of covariances' prior: share of samples", above=0)
    kappa: float = setting(0.02, "weight of task-themes' prior: share of classes", above=0)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.method == "batch" and self.update == "paper":
            raise DataError("update='paper' is an online rule; use method='online' with it.")

    def of_steps(self) -> "StepSettings":
        """What the compiled steps need to know."""
        from taskscape.themes.steps import StepSettings  # JAX, which help texts do not need

        return StepSettings(**{f.name: getattr(self, f.name) for f in fields(StepSettings)})
