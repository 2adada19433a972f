"""Which tasks the page shows: all of them, or a fair sample where there are many."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from taskscape.studies.result import StudyResult

__all__ = ["MOST_TASKS", "Shown", "choose_shown"]

MOST_TASKS = 2000
"""Points on the map; more make it slow and no clearer."""
_NEIGHBOURS = 5


@dataclass(frozen=True, eq=False)
class Shown:
    """Rows of the study's test and training tasks."""

    test: Int[np.ndarray, "tests"]
    train: Int[np.ndarray, "trains"]
    """Training tasks that the page knows: those on the map first, then neighbours."""
    n_train: int
    """How many of ``train`` are on the map."""
    nearest: Int[np.ndarray, "tests k"]
    """Places in ``train`` of each test task's nearest training tasks, nearest first."""

    @property
    def n_tasks(self) -> int:
        """Points on the map."""
        return len(self.test) + self.n_train


def choose_shown(result: StudyResult, most: int = MOST_TASKS) -> Shown:
    """All tasks if there are at most ``most``, else a sample that the study's seed decides."""
    rng = np.random.default_rng(result.seed)
    n_test, n_train = len(result.test), len(result.train)
    test = _some(rng, n_test, min(n_test, max(most // 2, most - n_train)))
    train = _some(rng, n_train, min(n_train, most - len(test)))
    near = result.nearest[test, :_NEIGHBOURS].astype(np.int64)
    rows = np.concatenate([train, np.setdiff1d(near, train)])
    place = np.zeros(n_train, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    return Shown(test, rows, len(train), place[near])


def _some(rng: np.random.Generator, n: int, wanted: int) -> Int[np.ndarray, "wanted"]:
    if wanted >= n:
        return np.arange(n)
    return np.sort(rng.choice(n, wanted, replace=False))
