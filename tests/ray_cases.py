"""A driver of a Ray cluster whose head is killed: a process of its own, which Ray may end too."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from taskscape.distributed.engine import EngineError, use_engine
from taskscape.embeddings import Catalogue, Embeddings
from taskscape.embeddings.factors import TASK_THEMES, Factor
from taskscape.pools import ClassPool
from taskscape.tasks import sample_tasks
from taskscape.themes.estimator import TaskThemes
from taskscape.themes.into_catalogue import embed_into

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


def main(folder: Path) -> None:
    """Embed tasks into a catalogue, lose the head on the way, and print what was told and kept."""
    import ray

    driver = os.getpid()

    def kill_head() -> None:
        for line in subprocess.check_output(["ps", "-eo", "pid,ppid,comm"], text=True).splitlines():
            if line.split()[1:] in ([str(driver), "gcs_server"], [str(driver), "raylet"]):
                os.kill(int(line.split()[0]), signal.SIGKILL)
        time.sleep(30)

    ray.init(**CLUSTER)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it
    several = SimpleNamespace(
        exists=lambda: len(list(folder.glob("shard-*"))) < 4, touch=lambda: None
    )
    with use_engine("ray"):
        embed_into(folder, Model(), TASKS[:10])
        try:
            embed_into(folder, Model(several, kill_head), TASKS, shard_size=1000)
        except EngineError as error:
            print(json.dumps({"told": str(error), "tasks": len(Catalogue(folder))}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
