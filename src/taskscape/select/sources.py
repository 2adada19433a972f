"""Where selection rules get distances from: Dirichlet KL, a matrix, or any embedding."""

import math
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from taskscape.compare.index import Neighbours, TaskIndex
from taskscape.compare.means import weights_for
from taskscape.compare.posteriors import Tasks, check_together, expected_log, log_beta, read_lam
from taskscape.compare.rows import row_hashes
from taskscape.errors import DataError

__all__ = ["DistanceSource", "EmbeddingSource", "KLSource", "MatrixSource"]

_NUMBERS = 1 << 23


@runtime_checkable
class DistanceSource(Protocol):
    """All that selection rules ask about the distances from test tasks to training tasks."""

    @property
    def n_test(self) -> int: ...

    @property
    def n_train(self) -> int: ...

    def contents(self) -> tuple[UInt64[np.ndarray, "tests"], UInt64[np.ndarray, "trains"]]:
        """A hash of what each task is, whatever its place: equal for tasks that are equal."""
        ...

    def means(self, weights: Float[np.ndarray, "tests"]) -> Float[np.ndarray, "trains"]:
        """Weighted mean distance from the test tasks to every training task; weights sum to 1."""
        ...

    def nearest(
        self,
        tests: Int[np.ndarray, "some"],
        k: int,
        unused: Bool[np.ndarray, "trains"],
        tie_keys: UInt64[np.ndarray, "trains"],
    ) -> Neighbours:
        """The k nearest unused training tasks of some test tasks; of equals the least key first.

        Where fewer than k are unused, all of them.
        """
        ...

    def block(
        self, tests: Int[np.ndarray, "some"], trains: Int[np.ndarray, "others"]
    ) -> Float[np.ndarray, "some others"]:
        """Distances from some test tasks to some training tasks."""
        ...


class KLSource:
    """KL between Dirichlet posteriors, from the test to the training task; never a matrix."""

    def __init__(self, test: Tasks, train: Tasks, *, scales: object = None) -> None:
        self._test, self._train = read_lam(test, "test"), read_lam(train, "train")
        check_together(self._test, self._train)
        self._weights = weights_for(self._test, self._train, scales)
        self._F: np.ndarray | None = None
        self._index: TaskIndex | None = None

    @property
    def n_test(self) -> int:
        return self._test.shape[1]

    @property
    def n_train(self) -> int:
        return self._train.shape[1]

    def contents(self) -> tuple[UInt64[np.ndarray, "tests"], UInt64[np.ndarray, "trains"]]:
        test, train = (row_hashes(_flat(lam)) for lam in (self._test, self._train))
        return test, train

    def _queries(
        self, tests: Int[np.ndarray, "some"] | slice
    ) -> tuple[Float[np.ndarray, "some dims"], Float[np.ndarray, "some"]]:
        a = self._test[:, tests]
        log_phi = expected_log(a) * self._weights[:, None, None]
        return _flat(log_phi), (a * log_phi).sum(axis=(0, 2)) - self._weights @ log_beta(a)

    @property
    def _log_beta(self) -> Float[np.ndarray, "trains"]:
        if self._F is None:
            self._F = self._weights @ log_beta(self._train)
        return self._F

    def means(self, weights: Float[np.ndarray, "tests"]) -> Float[np.ndarray, "trains"]:
        g, constant = self._queries(slice(None))
        # exactly rounded sums do not depend on the order of the test tasks
        mean_g = np.array([math.fsum(column) for column in (g * weights[:, None]).T])
        linear = np.zeros(self.n_train)
        for column, slope in zip(_flat(self._train).T, mean_g, strict=True):
            linear += column * slope
        return np.maximum(self._log_beta - linear + math.fsum(constant * weights), 0.0)

    def nearest(
        self,
        tests: Int[np.ndarray, "some"],
        k: int,
        unused: Bool[np.ndarray, "trains"],
        tie_keys: UInt64[np.ndarray, "trains"],
    ) -> Neighbours:
        if self._index is None:
            self._index = TaskIndex(self._train, tie_keys)
        return self._index.search(
            self._test[:, tests], k, self._weights, None if unused.all() else unused
        )

    def block(
        self, tests: Int[np.ndarray, "some"], trains: Int[np.ndarray, "others"]
    ) -> Float[np.ndarray, "some others"]:
        g, constant = self._queries(tests)
        linear = g @ _flat(self._train[:, trains]).T
        return np.maximum(constant[:, None] + self._log_beta[trains] - linear, 0.0)


