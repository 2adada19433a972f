"""A pool whose classes lie in far-apart groups, and quick settings, for similarity measures."""

import numpy as np

from taskscape.meta import MAML, TrainConfig
from taskscape.pools import ClassPool
from taskscape.similarity import Task2VecConfig
from taskscape.tasks import TaskSet, make_tasks

DIMS, CLASSES = 6, 16
QUICK = Task2VecConfig(
    widths=(16, 12, 8), learner=MAML(inner_steps=2), train=TrainConfig(updates=30, batch_size=4)
)


def grouped_pool(n_samples: int = 24, seed: int = 0) -> ClassPool:
    """Two groups of eight classes: one varies along the first dimensions, one along the last."""
    rng = np.random.default_rng(seed)
    places = np.zeros((CLASSES, 1, DIMS))
    places[:8, 0, :3] = 3 * rng.normal(size=(8, 3))
    places[8:, 0, 3:] = 3 * rng.normal(size=(8, 3)) + 6
    x = places + 0.5 * rng.normal(size=(CLASSES, n_samples, DIMS))
    return ClassPool.from_arrays(
        x.reshape(-1, DIMS).astype(np.float32), np.repeat(np.arange(CLASSES), n_samples)
    )


def task_of(
    pool: ClassPool, classes: list[list[int]], *, n_shot: int = 5, n_query: int = 0, seed: int = 0
) -> TaskSet:
    return make_tasks(pool, classes, n_shot=n_shot, n_query=n_query, seed=seed)
