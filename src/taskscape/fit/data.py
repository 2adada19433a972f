"""Tasks as the fit sees them: prepared samples, each once, and where the tasks use them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass
from jaxtyping import Array, Bool, Float, Int

from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.prepare import PreparedSamples
from taskscape.tasks import TaskSet, TaskStream

__all__ = ["FitBatch", "TaskSource", "gather", "padded_size"]


@register_dataclass
@dataclass(frozen=True, eq=False)
class FitBatch:
    """A mini-batch: the distinct samples in it, and for each task which of them it holds.

    A sample's log-likelihood does not depend on its task, so it is computed once however often the
    sample occurs.
    """

    x: Float[Array, "U D"]
    index: Int[Array, "M C N"]
    sample_mask: Bool[Array, "M C N"]
    class_mask: Bool[Array, "M C"]


def padded_size(n: int, least: int = 256) -> int:
    """The next of 1, 1.5, 2, 3, 4, 6, … times ``least``: few shapes, so few compilations.

    >>> [padded_size(n) for n in (1, 256, 300, 400, 1000)]
    [256, 256, 384, 512, 1024]
    """
    size = least
    while size < n:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size


def gather(
    tasks: TaskSet, prepared: PreparedSamples, shape: tuple[int, int, int], room: int = 0
) -> FitBatch:
    """The samples of some tasks, padded to (tasks, classes, samples) = ``shape``.

    ``room`` pads the distinct samples further, so that several batches have one shape.
    """
    M, C, N = shape
    batch = tasks.batch(slice(None))
    m, c, n = batch.support.shape
    if m > M or c > C or n > N:
        raise ValueError(f"tasks of shape {(m, c, n)} do not fit into {shape}")
    rows, where = np.unique(batch.support[batch.support_mask], return_inverse=True)
    x = np.zeros((max(room, padded_size(len(rows))), prepared.preparation.dims), dtype=np.float32)
    x[: len(rows)] = prepared.take(rows)
    index = np.zeros((M, C, N), dtype=np.int32)
    index[:m, :c, :n][batch.support_mask] = where
    sample_mask, class_mask = np.zeros((M, C, N), dtype=bool), np.zeros((M, C), dtype=bool)
    sample_mask[:m, :c, :n] = batch.support_mask
    class_mask[:m, :c] = batch.class_mask
    return FitBatch(
        jnp.asarray(x, dtype=float),
        jnp.asarray(index),
        jnp.asarray(sample_mask),
        jnp.asarray(class_mask),
    )


@dataclass(frozen=True, eq=False)
class TaskSource:
    """Mini-batches of tasks by number: shuffled passes over a set, or slices of a stream.

    Mini-batch ``t`` depends on the seed and ``t`` alone, so a fit can go on where it was stopped.
    """

    pool: ClassPool
    tasks: TaskSet | TaskStream
    seed: int
    skip: int = 0
    """Tasks at the head of a stream that are held out."""

    @staticmethod
    def of(
        tasks: TaskSet | TaskStream | Iterable[TaskSet], seed: int, held_out: int
    ) -> "tuple[TaskSource, TaskSet]":
        """A source, and tasks held out from it to judge the fit by."""
        if isinstance(tasks, TaskStream):
            reserve = held_out
            if tasks.n_tasks is not None:
                _check_enough(tasks.n_tasks)
                reserve = min(held_out, max(1, tasks.n_tasks // 10))
            return TaskSource(tasks.pool, tasks, seed, reserve), tasks[:reserve]
        if not isinstance(tasks, TaskSet):
            tasks = TaskSet.concatenate(list(tasks))
        _check_enough(len(tasks))
        reserve = min(held_out, max(1, len(tasks) // 10))
        order = np.random.default_rng([seed, 0]).permutation(len(tasks))
        kept = np.sort(order[reserve:])
        return TaskSource(tasks.pool, tasks[kept], seed), tasks[np.sort(order[:reserve])]

    @property
    def n_tasks(self) -> int | None:
        """Tasks in a pass; None for a stream without end."""
        if isinstance(self.tasks, TaskStream) and self.tasks.n_tasks is None:
            return None
        return len(self.tasks) - self.skip

    def steps_per_pass(self, batch_size: int) -> int | None:
        """Mini-batches in a pass; a small remainder is left to another pass's shuffle."""
        return None if self.n_tasks is None else max(1, self.n_tasks // batch_size)

    def batch(self, t: int, batch_size: int) -> TaskSet:
        """The tasks of mini-batch ``t``."""
        steps = self.steps_per_pass(batch_size)
        if isinstance(self.tasks, TaskStream):
            at = self.skip + (t if steps is None else t % steps) * batch_size
            return self.tasks[at : at + batch_size]
        assert steps is not None
        order = np.random.default_rng([self.seed, 1 + t // steps]).permutation(len(self.tasks))
        at = (t % steps) * batch_size
        return self.tasks[order[at : at + batch_size]]

    def all_batches(self, batch_size: int) -> Iterator[TaskSet]:
        """A pass in order, every task once."""
        if self.n_tasks is None:
            raise DataError("a stream without end has no full pass; use method='online'.")
        for start in range(self.skip, self.skip + self.n_tasks, batch_size):
            yield self.tasks[start : min(start + batch_size, self.skip + self.n_tasks)]


def _check_enough(n_tasks: int) -> None:
    if n_tasks < 2:
        raise DataError(f"a fit needs at least 2 tasks, got {n_tasks}.")
