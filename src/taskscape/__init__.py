"""taskscape: how similar are classification tasks?"""

from taskscape.errors import DataError, TaskscapeError
from taskscape.estimator import HealthWarning, OutlierTasksWarning, TaskThemes
from taskscape.fit import FitConfig
from taskscape.pools import ClassPool, load_pool
from taskscape.prepare import PrepareConfig
from taskscape.storage import load_tasks, save_tasks
from taskscape.tasks import TaskSet, enumerate_tasks, make_tasks, sample_tasks, stream_tasks

__version__ = "0.1.0.dev0"

__all__ = [
    "ClassPool",
    "DataError",
    "FitConfig",
    "HealthWarning",
    "OutlierTasksWarning",
    "PrepareConfig",
    "TaskSet",
    "TaskThemes",
    "TaskscapeError",
    "__version__",
    "enumerate_tasks",
    "load_pool",
    "load_tasks",
    "make_tasks",
    "sample_tasks",
    "save_tasks",
    "stream_tasks",
]
