"""The contract of a notion of similarity: tasks in, embeddings out, distances out.

An embedding is one array with the tasks along its first axis, so it is saved as it is; NaN stands
where a task has no class or no sample. Whatever its shape, only the notion that made it says how
far apart two embeddings are.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Int, UInt64

from taskscape.compare import DIVERGENCES, mean_kl
from taskscape.compare import cdist as theme_cdist
from taskscape.compare.rows import row_hashes
from taskscape.errors import DataError
from taskscape.progress import progress_bar
from taskscape.select.sources import DistanceSource, KLSource, MatrixSource, _Dense
from taskscape.tasks import TaskSet

__all__ = ["Rows", "TaskDistances", "TaskEmbedding", "TaskVectors", "ThemeEmbedding"]

TaskVectors: TypeAlias = Float[np.ndarray, "_ ..."]
Rows: TypeAlias = Callable[[slice], Float[np.ndarray, "_ _"]]
"""The distances of a range of the first tasks to all of the others."""


class TaskEmbedding(ABC):
    """A notion of how similar tasks are; one of many that can stand in for another.

    :meth:`fit` learns from training tasks what the notion needs, :meth:`embed` is then a function
    of each task alone. Distances take tasks, or what :meth:`embed` made of them.
    """

    pairs_at_once: int = 1 << 20
    """How many distances are computed between two steps of the progress bar."""

    @abstractmethod
    def fit(self, tasks: TaskSet) -> "TaskEmbedding":
        """Learn from the training tasks."""

    @abstractmethod
    def embed(self, tasks: TaskSet) -> TaskVectors:
        """The embedding of every task."""

    @abstractmethod
    def rows(self, a: TaskVectors, b: TaskVectors) -> Rows:
        """A function that gives rows of the distances from ``a`` to ``b``."""

    def cdist(
        self, a: TaskSet | TaskVectors, b: TaskSet | TaskVectors
    ) -> Float[np.ndarray, "tasks others"]:
        """Distance from every task of ``a`` (test tasks) to every task of ``b`` (training)."""
        first, second = self._embedded(a, "a"), self._embedded(b, "b")
        found = np.empty((len(first), len(second)))
        for some, distances in self._blocks(first, second):
            found[some] = distances
        return found

    def mean_distance(
        self, test: TaskSet | TaskVectors, train: TaskSet | TaskVectors
    ) -> Float[np.ndarray, "tasks"]:
        """Mean distance from each test task to all training tasks: the diagram's horizontal axis.

        The matrix of all distances is never in memory.
        """
        first, second = self._embedded(test, "test"), self._embedded(train, "train")
        return np.concatenate([d.mean(axis=1) for _, d in self._blocks(first, second)])

    def source(self, test: TaskSet | TaskVectors, train: TaskSet | TaskVectors) -> DistanceSource:
        """The distances as :func:`taskscape.select.select_by` takes them."""
        return MatrixSource(self.cdist(test, train))

    def _embedded(self, tasks: TaskSet | TaskVectors, name: str) -> TaskVectors:
        values = self.embed(tasks) if isinstance(tasks, TaskSet) else np.asarray(tasks)
        if values.ndim < 2 or len(values) == 0:
            raise DataError(
                f"{name} has shape {values.shape}; expected tasks, or what embed made of them."
            )
        return values

    def _blocks(self, a: TaskVectors, b: TaskVectors) -> Any:
        if a.ndim != b.ndim or a.shape[-1] != b.shape[-1]:
            raise DataError(
                f"embeddings of shapes {a.shape} and {b.shape} cannot be compared; "
                "embed both with the same settings."
            )
        rows, step = self.rows(a, b), max(1, self.pairs_at_once // len(b))
        with progress_bar("distances between tasks", len(a)) as advance:
            for start in range(0, len(a), step):
                some = slice(start, min(start + step, len(a)))
                yield some, rows(some)
                advance(some.stop - some.start)


class TaskDistances(_Dense):
    """Distances of vectors that are cheap to compute, made when a selection rule asks for them."""

    def __init__(self, notion: TaskEmbedding, test: TaskVectors, train: TaskVectors) -> None:
        self._notion, self._test, self._train = notion, test, train
        self.n_test, self.n_train = len(test), len(train)

    def contents(self) -> tuple[UInt64[np.ndarray, "tests"], UInt64[np.ndarray, "trains"]]:
        return row_hashes(_flat(self._test)), row_hashes(_flat(self._train))

    def block(
        self, tests: Int[np.ndarray, "some"], trains: Int[np.ndarray, "others"]
    ) -> Float[np.ndarray, "some others"]:
        rows = self._notion.rows(self._test[tests], self._train[trains])
        return rows(slice(0, len(tests)))


class ThemeEmbedding(TaskEmbedding):
    """Task-themes as one notion among others: λ, with a divergence between Dirichlet posteriors.

    ``model`` is a :class:`taskscape.TaskThemes`, or anything whose ``transform(tasks)`` gives λ
    (tasks, L), or (members, tasks, L) for an ensemble. A model that is fitted already need not be
    fitted again. Embeddings are λ; those of an ensemble are (tasks, members, L). ``kind`` is the
    divergence and ``alpha`` what ``"emd"`` needs besides.
    """

    def __init__(self, model: Any, kind: str = "kl", *, alpha: Any = None) -> None:
        if kind not in DIVERGENCES:
            raise DataError(
                f"kind={kind!r} is not a divergence; use one of {', '.join(DIVERGENCES)}."
            )
        if not hasattr(model, "transform"):
            raise DataError(
                f"model is {type(model).__name__}; expected something with transform(tasks), such "
                "as TaskThemes. λ that you have already go straight to cdist and mean_distance."
            )
        self.model, self.kind, self.alpha = model, kind, alpha

    def fit(self, tasks: TaskSet) -> "ThemeEmbedding":
        self.model.fit(tasks)
        return self

    def embed(self, tasks: TaskSet) -> TaskVectors:
        lam = np.asarray(self.model.transform(tasks), dtype=np.float64)
        return lam if lam.ndim == 2 else np.moveaxis(lam, 0, 1)

    def rows(self, a: TaskVectors, b: TaskVectors) -> Rows:
        # whole, not by blocks: an ensemble divides by each member's mean over all pairs
        distances = theme_cdist(_members_first(a), _members_first(b), self.kind, alpha=self.alpha)
        return lambda some: distances[some]

    def mean_distance(
        self, test: TaskSet | TaskVectors, train: TaskSet | TaskVectors
    ) -> Float[np.ndarray, "tasks"]:
        a, b = self._embedded(test, "test"), self._embedded(train, "train")
        if self.kind == "kl":  # exact from two means over the training tasks
            return mean_kl(_members_first(a), _members_first(b))
        return super().mean_distance(a, b)

    def source(self, test: TaskSet | TaskVectors, train: TaskSet | TaskVectors) -> DistanceSource:
        if self.kind != "kl":
            return super().source(test, train)
        a, b = self._embedded(test, "test"), self._embedded(train, "train")
        return KLSource(_members_first(a), _members_first(b))


def _members_first(lam: TaskVectors) -> Float[np.ndarray, "*members tasks L"]:
    return lam if lam.ndim == 2 else np.moveaxis(lam, 1, 0)


def _flat(values: TaskVectors) -> Float[np.ndarray, "tasks numbers"]:
    return values.reshape(len(values), -1)
