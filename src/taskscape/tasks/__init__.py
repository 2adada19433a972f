"""Which classes and which samples make up each task."""

from taskscape.tasks.batches import IGNORED_TARGET, Episodes, FlatEpisodes, TaskBatch
from taskscape.tasks.manifest import TASKS, load_tasks, save_tasks
from taskscape.tasks.sampling import TaskStream, enumerate_tasks, sample_tasks, stream_tasks
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
    "enumerate_tasks",
    "load_tasks",
    "make_tasks",
    "sample_tasks",
    "save_tasks",
    "stream_tasks",
]
