"""Where the samples that tasks hold are in an array of all samples of some classes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt64

from taskscape.model.fixed_point import kept_once
from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet
from taskscape.tasks.draws import distinct, subkeys
from taskscape.tasks.taskset import ALL

_DRAWN_ON_DEVICE = 32
"""Samples of a class at most; a longer draw takes long to compile."""


class SamplePlaces:
    """An array with all samples of some classes of a pool, in the pool's order: what is where.

    Or, where ``rows`` are given, with these rows of the pool, ascending.
    """

    def __init__(
        self,
        pool: ClassPool,
        classes: Int[np.ndarray, "some"],
        rows: Int[np.ndarray, "rows"] | None = None,
    ) -> None:
        self.rows: Int[np.ndarray, "rows"] = all_rows(pool, classes) if rows is None else rows
        """The rows of the pool that the array holds."""
        self.where = np.full(len(pool.samples), -1, dtype=np.int32)
        self.where[self.rows] = np.arange(len(self.rows), dtype=np.int32)
        self.starts = self.where[pool.starts]
        """Where each class of the pool begins."""
        self.counts = pool.counts.astype(np.int32)

    def find(
        self, tasks: TaskSet, way: int, shot: int, size: int
    ) -> tuple[Int[Array, "N C M"], Bool[Array, "N C M"]]:
        """Where the samples of the classes of tasks are, side by side; ``size`` tasks with padding.

        An accelerator draws them itself.
        """
        on_cpu = jax.default_backend() == "cpu"
        if on_cpu or tasks.support is not None or shot > _DRAWN_ON_DEVICE:
            drawn = tasks.pool_rows(slice(None))
            m, c, n = drawn.support.shape
            fill = ((0, size - m), (0, way - c), (0, shot - n))
            index = np.where(drawn.support_mask, self.where[drawn.support], 0).astype(np.int32)
            masked = np.pad(drawn.support_mask, fill)
            return jax.device_put((np.pad(index, fill).T, masked.T))
        with jax.enable_x64(True):
            return _draw(
                np.resize(tasks.keys, size),
                class_rows(tasks, way, size),
                np.resize(tasks.n_shot.astype(np.int32), size),
                np.int32(tasks.n_query),
                self.starts,
                self.counts,
                shot,
            )


def all_rows(pool: ClassPool, classes: Int[np.ndarray, "some"]) -> Int[np.ndarray, "rows"]:
    """The rows of ``pool.samples`` that belong to these classes, ascending."""
    parts = [pool.starts[c] + np.arange(pool.counts[c]) for c in classes]
    return np.sort(np.concatenate(parts))


def evenly_spaced(values: Int[np.ndarray, "n"], most: int) -> Int[np.ndarray, "some"]:
    """All values, or so many from the first to the last."""
    if len(values) <= most:
        return values
    return values[np.linspace(0, len(values) - 1, most).astype(np.int64)]


def class_rows(tasks: TaskSet, way: int, size: int) -> Int[np.ndarray, "C M"]:
    """The classes of tasks, side by side, -1 where there is none."""
    rows = np.full((way, size), -1, dtype=np.int32)
    rows[: tasks.classes.shape[1], : len(tasks)] = tasks.classes.T
    return rows


@partial(jax.jit, static_argnames="shot")
def _draw(
    keys: UInt64[Array, " M"],
    classes: Int[Array, "C M"],
    n_shot: Int[Array, " M"],
    n_query: Int[Array, ""],
    starts: Int[Array, " P"],
    counts: Int[Array, " P"],
    shot: int,
) -> tuple[Int[Array, "N C M"], Bool[Array, "N C M"]]:
    """The samples that tasks draw, as ``TaskSet.pool_rows`` draws them."""
    real, classes = classes >= 0, jnp.maximum(classes, 0)
    own = counts[classes]
    of_tasks = jnp.broadcast_to(keys, classes.shape)
    each, of = subkeys(of_tasks, classes).reshape(-1), own.reshape(-1).astype(jnp.int64)
    ids = distinct(each, of, shot, jnp, kept_once).astype(jnp.int32)
    ids = ids.T.reshape(shot, *classes.shape)
    mask = jnp.arange(shot)[:, None, None] < jnp.where(n_shot == ALL, own - n_query, n_shot)
    mask = mask & real
    return jnp.where(mask, starts[classes] + ids, 0), mask
