"""TaskSet: which classes and which samples make up each task. Indices only, never images."""

import os
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, Integer, UInt64

from taskscape.arguments import Seed, as_array, check_seed, check_whole, public
from taskscape.errors import DataError
from taskscape.notebook import ShownInNotebooks
from taskscape.pools import ClassPool
from taskscape.pools.pool import few_names
from taskscape.tasks.draws import distinct, subkeys, task_keys

Listed: TypeAlias = Any
"""Samples of tasks: lists by task and class, of numbers or names, or an array of numbers."""

ALL = 0
"""The number of shots that stands for every sample that is not a query."""

Rows: TypeAlias = Any
"""Which tasks: a slice, an index, indices, or a mask."""


@dataclass(frozen=True)
class PoolRows:
    """Rows of ``pool.samples`` for a batch of tasks.

    Where a mask is False there is no class or no sample; the row there is 0, which can be gathered
    but must not be used. ``classes`` has -1 there.
    """

    classes: Int[np.ndarray, "tasks way"]
    class_mask: Bool[np.ndarray, "tasks way"]
    support: Int[np.ndarray, "tasks way shot"]
    support_mask: Bool[np.ndarray, "tasks way shot"]
    query: Int[np.ndarray, "tasks way asked"]
    query_mask: Bool[np.ndarray, "tasks way asked"]

    def __len__(self) -> int:
        return len(self.classes)


@dataclass(frozen=True)
class Episodes(PoolRows):
    """Support and query samples of a batch of tasks, laid out ``(task, class, sample, …)``.

    The label of a sample is its position on the class axis. Padded samples are zero.
    """

    support: Float[np.ndarray, "tasks way shot *shape"]
    query: Float[np.ndarray, "tasks way asked *shape"]


@dataclass(frozen=True)
class BatchSampler:
    """The rows of one task after another, as ``DataLoader(dataset, batch_sampler=…)`` takes them.

    See :meth:`TaskSet.batch_sampler`. Each time it is gone through it gives the same.
    """

    tasks: "TaskSet"
    repeat: int
    seed: int | None
    fresh_samples: bool

    def __len__(self) -> int:
        return self.repeat * len(self.tasks)

    def __iter__(self) -> Iterator[list[int]]:
        for turn in range(self.repeat):
            tasks = self.tasks.redrawn(turn if self.fresh_samples else 0)
            order = np.arange(len(tasks))
            if self.seed is not None:
                order = np.random.default_rng([self.seed, turn]).permutation(len(tasks))
            for task in order.tolist():
                yield tasks.rows(task).tolist()


