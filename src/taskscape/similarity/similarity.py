"""The contract of a similarity measure, and what the measures on features share.

An embedding is one array with the tasks along its first axis, so it is saved as it is; NaN stands
where a task has no class or no sample. Whatever its shape, only the measure that made it says how
far apart two embeddings are.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from taskscape.arguments import as_numbers
from taskscape.compare import Neighbours, TaskIndex, mean_distance
from taskscape.compare.divergences import distances, find_divergence
from taskscape.compare.posteriors import Affine, Tasks, check_together, read_posterior, row_hashes
from taskscape.errors import DataError
from taskscape.progress import progress_bar
from taskscape.tasks import TaskSet
from taskscape.themes.prepare import (
    Preparation,
    Prepare,
    PreparedSamples,
    check_prepare,
    preparation_for,
)

_NUMBERS = 1 << 23
_FEW = 8
"""Numbers of a task, besides its log-normalisers, that tell it from others."""
Tests: TypeAlias = Int[np.ndarray, "some"]
Trains: TypeAlias = Int[np.ndarray, "others"]
Block: TypeAlias = Float[np.ndarray, "some others"]
Hashes: TypeAlias = tuple[UInt64[np.ndarray, "tests"], UInt64[np.ndarray, "trains"]]
TaskVectors: TypeAlias = Any
"""An array with the tasks along its first axis, or embedded tasks."""
Embeddable: TypeAlias = TaskSet | TaskVectors
Rows: TypeAlias = Callable[[slice], Float[np.ndarray, "_ _"]]
"""The distances of a range of the first tasks to all of the others."""
_CELLS_AT_ONCE = 1 << 24


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

    def means(self) -> Float[np.ndarray, "trains"]:
        """Mean distance from the test tasks to every training task, in whatever order they are."""
        order = np.argsort(self.contents()[0], kind="stable")
        total, everything = np.zeros(self.n_train), np.arange(self.n_train)
        step = max(1, _NUMBERS // self.n_train)
        for start in range(0, self.n_test, step):
            for row in self.block(order[start : start + step], everything):
                total += row
        return total / self.n_test

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
    """

    def __init__(self, test: Tasks, train: Tasks, kind: str = "kl") -> None:
        self._kind = find_divergence(kind).name
        self._affine = kind == "kl"
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
        return np.asarray(distances(self._test, self._train, self._kind))

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

    def means(self) -> Float[np.ndarray, "trains"]:
        if not self._affine:
            return super().means()
        queries = Affine.of(self._test)
        # exactly rounded sums do not depend on the order of the test tasks
        mean_g = np.array([math.fsum(column) for column in queries.g.T]) / self.n_test
        linear = np.zeros(self.n_train)
        for column, slope in zip(self._train.values.T, mean_g, strict=True):
            linear += column * slope
        constant = math.fsum(queries.constant) / self.n_test
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
        self._d = as_numbers(distances)
        if self._d.ndim != 2 or self._d.size == 0 or not np.isfinite(self._d).all():
            raise DataError(
                f"distances have shape {self._d.shape}; expected a matrix of finite numbers, a row "
                "for every test task."
            )
        self.n_test, self.n_train = self._d.shape

    def block(self, tests: Tests, trains: Trains) -> Block:
        return self._d[np.ix_(tests, trains)]


# -- measures ---------------------------------------------------------------------------------


class Similarity(ABC):
    """A measure of how similar tasks are; one of many that can stand in for another.

    :meth:`fit` learns from training tasks what the measure needs, :meth:`embed` is then a function
    of each task alone, and :meth:`distances` takes tasks, or what :meth:`embed` made of them. A
    new measure says what these two do and gives :meth:`rows` of distances.
    """

    pairs_at_once: int = 1 << 20
    """How many distances are computed between two steps of the progress bar."""
    cheap: bool = False
    """Whether distances are computed each time they are asked for, and never kept as a matrix."""
    symmetric: bool = True
    """Whether the distance there is the distance back."""

    @classmethod
    def usual(cls, seed: int, updates: int | None) -> "Similarity":
        """The measure with its usual settings; ``updates`` is for those that train a network."""
        return cls()

    @abstractmethod
    def fit(self, tasks: TaskSet) -> "Similarity":
        """Learn from the training tasks."""

    @abstractmethod
    def embed(self, tasks: TaskSet) -> TaskVectors:
        """The embedding of every task."""

    @abstractmethod
    def rows(self, a: TaskVectors, b: TaskVectors) -> Rows:
        """A function that gives rows of the distances from ``a`` to ``b``."""

    def distances(self, test: Embeddable, train: Embeddable) -> DistanceSource:
        """The distances from test tasks to training tasks, for rules, diagrams and studies."""
        return TaskDistances(self, self._embedded(test, "test"), self._embedded(train, "train"))

    def cdist(self, test: Embeddable, train: Embeddable) -> Float[np.ndarray, "tests trains"]:
        """Distance from every test task to every training task."""
        return self.distances(test, train).matrix()

    def _embedded(self, tasks: Embeddable, name: str) -> TaskVectors:
        values = self.embed(tasks) if isinstance(tasks, TaskSet) else np.asarray(tasks)
        if values.ndim < 2 or len(values) == 0:
            raise DataError(
                f"{name} has shape {values.shape}; expected tasks, or what embed made of them."
            )
        return values


