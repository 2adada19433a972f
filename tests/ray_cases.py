"""Tasks and a stand-in for a model, for tests on a Ray cluster."""

import numpy as np

from taskscape.embeddings import Embeddings
from taskscape.embeddings.factors import TASK_THEMES, Factor
from taskscape.pools import ClassPool
from taskscape.tasks import sample_tasks
from taskscape.themes.estimator import TaskThemes

POOL = ClassPool.from_arrays(np.zeros((40, 2), np.float32), np.repeat(np.arange(20), 2))
TASKS = sample_tasks(POOL, 9_000, n_way=(2, 4), n_shot=1, stream=True)
CLUSTER = {
    "address": "local",
    "num_cpus": 2,
    "object_store_memory": 10**8,
    "include_dashboard": False,
    "logging_level": "ERROR",
    "log_to_driver": False,
}


class Model(TaskThemes):
    """Stands in for a fitted model: λ follows from the classes, and a worker may die of it."""

    fingerprint_ = "stand-in"

    def __init__(self, at=None, then=None):
        self.at, self.then = at, then
        self.factors_ = (Factor(TASK_THEMES, "dirichlet", 3),)

    def embed(self, tasks):
        if self.at is not None and not self.at.exists():
            self.at.touch()
            self.then()
        lam = 0.5 + np.stack([(tasks.classes % 3 == i).sum(axis=1) for i in range(3)], axis=1)
        lam = lam + tasks.keys[:, None].astype(np.float64) / 2.0**66
        return Embeddings.of(tasks, lam.astype(np.float32), model=self.fingerprint_)