@dataclass(frozen=True, eq=False, repr=False)
class TaskSet(ShownInNotebooks):
    """Tasks over one pool, as class ids and a key each; sample ids derive from the keys.

    Rows of ``classes`` are padded with -1 behind the task's own classes. ``n_shot`` is per task, 0
    meaning every sample that is not a query. ``support`` and ``query``, where given, are explicit
    sample ids within each class (padded with -1), and the keys then have no effect.
    """

    pool: ClassPool
    classes: Int[np.ndarray, "tasks way"]
    keys: UInt64[np.ndarray, "tasks"]
    n_shot: Int[np.ndarray, "tasks"]
    n_query: int = 0
    support: Int[np.ndarray, "tasks way shot"] | None = None
    query: Int[np.ndarray, "tasks way asked"] | None = None

    def __len__(self) -> int:
        return len(self.classes)

    def __repr__(self) -> str:
        if len(self) == 0:
            return f"TaskSet(0 tasks over {self.pool.name!r})"
        way = _span(self.n_way)
        shot = _span(self.n_shot) if self.n_shot.all() else "all"
        query = f", {self.n_query} queries" if self.n_query else ""
        return (
            f"TaskSet({len(self):,} tasks over {self.pool.name!r}: {way}-way, {shot}-shot{query})"
        )

    def _rows(self) -> Iterable[Mapping[str, Any]]:
        return ({"task": i, "classes": ", ".join(self.names(i))} for i in range(len(self)))

    @property
    def shape(self) -> tuple[int]:
        """The number of tasks, where scikit-learn looks for it before it takes rows."""
        return (len(self),)

    def __getitem__(self, which: Rows) -> "TaskSet":
        """Some of the tasks: a slice, indices, or a mask. Each keeps its own samples.

        A single index gives a set of one task.
        """
        rows = as_rows(which)
        parts = {name: getattr(self, name) for name in _BY_TASK}
        return replace(self, **{name: v[rows] for name, v in parts.items() if v is not None})

    @property
    def n_way(self) -> Int[np.ndarray, "tasks"]:
        """The number of classes of each task."""
        return (self.classes >= 0).sum(axis=1)

    @property
    def class_ids(self) -> Int[np.ndarray, "n"]:
        """The classes that occur in the tasks, ascending."""
        return np.flatnonzero(np.bincount(self.classes.ravel() + 1)[1:])

    @property
    def max_way(self) -> int:
        """The number of classes that batches are padded to."""
        return self.classes.shape[1]

    @property
    def max_shot(self) -> int:
        """The number of support samples per class that batches are padded to."""
        if self.support is not None:
            return self.support.shape[2]
        if len(self) and not self.n_shot.all():
            return int(self.pool.counts[self.class_ids].max(initial=self.n_query)) - self.n_query
        return int(self.n_shot.max(initial=0))

    @property
    def takes_everything(self) -> bool:
        """Whether every task holds all samples of its classes, and no queries."""
        return self.support is None and self.n_query == 0 and not self.n_shot.any()

    def add_to_hash(self, h: Any) -> None:
        """Add all that decides the tasks but their pool to a hash."""
        h.update(repr(self.n_query).encode())  # of a class that gives all samples, these are none
        for values in (getattr(self, name) for name in _BY_TASK):
            h.update(b"-" if values is None else np.ascontiguousarray(values).tobytes())

    def names(self, task: int) -> tuple[str, ...]:
        """The class names of one task."""
        return tuple(self.pool.class_names[c] for c in self.classes[task] if c >= 0)

    @public
    def with_samples(self, n_shot: int | str, n_query: int = 0) -> "TaskSet":
        """The same tasks with other numbers of samples; more shots extend the samples of fewer."""
        if self.support is not None:
            raise DataError("these tasks list their samples one by one; n_shot cannot be changed.")
        shots = check_shots(self.pool, n_shot, n_query, self.class_ids)
        return replace(
            self, n_shot=np.full(len(self), shots[0], dtype=self.n_shot.dtype), n_query=n_query
        )

    def halves(self) -> "tuple[TaskSet, TaskSet]":
        """The same tasks twice, each with half of the labelled samples of every class.

        No sample is in both. Classes need at least two samples.
        """
        drawn = self.support if self.support is not None else self._draw(self.max_shot)[0]
        fewest = (drawn >= 0).sum(axis=2)[self.classes >= 0].min(initial=2)
        if fewest < 2:
            raise DataError(f"a class has {fewest} labelled samples; halves need at least 2.")
        first, second = (
            replace(self, n_shot=_most(half), n_query=0, support=half, query=None)
            for half in (drawn[:, :, ::2], drawn[:, :, 1::2])
        )
        return first, second

    def redrawn(self, draw: int) -> "TaskSet":
        """The same classes with other samples, which ``draw`` decides; draw 0 is these tasks."""
        if check_whole(draw, "draw", 0) == 0:
            return self
        if self.support is not None:
            raise DataError(
                "these tasks list their samples one by one; they cannot be drawn again."
            )
        return replace(self, keys=subkeys(self.keys, 2**32 + draw))

    def rows(self, task: int | None = None) -> Int[np.ndarray, "n"]:
        """Rows of what you gave to :func:`load_pool`: in your own arrays, table or dataset.

        Of one task, its support, class by class, then its queries, as :meth:`episode_labels` has
        their labels. Without ``task``, every row that the tasks use, once and ascending.

        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["b", "a", "b", "a"]
        >>> tasks = make_tasks(ClassPool.from_arrays(X, y), [["a", "b"]], n_shot=2)
        >>> sorted(tasks.rows(0)[:2].tolist())  # those of class a
        [1, 3]
        """
        drawn = self.pool_rows(slice(None) if task is None else task)
        support, query = drawn.support[drawn.support_mask], drawn.query[drawn.query_mask]
        rows = self.pool.given(np.concatenate([support, query]))
        return np.unique(rows) if task is None else rows

    def episode_labels(
        self, task: int | None = None
    ) -> tuple[Int[np.ndarray, "supports"], Int[np.ndarray, "queries"]]:
        """Labels of the support and of the queries of a task, in the order of :meth:`rows`.

        A label is the place of the class in its task. Tasks of one shape have the same, and
        ``task`` can be left out.

        >>> pool = ClassPool.from_classes({"a": np.zeros((3, 2)), "b": np.ones((4, 2))})
        >>> make_tasks(pool, [["a", "b"]], n_shot=2, n_query=1).episode_labels()
        (array([0, 0, 1, 1]), array([0, 1]))
        """
        drawn = self.pool_rows(slice(None) if task is None else task)
        shapes = [drawn.support_mask.sum(axis=2), drawn.query_mask.sum(axis=2)]
        if not all((counts == counts[:1]).all() for counts in shapes):
            raise DataError(
                "these tasks differ in their numbers of classes or samples, and so in their "
                "labels; ask for those of one task: episode_labels(0)."
            )
        support, query = (np.repeat(np.arange(self.max_way), counts[0]) for counts in shapes)
        return support, query

    def batch_sampler(
        self, *, repeat: int = 1, seed: Seed | None = None, fresh_samples: bool = False
    ) -> BatchSampler:
        """What ``DataLoader(dataset, batch_sampler=…)`` takes: the :meth:`rows` of each task.

        ``dataset`` is the one that was given to :func:`load_pool`. The tasks are gone through
        ``repeat`` times: in their order, or with ``seed`` in another one each time; with
        ``fresh_samples``, other samples of their classes are drawn each time after the first.
        """
        check_whole(repeat, "repeat", 1)
        if fresh_samples and repeat > 1:
            self.redrawn(1)  # refused now, not in the midst of a training
        seed = None if seed is None else check_seed(seed)
        return BatchSampler(self, repeat, seed, fresh_samples)

    def pool_rows(self, which: Rows) -> PoolRows:
        """Rows of the pool for some of the tasks, padded, with masks."""
        part = self[which]
        if part.support is not None:
            support, query = part.support, part.query
            if query is None:
                query = np.empty((len(part), self.max_way, 0), dtype=np.int64)
        else:
            support, query = part._draw(self.max_shot)
        classes = part.classes.astype(np.int64)
        starts = self.pool.starts[np.maximum(classes, 0)][:, :, None]
        return PoolRows(
            classes=classes,
            class_mask=classes >= 0,
            support=np.where(support >= 0, starts + support, 0),
            support_mask=support >= 0,
            query=np.where(query >= 0, starts + query, 0),
            query_mask=query >= 0,
        )

    def batches(self, batch_size: int = 256) -> Iterator[PoolRows]:
        """All tasks in order, in padded batches of one shape (the last may have fewer tasks)."""
        batch_size = check_whole(batch_size, "batch_size", 1)
        for start in range(0, len(self), batch_size):
            yield self.pool_rows(slice(start, start + batch_size))

    def episodes(self, batch_size: int = 32) -> Iterator[Episodes]:
        """All tasks in order, as arrays of support and query samples for a meta-learner."""
        for batch in self.batches(batch_size):
            parts = {**vars(batch)}
            for role in ("support", "query"):
                parts[role] = self.pool.take(parts[role])
                parts[role][~parts[f"{role}_mask"]] = 0
            yield Episodes(**parts)

    def _draw(
        self, max_shot: int
    ) -> tuple[Int[np.ndarray, "tasks way shot"], Int[np.ndarray, "tasks way asked"]]:
        """Sample ids within each class: the support first, then the queries, from one shuffle."""
        real = self.classes >= 0
        task, slot = np.nonzero(real)
        chosen = self.classes[task, slot].astype(np.int64)
        counts, n_shot = self.pool.counts[chosen], self.n_shot[task].astype(np.int64)
        n_shot = np.where(n_shot == ALL, counts - self.n_query, n_shot)
        if self.takes_everything:
            ids = np.broadcast_to(np.arange(max_shot), (len(chosen), max_shot))
        else:
            ids = distinct(subkeys(self.keys[task], chosen), counts, max_shot + self.n_query)
        place = np.arange(max_shot)
        support = np.full((*real.shape, max_shot), -1, dtype=np.int64)
        support[task, slot] = np.where(place < n_shot[:, None], ids[:, :max_shot], -1)
        query = np.full((*real.shape, self.n_query), -1, dtype=np.int64)
        behind = n_shot[:, None] + np.arange(self.n_query)
        query[task, slot] = np.take_along_axis(ids, behind, axis=1)
        return support, query

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Parquet file that names the pool it belongs to, or the samples as a CSV.

        In a ``.csv`` file, each sample is a line with its task, class, name or number in the class,
        role (support or query) and row, see :meth:`rows`.
        """
        from taskscape.tasks.manifest import save_tasks

        save_tasks(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], pool: ClassPool) -> "TaskSet":
        """Read what :meth:`save` wrote; the pool must be the one that the tasks are from.

        A list of your own in a ``.csv`` file is read too: see
        :func:`~taskscape.tasks.manifest.read_tasks_csv`.
        """
        from taskscape.tasks.manifest import load_tasks

        return load_tasks(path, pool)

    @staticmethod
    def concatenate(sets: "Sequence[TaskSet]") -> "TaskSet":
        """Several sets over the same pool, one after another."""
        if not sets:
            raise DataError("concatenate needs at least one TaskSet.")
        first = sets[0]
        for other in sets[1:]:
            if other.pool is not first.pool and other.pool.fingerprint != first.pool.fingerprint:
                raise DataError(
                    f"cannot join tasks over different pools: {first.pool!r} and {other.pool!r}."
                )
            if other.n_query != first.n_query or (other.support is None) != (first.support is None):
                raise DataError("cannot join tasks with different n_query, or listed and drawn.")
        way, shot = max(s.max_way for s in sets), max(s.max_shot for s in sets)
        room = {"classes": (way,), "support": (way, shot), "query": (way, first.n_query)}
        joined: dict[str, Any] = {
            name: np.concatenate([pad(getattr(s, name), room.get(name, ())) for s in sets])
            for name in _BY_TASK
            if getattr(first, name) is not None
        }
        return replace(first, **joined)


_BY_TASK = ("classes", "keys", "n_shot", "support", "query")


def as_rows(which: Rows) -> slice | Integer[np.ndarray, "n"] | Bool[np.ndarray, "n"]:
    """What to index arrays of tasks with; scikit-learn asks for ``tasks[rows, ...]``."""
    if isinstance(which, tuple) and len(which) == 2 and which[1] is Ellipsis:
        which = which[0]
    if isinstance(which, slice):
        return which
    rows = np.atleast_1d(as_array(which))
    if rows.size == 0 and rows.dtype != bool:
        rows = rows.astype(np.int64)
    if rows.ndim != 1 or rows.dtype.kind not in "iub":
        raise DataError(
            f"[{which!r}] cannot pick tasks; use a slice, a number, numbers, or a mask."
        )
    return rows


@public
def make_tasks(
    pool: ClassPool,
    classes: Sequence[Sequence[int | str]],
    *,
    n_shot: int | str | Sequence[int] | Int[np.ndarray, "tasks"] = "all",
    n_query: int = 0,
    support: Listed = None,
    query: Listed = None,
    seed: Seed = 0,
) -> TaskSet:
    """Tasks with the classes you name; samples drawn from ``seed``, or listed one by one.

    ``classes`` holds class names or indices, a list for each task. Drawn samples are ``n_shot`` and
    ``n_query`` of each class; ``n_shot`` may have a number for each task. ``support`` and ``query``
    list samples instead: for each task, for each of its classes, a list of numbers within the class
    or of names (``pool.names_of("cat")`` has them), of any length; or an array (tasks, classes,
    samples) of numbers, padded with -1. No sample may occur twice in a task.

    >>> pool = ClassPool.from_classes({"a": np.zeros((3, 2)), "b": np.ones((4, 2))})
    >>> make_tasks(pool, [["a", "b"]], n_shot=2)
    TaskSet(1 tasks over 'pool': 2-way, 2-shot)
    >>> make_tasks(pool, [["a", "b"]], support=[[[0, 2], [3]]], query=[[[1], []]])
    TaskSet(1 tasks over 'pool': 2-way, 2-shot, 1 queries)
    """
    ids = [[pool.class_index(c) for c in _listed(t)] for t in _listed(classes)]
    table = _class_table(pool, ids)
    keys = task_keys(check_seed(seed), np.arange(len(ids)))
    if support is not None:
        return _listed_tasks(pool, table, keys, support, query)
    if query is not None:
        raise DataError("query was given without support; list both, or draw both by n_query.")
    if not isinstance(n_shot, int | np.integer | str):
        shots = as_array(n_shot)
        if shots.shape != (len(ids),) or shots.dtype.kind not in "iu" or (shots < 1).any():
            raise DataError(
                f"n_shot={n_shot!r}: give one number, 'all', or a whole number from 1 up for each "
                f"of the {len(ids)} tasks."
            )
        for number in np.unique(shots)[::-1].tolist():  # the largest first: it fails at once
            used = table[shots == number]
            check_shots(pool, number, n_query, np.unique(used[used >= 0]))
        return TaskSet(pool, table, keys, shots.astype(np.int32), n_query)
    low, _ = check_shots(pool, n_shot, n_query, np.unique(table[table >= 0]))
    return TaskSet(pool, table, keys, np.full(len(ids), low, dtype=np.int32), n_query)


def single_class_tasks(pool: ClassPool, classes: Int[np.ndarray, "some"], most: int) -> TaskSet:
    """A task of each class alone, known by at most so many samples: what the class itself is."""
    return TaskSet(
        pool=pool,
        classes=classes[:, None].astype(np.int32),
        keys=np.arange(len(classes), dtype=np.uint64),
        n_shot=np.minimum(pool.counts[classes], most).astype(np.int32),
    )


def _listed(values: Any) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise DataError(
            f"classes={values!r}: expected a list of classes for each task, such as "
            "[['cat', 'dog'], ['cat', 'lion']]."
        )
    return list(values)


def _listed_tasks(
    pool: ClassPool,
    classes: Int[np.ndarray, "tasks way"],
    keys: UInt64[np.ndarray, "tasks"],
    support: Listed,
    query: Listed,
) -> TaskSet:
    """Tasks whose samples are listed one by one."""
    held = _listed_ids(pool, classes, "support", support)
    asked = None if query is None else _listed_ids(pool, classes, "query", query)
    for t, slot in np.argwhere(classes >= 0).tolist():
        name = pool.class_names[classes[t, slot]]
        both = [*held[t][slot], *(asked[t][slot] if asked else ())]
        if not held[t][slot]:
            raise DataError(f"support leaves class {name!r} of task {t} without samples.")
        if len(set(both)) < len(both):
            twice = max(both, key=both.count)
            called = "" if pool.sample_names is None else f" ({pool.names_of(name)[twice]!r})"
            raise DataError(
                f"task {t} lists sample {twice}{called} of class {name!r} twice; each sample is "
                "learned from or asked for once."
            )
    first = _padded(held, classes)
    then = None if asked is None else _padded(asked, classes)
    return TaskSet(
        pool, classes, keys, _most(first), 0 if then is None else then.shape[2], first, then
    )


def _most(support: Int[np.ndarray, "tasks way shot"]) -> Int[np.ndarray, "tasks"]:
    """The largest number of samples of a class, for each task."""
    return (support >= 0).sum(axis=2).max(axis=1, initial=0).astype(np.int32)


def _padded(
    lists: list[list[list[int]]], classes: Int[np.ndarray, "tasks way"]
) -> Int[np.ndarray, "tasks way n"]:
    every = {(t, slot): ids for t, row in enumerate(lists) for slot, ids in enumerate(row)}
    padded = np.full((*classes.shape, max(map(len, every.values()), default=0)), -1, dtype=np.int64)
    for (t, slot), ids in every.items():
        padded[t, slot, : len(ids)] = ids
    return padded


def pad(values: Integer[np.ndarray, "tasks ..."], shape: tuple[int, ...]) -> np.ndarray:
    """Values of tasks with -1 behind them, up to a shape."""
    padded = np.full((len(values), *shape), -1).astype(values.dtype)
    padded[tuple(slice(0, n) for n in values.shape)] = values
    return padded


def _span(values: Int[np.ndarray, "tasks"]) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low}" if low == high else f"{low}–{high}"


# -- what every list of tasks must satisfy ------------------------------------------------------


def class_dtype(pool: ClassPool) -> type[np.signedinteger]:
    """The smallest type that holds the pool's class ids and the padding -1."""
    return np.int16 if len(pool) <= np.iinfo(np.int16).max else np.int32


