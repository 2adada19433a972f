"""Which classes and which samples make up each task."""

from taskscape.tasks.manifest import TASKS
from taskscape.tasks.sampling import TaskStream, sample_tasks
from taskscape.tasks.taskset import (
    ALL,
    BatchSampler,
    Episodes,
    PoolRows,
    TaskSet,
    make_tasks,
)

__all__ = [
    "ALL",
    "TASKS",
    "BatchSampler",
    "Episodes",
    "PoolRows",
    "TaskSet",
    "TaskStream",
    "make_tasks",
    "sample_tasks",
]
