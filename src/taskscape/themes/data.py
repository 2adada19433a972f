"""Tasks as the fit sees them: prepared samples, each once, and where the tasks use them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.tree_util import register_dataclass
from jaxtyping import Array, Bool, Float, Int

from taskscape.distributed.mesh import own_places, split_over_devices
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet, TaskStream
from taskscape.tasks.draws import task_keys
from taskscape.themes.places import class_rows
from taskscape.themes.prepare import PreparedSamples

_LEAST_CLASSES = 30
"""With fewer classes, none are held out."""
_LEAST_HELD_OUT = 5
_LEAST_GROUPS = 5
"""With fewer groups, single classes are held out."""
_LIKE = 4096
"""Most tasks whose numbers of classes and samples the tasks of held-out classes take over."""


@register_dataclass
@dataclass(frozen=True, eq=False)
class FitBatch:
    """A mini-batch: its samples, each once, or all that there are; which of them each task holds.

    A sample's log-likelihood does not depend on its task, so it is computed once however often the
    sample occurs. On a mesh, all arrays are split over the devices, ``x`` too: each device has the
    samples of its own tasks, and ``index`` counts among these.
    """

    x: Float[Array, "U D"]
    index: Int[Array, "M C N"]
    sample_mask: Bool[Array, "M C N"]
    class_mask: Bool[Array, "M C"]
    mesh: Mesh | None = field(default=None, metadata={"static": True})


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
    tasks: TaskSet,
    prepared: PreparedSamples,
    shape: tuple[int, int, int],
    room: int = 0,
    mesh: Mesh | None = None,
) -> FitBatch:
    """The samples of some tasks, padded to (tasks, classes, samples) = ``shape``.

    ``room`` pads the distinct samples further, so that several batches have one shape. Where tasks
    could hold most of the samples that there are, the batch has all of them, which are on the
    device already.
    """
    if mesh is not None:
        return _gather_shares(tasks, prepared, shape, mesh)
    M, C, N = shape
    index, mask = (value.T for value in prepared.find(tasks, C, N, M))
    class_mask = jax.device_put(class_rows(tasks, C, M).T >= 0)
    everything = prepared.on_device
    # an accelerator does more samples at once rather than wait for a list of those it needs
    reach = M * C * N * (0.5 if jax.default_backend() == "cpu" else 4.0)
    if everything is not None and len(everything) <= reach:
        return FitBatch(everything, index, mask, class_mask)
    held, where = np.unique(np.asarray(index)[np.asarray(mask)], return_inverse=True)
    places = np.resize(held, max(room, padded_size(len(held))))
    x = prepared.to_device(prepared.rows[places])
    own = np.zeros(shape, dtype=np.int32)
    own[np.asarray(mask)] = where
    return FitBatch(x, jnp.asarray(own), mask, class_mask)


def _gather_shares(
    tasks: TaskSet, prepared: PreparedSamples, shape: tuple[int, int, int], mesh: Mesh
) -> FitBatch:
    """The same with the tasks split over devices: this process looks up those of its own devices.

    The number of tasks is rounded up to what the devices can share evenly.
    """
    M, C, N = shape
    share = -(-M // mesh.size)
    room = padded_size(min(share * C * N, len(prepared.rows)))
    parts = []
    for place in own_places(mesh):
        own = tasks[place * share : (place + 1) * share]
        if not len(own):  # more devices than tasks
            own = replace(tasks[:1], classes=np.full_like(tasks.classes[:1], -1))
        parts.append(gather(own, prepared, (share, C, N), room))
    if all(part.x is prepared.on_device for part in parts):
        x = prepared.on_devices(mesh)
    else:
        x = split_over_devices([part.x for part in parts], mesh)
    index, sample_mask, class_mask = (
        split_over_devices([getattr(part, name) for part in parts], mesh)
        for name in ("index", "sample_mask", "class_mask")
    )
    return FitBatch(x, index, sample_mask, class_mask, mesh)


@dataclass(frozen=True, eq=False)
class TaskSource:
    """Mini-batches of tasks by number: shuffled passes over a set, or slices of a stream.

    Mini-batch ``t`` depends on the seed and ``t`` alone, so a fit can resume where it stopped.
    """

    pool: ClassPool
    tasks: TaskSet | TaskStream
    seed: int
    skip: int = 0
    """Tasks at the head of a stream that are held out."""
    held_out: frozenset[int] = frozenset()
    """Classes that are held out: tasks are learned from without them."""

    @staticmethod
    def of(
        tasks: TaskSet | TaskStream | Iterable[TaskSet], seed: int, held_out: int, least: int = 2
    ) -> "tuple[TaskSource, TaskSet]":
        """A source, and tasks to evaluate the fit by: of classes held out from it, if it can be.

        Where there are too few classes for that (``least`` must be left), or tasks list their
        samples one by one, some tasks are set aside, which share their classes with the others.
        """
        if not isinstance(tasks, TaskSet | TaskStream):
            tasks = TaskSet.concatenate(list(tasks))
        n_tasks = check_enough(tasks)
        classes = classes_to_hold_out(tasks.pool, tasks.class_ids, least)
        listed = isinstance(tasks, TaskSet) and tasks.support is not None
        if len(classes) and held_out and not listed:
            evaluated = tasks_of(classes, tasks[:_LIKE], held_out)
            return TaskSource(tasks.pool, tasks, seed, 0, frozenset(classes.tolist())), evaluated
        reserve = held_out if n_tasks is None else min(held_out, max(1, n_tasks // 10))
        if isinstance(tasks, TaskStream):
            return TaskSource(tasks.pool, tasks, seed, reserve), tasks[:reserve]
        order = np.random.default_rng([seed, 0]).permutation(len(tasks))
        kept = np.sort(order[reserve:])
        return TaskSource(tasks.pool, tasks[kept], seed), tasks[np.sort(order[:reserve])]

    def without_held_out(self, tasks: TaskSet) -> TaskSet:
        """The tasks without the classes that are held out; a task may have none left."""
        if not self.held_out:
            return tasks
        classes = tasks.classes.copy()
        classes[np.isin(classes, list(self.held_out))] = -1
        return replace(tasks, classes=classes)

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
            return self.without_held_out(self.tasks[at : at + batch_size])
        assert steps is not None
        order = np.random.default_rng([self.seed, 1 + t // steps]).permutation(len(self.tasks))
        at = (t % steps) * batch_size
        return self.without_held_out(self.tasks[order[at : at + batch_size]])

    def all_batches(self, batch_size: int) -> Iterator[TaskSet]:
        """A pass in order, every task once."""
        if self.n_tasks is None:
            raise DataError("a stream without end has no full pass; use method='online'.")
        for start in range(self.skip, self.skip + self.n_tasks, batch_size):
            stop = min(start + batch_size, self.skip + self.n_tasks)
            yield self.without_held_out(self.tasks[start:stop])


def classes_to_hold_out(
    pool: ClassPool, classes: Int[np.ndarray, "some"], least: int
) -> Int[np.ndarray, "held_out"]:
    """A tenth of the classes, in whole groups where there are enough; none of too few.

    Which ones follows from the classes alone, not from a seed: all fits to the same classes learn
    from the same ones.
    """
    most = max(_LEAST_HELD_OUT, len(classes) // 10)
    if len(classes) < _LEAST_CLASSES or len(classes) - most < least:
        return classes[:0]
    if pool.groups is not None:
        group = np.asarray(pool.groups)[classes]
        names, sizes = np.unique(group, return_counts=True)
        held: list[str] = []
        for i in np.random.default_rng(len(names)).permutation(len(names)):
            if sizes[np.isin(names, held)].sum() + sizes[i] <= most:
                held.append(str(names[i]))
        chosen = classes[np.isin(group, held)]
        if len(names) >= _LEAST_GROUPS and 2 * len(chosen) >= most:
            return chosen
    return np.sort(np.random.default_rng(len(classes)).permutation(classes)[:most])


def tasks_of(classes: Int[np.ndarray, "some"], like: TaskSet, n_tasks: int) -> TaskSet:
    """Tasks of these classes, with as many classes and samples as other tasks have."""
    index = np.arange(n_tasks)
    ways = np.minimum(np.maximum(like.n_way, 1), len(classes))[index % len(like)]
    rng = np.random.default_rng(len(classes))
    drawn = np.stack([rng.permutation(classes)[: ways.max()] for _ in index])
    drawn[np.arange(ways.max()) >= ways[:, None]] = -1
    return TaskSet(
        like.pool,
        drawn.astype(like.classes.dtype),
        task_keys(len(classes), index),
        like.n_shot[index % len(like)],
        like.n_query,
    )


def check_enough(tasks: TaskSet | TaskStream) -> int | None:
    """The number of tasks, None for a stream without end; one task is refused."""
    n_tasks = tasks.n_tasks if isinstance(tasks, TaskStream) else len(tasks)
    if n_tasks is not None and n_tasks < 2:
        raise DataError(f"a fit needs at least 2 tasks, got {n_tasks}.")
    return n_tasks