class _Dense:
    """Sources that compute rows of the matrix when asked; for thousands of tasks, not millions."""

    n_test: int
    n_train: int

    def block(
        self, tests: Int[np.ndarray, "some"], trains: Int[np.ndarray, "others"]
    ) -> Float[np.ndarray, "some others"]:
        raise NotImplementedError

    def contents(self) -> tuple[UInt64[np.ndarray, "tests"], UInt64[np.ndarray, "trains"]]:
        raise NotImplementedError

    def means(self, weights: Float[np.ndarray, "tests"]) -> Float[np.ndarray, "trains"]:
        order = np.argsort(self.contents()[0], kind="stable")
        total, everything = np.zeros(self.n_train), np.arange(self.n_train)
        step = max(1, _NUMBERS // self.n_train)
        for start in range(0, self.n_test, step):
            some = order[start : start + step]
            for row, weight in zip(self.block(some, everything), weights[some], strict=True):
                total += weight * row
        return total

    def nearest(
        self,
        tests: Int[np.ndarray, "some"],
        k: int,
        unused: Bool[np.ndarray, "trains"],
        tie_keys: UInt64[np.ndarray, "trains"],
    ) -> Neighbours:
        left = np.flatnonzero(unused)
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


class MatrixSource(_Dense):
    """Distances that were computed elsewhere, (test tasks, training tasks)."""

    def __init__(self, distances: object) -> None:
        self._d = _read(distances, "distances")
        self.n_test, self.n_train = self._d.shape

    def contents(self) -> tuple[UInt64[np.ndarray, "tests"], UInt64[np.ndarray, "trains"]]:
        # sorted, so that the order of the other side's tasks plays no part
        return row_hashes(np.sort(self._d, axis=1)), row_hashes(np.sort(self._d.T, axis=1))

    def block(
        self, tests: Int[np.ndarray, "some"], trains: Int[np.ndarray, "others"]
    ) -> Float[np.ndarray, "some others"]:
        return self._d[np.ix_(tests, trains)]


class EmbeddingSource(_Dense):
    """Embeddings of another kind, such as Task2Vec, and a metric of SciPy's ``cdist``."""

    def __init__(self, test: object, train: object, metric: Any = "cosine") -> None:
        self._test, self._train = _read(test, "test"), _read(train, "train")
        if self._test.shape[1] != self._train.shape[1]:
            raise DataError(
                f"test has {self._test.shape[1]} dimensions and train {self._train.shape[1]}; "
                "embed both the same way."
            )
        self._metric = metric
        self.n_test, self.n_train = len(self._test), len(self._train)

    def contents(self) -> tuple[UInt64[np.ndarray, "tests"], UInt64[np.ndarray, "trains"]]:
        return row_hashes(self._test), row_hashes(self._train)

    def block(
        self, tests: Int[np.ndarray, "some"], trains: Int[np.ndarray, "others"]
    ) -> Float[np.ndarray, "some others"]:
        from scipy.spatial.distance import cdist

        return cdist(self._test[tests], self._train[trains], metric=self._metric)


def _flat(lam: Float[np.ndarray, "members tasks L"]) -> Float[np.ndarray, "tasks dims"]:
    return lam[0] if len(lam) == 1 else np.concatenate(list(lam), axis=1)


def _read(values: object, name: str) -> Float[np.ndarray, "rows columns"]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or array.size == 0 or not np.isfinite(array).all():
        raise DataError(f"{name} has shape {array.shape}; expected a matrix of finite numbers.")
    return array
