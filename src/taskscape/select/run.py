"""A selection in progress: what is chosen, what is left, and what may not be chosen any more."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int, UInt64

from taskscape.select.sources import DistanceSource

__all__ = ["Run", "ascending"]


class Run:
    """Keeps account of the tasks chosen so far, under a budget and a limit on shared classes.

    A task that was refused is never asked for again: the budget only shrinks, and the tasks it
    shares classes with only grow in number.
    """

    def __init__(
        self,
        source: DistanceSource,
        tie_keys: UInt64[np.ndarray, "trains"],
        test_keys: UInt64[np.ndarray, "tests"],
        weights: Float[np.ndarray, "tests"],
        budget: int,
        costs: Int[np.ndarray, "trains"],
        classes: Int[np.ndarray, "trains way"] | None,
        max_shared: int | None,
    ) -> None:
        self.source, self.tie_keys, self.test_keys = source, tie_keys, test_keys
        self.weights = weights
        self.costs, self.left = costs, budget
        self.classes, self.max_shared = classes, max_shared
        self.unused = np.ones(source.n_train, dtype=bool)
        self.chosen: list[int] = []
        self.scores: list[float] = []
        self.for_test: list[int] = []
        self.uses = np.zeros(0 if classes is None else int(classes.max(initial=-1)) + 1)
        self._has_class = np.zeros((len(self.uses), 256), dtype=np.uint8)
        self._cheapest = int(costs.min(initial=1))

    @property
    def done(self) -> bool:
        """Whether nothing more can be chosen."""
        return self.left < self._cheapest or not self.unused.any()

    def classes_of(self, task: int) -> Int[np.ndarray, "its_way"]:
        """The class ids of a training task."""
        assert self.classes is not None
        row = self.classes[task]
        return row[row >= 0]

    def take(self, task: int, score: float, test: int = -1) -> bool:
        """Choose a task if it may be chosen; either way it is used up."""
        self.unused[task] = False
        if self.costs[task] > self.left or not self._apart(task):
            return False
        self.left -= int(self.costs[task])
        if self.classes is not None:
            if len(self.chosen) == self._has_class.shape[1]:
                self._has_class = np.concatenate([self._has_class, 0 * self._has_class], axis=1)
            self._has_class[self.classes_of(task), len(self.chosen)] = 1
            self.uses[self.classes_of(task)] += 1
        self.chosen.append(int(task))
        self.scores.append(float(score))
        self.for_test.append(int(test))
        return True

    def _apart(self, task: int) -> bool:
        if self.max_shared is None:
            return True
        shared = self._has_class[self.classes_of(task), : len(self.chosen)].sum(axis=0)
        return int(shared.max(initial=0)) <= self.max_shared


def ascending(
    values: Float[np.ndarray, "n"], tie_keys: UInt64[np.ndarray, "n"], first: int
) -> Iterator[int]:
    """Places from the smallest value up, of equals the least key first; sorts only what is read."""
    size, last = max(first, 256), -np.inf
    while True:
        upto = np.partition(values, size)[size] if size < len(values) else np.inf
        some = np.flatnonzero((values > last) & (values <= upto))
        yield from some[np.lexsort((tie_keys[some], values[some]))].tolist()
        if upto == np.inf:
            return
        size, last = 4 * size, upto
