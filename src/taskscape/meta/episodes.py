"""From tasks to what a learner sees: rows of the pool on the host, samples on the device.

The samples of a pool go to the device once, as they are stored; a batch of tasks is then only the
row numbers of its samples, and is gathered inside the compiled loop.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from taskscape.errors import DataError
from taskscape.meta.learner import Episode, Shots
from taskscape.pools import ClassPool
from taskscape.tasks import Episodes, TaskSet, TaskStream


class EpisodeRows(eqx.Module):
    """Rows of the pool's samples by class, for one task or (leading axes) many; -1: no sample."""

    support: Int[Array, "*batch way shot"] | Int[np.ndarray, "*batch way shot"]
    query: Int[Array, "*batch way asked"] | Int[np.ndarray, "*batch way asked"]


def rows_of(tasks: TaskSet, which: slice | Int[np.ndarray, "some"] = slice(None)) -> EpisodeRows:
    """The rows of all samples of all tasks, or of some; the tasks must have queries."""
    batch = tasks.pool_rows(which)
    if batch.query.shape[2] == 0:
        raise DataError("these tasks have no queries; make them with n_query=15, for instance.")
    return EpisodeRows(
        support=np.where(batch.support_mask, batch.support, -1).astype(np.int32),
        query=np.where(batch.query_mask, batch.query, -1).astype(np.int32),
    )


def gather(
    samples: Shaped[Array, "rows *shape"], rows: EpisodeRows, dtype: type[Any] = jnp.float32
) -> Episode:
    """One task: samples as float32 (the pixels of images from 0 to 1), labels by class axis.

    A network computes in the ``dtype`` of its samples.
    """
    class_mask = jnp.asarray((rows.support >= 0).any(axis=1))
    return Episode(
        support=_shots(samples, jnp.asarray(rows.support), class_mask, dtype),
        query=_shots(samples, jnp.asarray(rows.query), class_mask, dtype),
    )


def _shots(
    samples: Shaped[Array, "rows *shape"],
    rows: Int[Array, "way n"],
    class_mask: Bool[Array, "way"],
    dtype: type[Any],
) -> Shots:
    y, flat = jnp.repeat(jnp.arange(rows.shape[0]), rows.shape[1]), rows.reshape(-1)
    mask = flat >= 0
    taken: Float[Array, "n *shape"] = samples[jnp.maximum(flat, 0)].astype(jnp.float32)
    if samples.dtype == jnp.uint8:
        taken = taken / 255
    return Shots(taken.astype(dtype), y, mask, class_mask)


@dataclass
class TaskFeed:
    """The endless row of training tasks: a fixed list, shuffled again in each epoch, or a stream.

    ``fresh_samples`` draws other samples for the tasks of a list in every epoch.
    """

    tasks: TaskSet | TaskStream
    seed: int
    fresh_samples: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.tasks, TaskStream) and self.tasks.n_tasks is not None:
            self.tasks = self.tasks.collect()
        self._shape = (0, 0, 0)

    @property
    def pool(self) -> ClassPool:
        return self.tasks.pool

    def rows(self, start: int, stop: int) -> EpisodeRows:
        """The tasks of a range of places in the row."""
        if isinstance(self.tasks, TaskStream):
            return self._padded(rows_of(self.tasks[start:stop]))
        n, parts = len(self.tasks), []
        for epoch in range(start // n, (stop - 1) // n + 1):
            order = np.random.default_rng([self.seed, epoch]).permutation(n)
            rest = order[max(start - epoch * n, 0) : stop - epoch * n]
            parts.append(rows_of(self.tasks.redrawn(epoch if self.fresh_samples else 0), rest))
        return self._padded(jax.tree.map(lambda *a: np.concatenate(a), *parts))

    def _padded(self, rows: EpisodeRows) -> EpisodeRows:
        """Pad to the largest shape seen, so that chunks of a stream compile once or twice."""
        shape = (*rows.support.shape[1:], rows.query.shape[2])
        self._shape = tuple(np.maximum(self._shape, shape).tolist())
        return pad_rows(rows, *self._shape)


def pad_rows(rows: EpisodeRows, way: int, shot: int, asked: int) -> EpisodeRows:
    """Room for more classes and samples, without any in it."""

    def pad(values: np.ndarray, n: int) -> np.ndarray:
        extra = (way - values.shape[-2], n - values.shape[-1])
        before = [(0, 0)] * (values.ndim - 2)
        return np.pad(values, [*before, (0, extra[0]), (0, extra[1])], constant_values=-1)

    return EpisodeRows(pad(np.asarray(rows.support), shot), pad(np.asarray(rows.query), asked))


def tasks_from_episodes(episodes: Episodes) -> TaskSet:
    """Tasks over a pool of their own, from plain arrays of support and query samples.

    Every class of every task becomes a class of the pool. Images are kept as 8-bit pixels.
    """
    tasks, way, shot = episodes.support_mask.shape
    both = np.concatenate([episodes.support, episodes.query], axis=2)
    per_class = both.shape[2]
    samples = both.reshape(-1, *both.shape[3:])
    pool = ClassPool.from_arrays(
        samples, np.repeat(np.arange(tasks * way), per_class), name="episodes"
    )
    classes = np.where(episodes.class_mask, np.arange(tasks * way).reshape(tasks, way), -1)
    ids = np.arange(per_class)
    return TaskSet(
        pool=pool,
        classes=classes.astype(np.int32),
        keys=np.zeros(tasks, dtype=np.uint64),
        n_shot=episodes.support_mask.sum(2).max(1).astype(np.int32),
        n_query=per_class - shot,
        support=np.where(episodes.support_mask, ids[:shot], -1),
        query=np.where(episodes.query_mask, ids[shot:], -1),
    )