def pad_classes(
    ids: Int[np.ndarray, "all"], ways: Int[np.ndarray, "tasks"], kind: type[np.signedinteger]
) -> Int[np.ndarray, "tasks way"]:
    """The ids of all tasks, one task after another, as a row for each, padded with -1."""
    table = np.full((len(ways), int(ways.max(initial=0))), -1, dtype=kind)
    table[np.arange(table.shape[1]) < ways[:, None]] = ids
    return table


def _class_table(pool: ClassPool, tasks: list[list[int]]) -> Int[np.ndarray, "tasks way"]:
    """Rows of class ids, padded with -1; each at least 2 different classes of the pool."""
    for t, ids in enumerate(tasks):
        if len(ids) < 2 or len(set(ids)) < len(ids):
            has = few_names([pool.class_names[c] for c in ids], 20)
            raise DataError(f"task {t} needs at least 2 different classes, has {has}.")
    flat = np.array([c for ids in tasks for c in ids], dtype=np.int64)
    ways = np.array([len(ids) for ids in tasks], dtype=np.int64)
    return pad_classes(flat, ways, class_dtype(pool))


def check_range(value: Any, name: str, least: int) -> tuple[int, int]:
    """A number, or a range ``(low, high)``, as both ends of a range."""
    ends = value if isinstance(value, tuple | list) else (value, value)
    if len(ends) != 2:
        raise DataError(f"{name}={value!r} must be a whole number, or a range (low, high).")
    low, high = (check_whole(end, name) for end in ends)
    if not least <= low <= high:
        raise DataError(f"{name}={value!r} must be at least {least}, and a range must ascend.")
    return low, high


