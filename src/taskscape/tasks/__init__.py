"""Which classes and which samples make up each task."""

from taskscape.tasks.batches import IGNORED_TARGET, BatchSampler, Episodes, FlatEpisodes, PoolRows
from taskscape.tasks.manifest import TASKS
from taskscape.tasks.sampling import TaskStream, sample_tasks
from taskscape.tasks.taskset import ALL, TaskSet, make_tasks

__all__ = [
    "ALL",
    "IGNORED_TARGET",
    "TASKS",
    "BatchSampler",
    "Episodes",
    "FlatEpisodes",
    "PoolRows",
    "TaskSet",
    "TaskStream",
    "make_tasks",
    "sample_tasks",
]
