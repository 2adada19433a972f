"""Distances from test tasks to training tasks, whatever similarity measure made them.

Selection rules, diagrams and studies ask one kind of object: for the mean distance to the training
tasks, for the nearest of them, or for a matrix.
"""

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from taskscape.compare import Neighbours, TaskIndex, mean_distance
from taskscape.compare.divergences import distances, find_divergence
from taskscape.compare.posteriors import Affine, Tasks, check_together, read_posterior
from taskscape.compare.rows import row_hashes
from taskscape.errors import DataError

_NUMBERS = 1 << 23
_FEW = 8
"""Numbers of a task, besides its log-normalisers, that tell it from others."""
Tests: TypeAlias = Int[np.ndarray, "some"]
Trains: TypeAlias = Int[np.ndarray, "others"]
Block: TypeAlias = Float[np.ndarray, "some others"]
Hashes: TypeAlias = tuple[UInt64[np.ndarray, "tests"], UInt64[np.ndarray, "trains"]]


class DistanceSource(ABC):
    """Distances from ``n_test`` test tasks to ``n_train`` training tasks.

    A subclass sets the two numbers and says what :meth:`block` is. The rest is computed from
    blocks, which serves thousands of tasks; what can do better for millions says so.
    """

    n_test: int
    n_train: int

    @abstractmethod
    def block(self, tests: Tests, trains: Trains) -> Block:
        """Distances from some test tasks to some training tasks."""

    def matrix(self) -> Float[np.ndarray, "tests trains"]:
        """All distances."""
        return self.block(np.arange(self.n_test), np.arange(self.n_train))

    def contents(self) -> Hashes:
        """A hash of what each task is, whatever its place: equal for tasks that are equal."""
        # sorted, so that the order of the other side's tasks has no effect
        d = self.matrix()
        return row_hashes(np.sort(d, axis=1)), row_hashes(np.sort(d.T, axis=1))

    def mean_distance(self) -> Float[np.ndarray, "tests"]:
        """Mean distance from each test task to all training tasks: a diagram's horizontal axis."""
        everything, step = np.arange(self.n_train), max(1, _NUMBERS // self.n_train)
        parts = np.split(np.arange(self.n_test), range(step, self.n_test, step))
        return np.concatenate([self.block(part, everything).mean(axis=1) for part in parts])

    def means(self, weights: Float[np.ndarray, "tests"]) -> Float[np.ndarray, "trains"]:
        """Weighted mean distance from the test tasks to every training task; weights sum to 1."""
        order = np.argsort(self.contents()[0], kind="stable")
        total, everything = np.zeros(self.n_train), np.arange(self.n_train)
        step = max(1, _NUMBERS // self.n_train)
        for start in range(0, self.n_test, step):
            tests = order[start : start + step]
            for row, weight in zip(self.block(tests, everything), weights[tests], strict=True):
                total += weight * row
        return total

    def nearest(
        self,
        tests: Tests,
        k: int,
        unused: Bool[np.ndarray, "trains"] | None = None,
        tie_keys: UInt64[np.ndarray, "trains"] | None = None,
    ) -> Neighbours:
        """The k nearest training tasks of some test tasks; of equals the least key first.

        ``unused`` says which may be found; where these are fewer than k, all of them are. Without
        keys, equals come in the order of the training tasks.
        """
        left = np.arange(self.n_train) if unused is None else np.flatnonzero(unused)
        if tie_keys is not None:
            left = left[np.argsort(tie_keys[left], kind="stable")]
        k = min(k, len(left))
        indices = np.empty((len(tests), k), dtype=np.int64)
        distances = np.empty((len(tests), k))
        step = max(1, _NUMBERS // max(1, len(left)))
        for start in range(0, len(tests), step):
            rows = slice(start, start + step)
            values = self.block(tests[rows], left)
            order = np.argsort(values, axis=1, kind="stable")[:, :k]
            indices[rows] = left[order]
            distances[rows] = np.take_along_axis(values, order, axis=1)
        return Neighbours(indices, distances)


class PosteriorSource(DistanceSource):
    """Distances between posteriors, from test to training tasks, by any divergence.

    Means and nearest tasks by KL, which is affine in the training task, need no matrix of pairs.
    ``alpha`` is what ``"emd"`` needs besides.
    """

    def __init__(self, test: Tasks, train: Tasks, kind: str = "kl", *, alpha: Any = None) -> None:
        self._affine = find_divergence(kind).name == "kl"
        self._options = {"kind": kind, "alpha": alpha}
        self._test, self._train = read_posterior(test, "test"), read_posterior(train, "train")
        check_together(self._test, self._train)
        self._index: tuple[UInt64[np.ndarray, "trains"] | None, TaskIndex] | None = None
        self.n_test, self.n_train = len(self._test), len(self._train)

    def block(self, tests: Tests, trains: Trains) -> Block:
        if self._affine:
            return Affine.of(self._test[tests]).to_all(self._train[trains])
        return self._pair_by_pair[np.ix_(tests, trains)]

    @cached_property
    def _pair_by_pair(self) -> Block:
        return np.asarray(distances(self._test, self._train, **self._options))

    def contents(self) -> Hashes:
        # the log-normalisers nearly always tell tasks apart, and are few
        return self._hashes[0], self._hashes[1]

    @cached_property
    def _hashes(self) -> list[UInt64[np.ndarray, "_"]]:
        both = (self._test, self._train)
        return [row_hashes(np.concatenate([p.logs, p.values[:, :_FEW]], 1)) for p in both]

    def mean_distance(self) -> Float[np.ndarray, "tests"]:
        # exact from two means over the training tasks
        return mean_distance(self._test, self._train) if self._affine else super().mean_distance()

    def means(self, weights: Float[np.ndarray, "tests"]) -> Float[np.ndarray, "trains"]:
        if not self._affine:
            return super().means(weights)
        queries = Affine.of(self._test)
        # exactly rounded sums do not depend on the order of the test tasks
        mean_g = np.array([math.fsum(column) for column in (queries.g * weights[:, None]).T])
        linear = np.zeros(self.n_train)
        for column, slope in zip(self._train.values.T, mean_g, strict=True):
            linear += column * slope
        constant = math.fsum(queries.constant * weights)
        return np.maximum(self._train.log_normaliser - linear + constant, 0.0)

    def nearest(
        self,
        tests: Tests,
        k: int,
        unused: Bool[np.ndarray, "trains"] | None = None,
        tie_keys: UInt64[np.ndarray, "trains"] | None = None,
    ) -> Neighbours:
        if not self._affine:
            return super().nearest(tests, k, unused, tie_keys)
        known = None if self._index is None else self._index[0]
        if self._index is None or not np.array_equal(known, tie_keys):  # type: ignore[arg-type]
            self._index = tie_keys, TaskIndex(self._train, tie_keys)
        all_left = unused is None or bool(unused.all())
        return self._index[1].search(self._test[tests], k, None if all_left else unused)


class MatrixSource(DistanceSource):
    """Distances that were computed elsewhere, (test tasks, training tasks)."""

    def __init__(self, distances: object) -> None:
        self._d = np.asarray(distances, dtype=np.float64)
        if self._d.ndim != 2 or self._d.size == 0 or not np.isfinite(self._d).all():
            raise DataError(
                f"distances have shape {self._d.shape}; expected a matrix of finite numbers, a row "
                "for every test task."
            )
        self.n_test, self.n_train = self._d.shape

    def block(self, tests: Tests, trains: Trains) -> Block:
        return self._d[np.ix_(tests, trains)]

    def matrix(self) -> Float[np.ndarray, "tests trains"]:
        return self._d
