"""Fitting the model: online over a stream of mini-batches, or in full passes."""

from taskscape.fit.config import FitConfig
from taskscape.fit.data import TaskSource
from taskscape.fit.loop import Fit, FitInfo
from taskscape.fit.steps import FitState

__all__ = ["Fit", "FitConfig", "FitInfo", "FitState", "TaskSource"]
