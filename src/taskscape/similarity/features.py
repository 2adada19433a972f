"""What notions of similarity on features share: preparation learned in fit, samples by task."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.progress import progress_bar
from taskscape.similarity.similarity import TaskEmbedding, TaskVectors
from taskscape.tasks import TaskBatch, TaskSet
from taskscape.themes.prepare import (
    Preparation,
    PrepareConfig,
    PreparedSamples,
    choose_config,
    learn_preparation,
)

__all__ = ["FeatureEmbedding", "Prepare", "TaskFeatures"]

Prepare: TypeAlias = PrepareConfig | str | None
_CELLS_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class TaskFeatures:
    """Prepared support samples of some tasks; padded samples are zero and masked."""

    x: Float[np.ndarray, "tasks way shot dims"]
    mask: Bool[np.ndarray, "tasks way shot"]


class FeatureEmbedding(TaskEmbedding):
    """A notion of similarity that looks at prepared features of the support samples.

    ``prepare`` is as in :class:`taskscape.TaskThemes`: ``"auto"`` chooses steps by the data, None
    takes features as they are. What the steps learn, they learn from the training tasks' classes.
    """

    def __init__(self, *, prepare: Prepare = "auto") -> None:
        if prepare not in (None, "auto") and not isinstance(prepare, PrepareConfig):
            raise DataError(f"prepare={prepare!r} must be 'auto', None or a PrepareConfig.")
        self.prepare = prepare
        self.preparation_: Preparation | None = None

    def fit(self, tasks: TaskSet) -> "FeatureEmbedding":
        if len(tasks) == 0:
            raise DataError("there are no tasks to fit on.")
        classes = classes_of(tasks)
        if isinstance(self.prepare, PrepareConfig):
            config = self.prepare
        elif self.prepare is None:
            config = PrepareConfig(centre=False, pca=None)
        else:
            config = choose_config(tasks.pool, classes)
        self.preparation_ = learn_preparation(tasks.pool, classes, config)
        return self

    def embed(self, tasks: TaskSet) -> TaskVectors:
        parts = [self._embed(f) for f in self._features(tasks)]
        most = [max(p.shape[i] for p in parts) for i in range(1, parts[0].ndim)]
        return np.concatenate([pad(p, most) for p in parts])

    def _embed(self, features: TaskFeatures) -> TaskVectors:
        """The embedding of some tasks, from their prepared samples."""
        raise NotImplementedError

    def _features(self, tasks: TaskSet) -> Iterator[TaskFeatures]:
        """The prepared support samples of all tasks, some tasks at a time."""
        for batch, prepared in self._batches(tasks, tasks.max_shot):
            yield gather(prepared, batch.support, batch.support_mask)

    def _batches(
        self, tasks: TaskSet, per_class: int
    ) -> Iterator[tuple[TaskBatch, PreparedSamples]]:
        preparation = self._fitted(tasks)
        prepared = PreparedSamples(tasks.pool, preparation, classes_of(tasks))
        step = max(1, _CELLS_AT_ONCE // (tasks.max_way * per_class * preparation.dims))
        with progress_bar("embedding tasks", len(tasks)) as advance:
            for batch in tasks.batches(step):
                yield batch, prepared
                advance(len(batch))

    def _fitted(self, tasks: TaskSet) -> Preparation:
        """What :meth:`fit` learned, after a check that these tasks can be embedded."""
        if self.preparation_ is None:
            raise DataError(f"{type(self).__name__} is not fitted; call fit(train_tasks) first.")
        if len(tasks) == 0:
            raise DataError("there are no tasks to embed.")
        dims, want = int(np.prod(tasks.pool.sample_shape)), len(self.preparation_.mean)
        if dims != want:
            raise DataError(
                f"samples of {tasks.pool!r} have {dims} dimensions; {type(self).__name__} was "
                f"fitted on {want}. Use the same kind of data, size and encoder."
            )
        return self.preparation_


def gather(
    prepared: PreparedSamples,
    rows: Int[np.ndarray, "tasks way shot"],
    mask: Bool[np.ndarray, "tasks way shot"],
) -> TaskFeatures:
    """The prepared samples in these rows of the pool."""
    x = np.zeros((*mask.shape, prepared.preparation.dims), dtype=np.float32)
    x[mask] = prepared.take(rows[mask])
    return TaskFeatures(x, mask)


def classes_of(tasks: TaskSet) -> np.ndarray:
    """The classes that occur in the tasks, ascending."""
    return np.unique(tasks.classes[tasks.classes >= 0]).astype(np.int64)


def prepared_pool(tasks: TaskSet, preparation: Preparation) -> ClassPool:
    """A pool of the tasks' classes whose samples are prepared features."""
    pool = tasks.pool
    return ClassPool.from_classes(
        {
            pool.class_names[c]: preparation(
                pool.take(pool.starts[c] + np.arange(pool.counts[c], dtype=np.int64))
            )
            for c in classes_of(tasks)
        },
        name=f"{pool.name} (prepared)",
    )


def class_means(features: TaskFeatures) -> Float[np.ndarray, "tasks way dims"]:
    """The mean of each class's support samples, NaN where there is no class."""
    count = features.mask.sum(axis=2)[..., None]
    total = features.x.sum(axis=2, dtype=np.float64)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def pad(values: TaskVectors, shape: list[int]) -> TaskVectors:
    """Room for more classes and samples, filled with NaN."""
    extra = [(0, 0), *((0, n - have) for n, have in zip(shape, values.shape[1:], strict=True))]
    return np.pad(values, extra, constant_values=np.nan)