class TaskDistances(DistanceSource):
    """Distances between embedded tasks; the matrix is kept unless the measure is ``cheap``."""

    def __init__(self, similarity: Similarity, test: TaskVectors, train: TaskVectors) -> None:
        if test.ndim != train.ndim or test.shape[-1] != train.shape[-1]:
            raise DataError(
                f"embeddings of shapes {test.shape} and {train.shape} cannot be compared; "
                "embed both with the same settings."
            )
        self._similarity, self._test, self._train = similarity, test, train
        self._matrix: Float[np.ndarray, "tests trains"] | None = None
        self.n_test, self.n_train = len(test), len(train)

    def block(self, tests: Tests, trains: Trains) -> Block:
        if not self._similarity.cheap:
            return self.matrix()[np.ix_(tests, trains)]
        rows = self._similarity.rows(self._test[tests], self._train[trains])
        return rows(slice(0, len(tests)))

    def matrix(self) -> Float[np.ndarray, "tests trains"]:
        if self._matrix is not None:
            return self._matrix
        matrix = np.empty((self.n_test, self.n_train))
        for part, block in self._parts():
            matrix[part] = block
        if not self._similarity.cheap:
            self._matrix = matrix
        return matrix

    def mean_distance(self) -> Float[np.ndarray, "tests"]:
        if self._matrix is not None:
            return self._matrix.mean(axis=1)
        return np.concatenate([block.mean(axis=1) for _, block in self._parts()])

    def contents(self) -> Hashes:
        if not self._similarity.cheap:
            return super().contents()
        test, train = (row_hashes(e.reshape(len(e), -1)) for e in (self._test, self._train))
        return test, train

    def _parts(self) -> Iterator[tuple[slice, Float[np.ndarray, "some trains"]]]:
        rows = self._similarity.rows(self._test, self._train)
        step = max(1, self._similarity.pairs_at_once // self.n_train)
        with progress_bar("distances between tasks", self.n_test) as advance:
            for start in range(0, self.n_test, step):
                part = slice(start, min(start + step, self.n_test))
                yield part, rows(part)
                advance(part.stop - part.start)


@dataclass(frozen=True)
class TaskFeatures:
    """Prepared support samples of some tasks; padded samples are zero and masked."""

    x: Float[np.ndarray, "tasks way shot dims"]
    mask: Bool[np.ndarray, "tasks way shot"]


class FeatureSimilarity(Similarity):
    """A similarity measure that looks at prepared features of the support samples.

    ``prepare`` is as in :class:`taskscape.TaskThemes`: ``"auto"`` chooses steps by the data, None
    takes features as they are. What the steps learn, they learn from the training tasks' classes.
    """

    def __init__(self, *, prepare: Prepare = "auto") -> None:
        check_prepare(prepare)
        self.prepare = prepare
        self.preparation_: Preparation | None = None

    def fit(self, tasks: TaskSet) -> "FeatureSimilarity":
        if len(tasks) == 0:
            raise DataError("there are no tasks to fit on.")
        self.preparation_ = preparation_for(self.prepare, tasks.pool, tasks.class_ids)
        self.n_features_in_ = int(np.prod(tasks.pool.sample_shape))
        return self

    def embed(self, tasks: TaskSet) -> TaskVectors:
        features = support_features(tasks, self._fitted(tasks))
        parts = [self.embed_features(f) for f in features]
        most = [max(p.shape[i] for p in parts) for i in range(1, parts[0].ndim)]
        return np.concatenate([_pad(p, most) for p in parts])

    def embed_features(self, features: TaskFeatures) -> TaskVectors:
        """The embedding of some tasks, from their prepared samples."""
        raise NotImplementedError

    def _fitted(self, tasks: TaskSet) -> Preparation:
        """What :meth:`fit` learned, after a check that these tasks can be embedded."""
        if self.preparation_ is None:
            raise DataError(f"{type(self).__name__} is not fitted; call fit(train_tasks) first.")
        if len(tasks) == 0:
            raise DataError("there are no tasks to embed.")
        dims = int(np.prod(tasks.pool.sample_shape))
        if dims != self.n_features_in_:
            raise DataError(
                f"samples of {tasks.pool!r} have {dims} dimensions; {type(self).__name__} was "
                f"fitted on {self.n_features_in_}. Use the same kind of data, size and encoder."
            )
        return self.preparation_


def support_features(tasks: TaskSet, preparation: Preparation) -> Iterator[TaskFeatures]:
    """The prepared support samples of all tasks, as many tasks at a time as fit in memory."""
    prepared = PreparedSamples(tasks.pool, preparation, tasks.class_ids)
    step = max(1, _CELLS_AT_ONCE // (tasks.max_way * tasks.max_shot * preparation.dims))
    with progress_bar("embedding tasks", len(tasks)) as advance:
        for batch in tasks.batches(step):
            x = np.zeros((*batch.support_mask.shape, preparation.dims), dtype=np.float32)
            x[batch.support_mask] = prepared.take(batch.support[batch.support_mask])
            yield TaskFeatures(x, batch.support_mask)
            advance(len(batch))


def class_means(features: TaskFeatures) -> Float[np.ndarray, "tasks way dims"]:
    """The mean of each class's support samples, NaN where there is no class."""
    count = features.mask.sum(axis=2)[..., None]
    total = features.x.sum(axis=2, dtype=np.float64)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _pad(values: TaskVectors, shape: list[int]) -> TaskVectors:
    """Room for more classes and samples, filled with NaN."""
    extra = [(0, 0), *((0, n - have) for n, have in zip(shape, values.shape[1:], strict=True))]
    return np.pad(values, extra, constant_values=np.nan)
