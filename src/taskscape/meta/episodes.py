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
from taskscape.tasks import TaskSet, TaskStream


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

    def rows(self, start: int, stop: int) -> EpisodeRows:
        """The tasks of a range of places in the row."""
        if isinstance(self.tasks, TaskStream):
            return rows_of(self.tasks[start:stop])
        n, parts = len(self.tasks), []
        for epoch in range(start // n, (stop - 1) // n + 1):
            order = np.random.default_rng([self.seed, epoch]).permutation(n)
            rest = order[max(start - epoch * n, 0) : stop - epoch * n]
            parts.append(rows_of(self.tasks.redrawn(epoch if self.fresh_samples else 0), rest))
        return jax.tree.map(lambda *a: np.concatenate(a), *parts)
