"""A study so small that it takes a moment: compiling takes longer than running it."""

from pathlib import Path
from typing import Any

import numpy as np

from meta_cases import DIMS, toy_pool
from taskscape.pools import ClassPool
from taskscape.study import Listener, StudyConfig, config_from, run_study
from taskscape.study.result import StudyResult

TINY: dict[str, Any] = {
    "tasks": {"n_way": 3, "n_shot": 8, "n_train": 60, "n_val": 30, "n_test": 30},
    "fit": {
        "n_tasks": 80, "n_way": [3, 4], "n_shot": 8, "task_themes": 2, "image_themes": 3,
        "max_passes": 1, "prepare": "none",
    },
    "learners": {"names": ["protonet"], "widths": [8], "train_tasks": 40, "batch_size": 4},
    "evaluate": {"n_shot": 2, "n_query": 5, "episodes": 3},
    "distances": {"k": 4, "probe_updates": 4},
    "diagram": {"n_bins": 4},
    "selection": {
        "rules": ["nearest"], "budgets": [10], "candidates": 40, "trials": 3, "repeats": 2,
        "n_shot": 3, "n_query": 5, "updates": 8, "episodes": 1,
    },
}  # fmt: skip


def tiny(**changes: dict[str, Any]) -> StudyConfig:
    """The small settings, with some values of some sections changed."""
    return config_from({k: {**v, **changes.get(k, {})} for k, v in TINY.items()})


class Recorder(Listener):
    """Remembers which stages were made and which were taken from before."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.made: list[str] = []
        self.reused: list[str] = []
        self.notes: tuple[str, ...] = ()
        self.parts: list[float] = []

    def plan(self, stages: list[tuple[str, str]], notes: tuple[str, ...]) -> None:
        self.stages, self.notes = [name for name, _ in stages], notes

    def advance(self, done: float, what: str) -> None:
        self.parts.append(done)

    def end(self, stage: str, seconds: float, reused: bool) -> None:
        (self.reused if reused else self.made).append(stage)


def go(
    out: Path, config: StudyConfig | None = None, pool: ClassPool | None = None, **rest: Any
) -> tuple[StudyResult, Recorder]:
    """Run a study, and what was heard of it."""
    heard = Recorder()
    result = run_study(pool or toy_pool(), config or tiny(), out, listener=heard, **rest)
    return result, heard


def own_features(n_classes: int = 20, n_samples: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels as a user has them: no groups, no splits."""
    rng = np.random.default_rng(3)
    places = 2 * rng.normal(size=(n_classes, 1, DIMS))
    X = places + rng.normal(size=(n_classes, n_samples, DIMS))
    return X.reshape(-1, DIMS).astype(np.float32), np.repeat(np.arange(n_classes), n_samples)