def check_shots(
    pool: ClassPool,
    n_shot: int | str | tuple[int, int],
    n_query: int,
    classes: Int[np.ndarray, "some"],
) -> tuple[int, int]:
    """Read ``n_shot`` as (least, most), (0, 0) for all, and check that every class has enough."""
    check_whole(n_query, "n_query", 0)
    if isinstance(n_shot, str):
        if n_shot != "all":
            raise DataError(f"n_shot={n_shot!r}: use a number, a range (low, high), or 'all'.")
        pool.require(1 + n_query, f"n_shot='all' + n_query={n_query}", classes.tolist())
        return ALL, ALL
    low, high = check_range(n_shot, "n_shot", 1)
    pool.require(high + n_query, f"n_shot={n_shot} + n_query={n_query}", classes.tolist())
    return low, high


def _listed_ids(
    pool: ClassPool, classes: Int[np.ndarray, "tasks way"], role: str, listed: Any
) -> list[list[list[int]]]:
    """The numbers of the samples that are listed for each class of each task, without padding."""
    lists: list[list[list[int]]] = []
    kinds = list | tuple | np.ndarray
    if not isinstance(listed, kinds) or len(listed) != len(classes):
        raise DataError(
            f"{role}={reprlib.repr(listed)} lists no samples for {len(classes)} tasks; give, for "
            "each task and each of its classes, a list."
        )
    for t, of_task in enumerate(listed):
        own = classes[t][classes[t] >= 0].tolist()
        if (
            not (isinstance(of_task, kinds) and all(isinstance(s, kinds) for s in of_task))
            or len(of_task) < len(own)
            or any(sample != -1 for padding in of_task[len(own) :] for sample in padding)
        ):
            names = few_names([pool.class_names[c] for c in own], 20)
            raise DataError(
                f"{role}[{t}] is {reprlib.repr(of_task)}; give a list of samples for each class of "
                f"the task: {names}."
            )
        lists.append([])
        for slot, (c, samples) in enumerate(zip(own, of_task, strict=False)):
            try:
                known = [pool.sample_index(c, s) for s in samples if np.ndim(s) or s != -1]
            except DataError as error:
                raise DataError(f"{role}[{t}][{slot}]: {error}") from None
            lists[-1].append(known)
    return lists
