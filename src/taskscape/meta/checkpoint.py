"""A training that resumes where it stopped: its state in one file."""

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path

import jax

from taskscape.io.arrays import arrays_of, load_checkpoint, save_checkpoint, tree_from
from taskscape.meta.learner import Learner
from taskscape.meta.networks import Architecture
from taskscape.meta.training import TrainConfig, TrainState, begin
from taskscape.tasks import TaskSet


class TrainingCheckpoint:
    """Where the state of one training is kept, and of which training it is."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        learner: Learner,
        network: Architecture,
        tasks: TaskSet,
        config: TrainConfig,
        *,
        seed: int,
        n_way: int,
        validation: TaskSet | None,
    ) -> None:
        self.path = Path(path)
        self._start = learner, network, config, n_way, seed
        about = {
            "learner": [type(learner).__name__, asdict(learner)],  # type: ignore[call-overload]
            "network": network.config(),
            "training": asdict(config),
            "seed": seed,
            "n_way": n_way,
            "pool": tasks.pool.fingerprint,
        }
        h = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16)
        for part in (tasks, validation):
            if part is not None:
                part.add_to_hash(h)
        self.identity = h.hexdigest()

    def write(self, state: TrainState) -> None:
        """Keep the state, in place of the one before."""
        header = {"what": "training checkpoint", "identity": self.identity}
        save_checkpoint(self.path, arrays_of(state), header)

    def read(self) -> TrainState | None:
        """The state that was kept, if there is one; it must be of the same training."""
        if not self.path.exists():
            return None
        arrays, _ = load_checkpoint(self.path, "training", self.identity)
        learner, network, config, n_way, seed = self._start
        like = jax.eval_shape(lambda: begin(learner, network, config, n_way=n_way, seeds=(seed,)))
        return tree_from(arrays, like)
