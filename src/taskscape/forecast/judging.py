"""Forecasts against what the learner then did."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.diagram.resampling import make_resamples
from taskscape.forecast.result import Forecasts, Judgement
from taskscape.statistics import noise_ceiling, spearman

__all__ = ["compare"]


def compare(
    forecasts: Forecasts,
    accuracy: Float[np.ndarray, "tasks episodes"],
    classes: Int[np.ndarray, "tasks way"],
    usual: float,
) -> Judgement:
    """Forecasts against measured accuracies; ``usual`` is what else one would expect."""
    measured = accuracy.mean(axis=1)
    error = np.abs(forecasts.expected - measured)
    held = ((forecasts.low <= measured) & (measured <= forecasts.high)).astype(np.float64)
    resamples = make_resamples(classes, len(measured))
    everything = np.arange(len(measured))

    def interval(statistic: Any, correlation: bool = False) -> tuple[float, float] | None:
        found = resamples.interval(statistic, everything, correlation=correlation)
        if np.isnan(found.low):
            return None
        least = -1.0 if correlation else 0.0
        return max(found.low, least), min(found.high, 1.0)

    return Judgement(
        learner=forecasts.learner,
        n_tasks=len(measured),
        spearman=spearman(forecasts.expected, measured),
        mean_absolute_error=float(error.mean()),
        coverage=float(held.mean()),
        confidence=forecasts.confidence,
        ceiling=noise_ceiling(accuracy)[1] if accuracy.shape[1] > 1 else None,
        always_mean_error=float(np.abs(measured - usual).mean()),
        spearman_interval=interval(
            lambda rows: spearman(forecasts.expected[rows], measured[rows]), correlation=True
        ),
        error_interval=interval(lambda rows: float(error[rows].mean())),
        coverage_interval=interval(lambda rows: float(held[rows].mean())),
        mean_width=float((forecasts.high - forecasts.low).mean()),
    )
