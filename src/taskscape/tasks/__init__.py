"""Which classes and which samples make up each task."""

from taskscape.tasks.batches import IGNORED_TARGET, Episodes, FlatEpisodes, TaskBatch
from taskscape.tasks.manifest import TASKS
from taskscape.tasks.sampling import TaskStream, sample_tasks
from taskscape.tasks.taskset import ALL, TaskSet, make_tasks

__all__ = [
    "ALL",
    "IGNORED_TARGET",
    "TASKS",
    "Episodes",
    "FlatEpisodes",
    "TaskBatch",
    "TaskSet",
    "TaskStream",
    "make_tasks",
    "sample_tasks",
]
