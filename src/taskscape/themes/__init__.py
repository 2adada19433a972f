"""Task-themes: preparing samples, fitting the model, embedding tasks; TaskThemes does all three."""

from taskscape.compiling import keep_programs
from taskscape.themes.co_clustering import CoClustering
from taskscape.themes.config import FitConfig
from taskscape.themes.data import TaskSource
from taskscape.themes.estimator import TaskThemes
from taskscape.themes.loop import Fit, FitInfo
from taskscape.themes.prepare import PrepareConfig
from taskscape.themes.steps import FitState
from taskscape.themes.task_model import HealthWarning, OutlierTasksWarning, TaskModel, embed_into

__all__ = [
    "CoClustering",
    "Fit",
    "FitConfig",
    "FitInfo",
    "FitState",
    "HealthWarning",
    "OutlierTasksWarning",
    "PrepareConfig",
    "TaskModel",
    "TaskSource",
    "TaskThemes",
    "embed_into",
]

keep_programs()
