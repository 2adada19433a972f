"""A target: a few classes with a few labelled samples each, to train a learner for."""

import hashlib
import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int

from taskscape.arguments import Seed, check_seed, check_whole
from taskscape.errors import DataError
from taskscape.io.files import as_path
from taskscape.pools import ClassPool, load_pool
from taskscape.pools.join import in_form_of
from taskscape.pools.pool import few_names
from taskscape.tasks import TASKS, TaskSet, make_tasks
from taskscape.tasks.draws import subkeys
from taskscape.tasks.sampling import draw_tasks

LEAST_QUERIES = 5
"""Samples of every class beyond the labelled ones, for a choice to be measured on."""
_MOST_FOLDS = 5
_TASKS, _MEASURED = 20, 200


@dataclass(frozen=True, eq=False, repr=False)
class Target:
    """Tasks to be good at, known by their labelled samples alone."""

    name: str
    tasks: TaskSet
    """The labelled samples, as tasks without queries."""
    queries: TaskSet | None = None
    """Tasks of the same classes, with the labelled samples as support and others as queries: what
    a choice is measured on, where there are such samples. Nothing is chosen by them."""
    notes: tuple[str, ...] = ()
    """What was done to the samples to bring them to the form of the pool."""

    def __repr__(self) -> str:
        n, shots = len(self.tasks.class_ids), int(self.tasks.n_shot.max())
        asked = "" if self.queries is None else f", {self.queries.n_query} queries"
        return f"Target({self.name!r}: {n} classes, {shots} labelled samples{asked})"

    @property
    def pool(self) -> ClassPool:
        """The pool that its classes are from."""
        return self.tasks.pool

    @cached_property
    def fingerprint(self) -> str:
        """Hash of its pool, and of the classes and samples of its tasks."""
        h = hashlib.blake2b(self.pool.fingerprint.encode(), digest_size=16)
        for tasks in (self.tasks, self.queries):
            if tasks is not None:
                for part in (tasks.classes, tasks.support, tasks.query):
                    listed = np.empty(0) if part is None else part.astype(np.int64)
                    h.update(str(listed.shape).encode() + listed.tobytes())
        return h.hexdigest()

    def classes_in(self, pool: ClassPool) -> list[int]:
        """Those of a pool's classes that are the target's own: with the same samples.

        Names do not tell: a folder of one group, within one of all groups, names them otherwise.
        """
        own = {self.pool.digests[c] for c in self.tasks.class_ids.tolist()}
        return [c for c, digest in enumerate(pool.digests) if digest in own]

    def folds(self) -> TaskSet | None:
        """The tasks with each labelled sample of a class in turn as the query, the rest as support.

        The first five of each class, where there are more; None where a class has a single one.
        """
        support = self.tasks.support
        assert support is not None
        shots = (support >= 0).sum(axis=2)
        least = int(shots[self.tasks.classes >= 0].min())
        if least < 2:
            return None
        fewer = replace(self.tasks, n_query=1, n_shot=self.tasks.n_shot - 1)
        folds = [
            replace(fewer, support=np.delete(support, fold, axis=2), query=support[..., [fold]])
            for fold in range(min(least, _MOST_FOLDS))
        ]
        return TaskSet.concatenate(folds)


def target_of_classes(
    pool: ClassPool,
    classes: Int[np.ndarray, "some"],
    name: str,
    *,
    n_way: int = 5,
    n_shot: int = 5,
    n_query: int = 15,
    seed: Seed = 0,
    notes: tuple[str, ...] = (),
) -> Target:
    """A target made of some classes of a pool, of each ``n_shot`` samples as its labelled ones.

    Its tasks have ``n_way`` of the classes, or all where there are fewer: all combinations, or
    20 of them by chance. Where every class has at least five samples more, they are the queries of
    200 tasks, at most ``n_query`` a class.
    """
    seed = check_seed(seed)
    for value, called, least in (
        (n_way, "n_way", 2),
        (n_shot, "n_shot", 1),
        (n_query, "n_query", 0),
    ):
        check_whole(value, called, least)
    if len(classes) < 2:
        raise DataError(
            f"target {name!r} has {len(classes)} classes; a task needs at least 2 to tell apart."
        )
    n_way, fewest = min(n_way, len(classes)), int(pool.counts[classes].min())
    n_shot = min(n_shot, fewest)
    spare = min(n_query, fewest - n_shot)
    own, order = pool.subset(classes.tolist()), np.full((len(pool), n_shot + spare), -1)
    for c in classes.tolist():
        samples = np.arange(int(pool.counts[c]), dtype=np.int64)
        keys = subkeys(np.full(len(samples), (c + (seed << 20)) % 2**64, dtype=np.uint64), samples)
        order[c] = np.argsort(keys, kind="stable")[: n_shot + spare]

    def with_labelled(most: int, n_query: int) -> TaskSet:
        """Tasks with the same labelled samples of a class wherever it occurs."""
        drawn = classes[draw_tasks(own, most, n_way=n_way, n_shot=1, seed=seed).classes]
        support, query = np.split(order[drawn][..., : n_shot + n_query], [n_shot], axis=-1)
        asked = query if n_query else None
        return make_tasks(pool, drawn.tolist(), support=support, query=asked, seed=seed)

    queries = with_labelled(_MEASURED, spare) if spare >= LEAST_QUERIES else None
    return Target(name, with_labelled(_TASKS, 0), queries, notes)


def find_target(what: Any, pool: ClassPool, **sizes: Any) -> Target:
    """The target that is meant, from outside the pool or from inside.

    ``what`` is the path of a folder or file of your own (everything that :func:`load_pool` opens),
    a :class:`ClassPool`, arrays ``(X, y)``, a list of tasks written by ``taskscape tasks``, or the
    name of a group or source of the pool. What comes from outside is brought to the form of the
    pool: size, grey or colour, bright or dark ink. ``sizes`` are those of
    :func:`target_of_classes`.
    """
    if isinstance(what, Target):
        return what
    if isinstance(what, str) and (classes := _inside(what, pool)) is not None:
        return target_of_classes(pool, classes, what, **sizes)
    if isinstance(what, str | os.PathLike):
        path = as_path(what)
        if path.is_file() and TASKS.known(path):
            return _of_tasks(TaskSet.load(path, pool), path.name)
        if not path.exists():
            raise DataError(
                f"target {str(path)!r} is neither a file or folder nor a group of {pool!r}. Its "
                f"groups: {few_names(sorted(set(pool.groups or ())), 8) or 'none'}."
            )
        name, own = path.name or str(path), load_pool(path)
    elif isinstance(what, ClassPool):
        name, own = what.name, what
    elif isinstance(what, tuple) and len(what) == 2:
        name, own = "target", load_pool(what, name="target")
    else:
        raise DataError(
            f"a target is a path, a pool, arrays (X, y) or the name of a group, not "
            f"{type(what).__name__}."
        )
    own, notes = in_form_of(own, pool, name)
    return target_of_classes(own, np.arange(len(own)), name, notes=tuple(notes), **sizes)


def _inside(name: str, pool: ClassPool) -> Int[np.ndarray, "some"] | None:
    """The classes of a group or source of the pool."""
    for level in (pool.groups, pool.sources):
        if level is not None and name in level:
            return np.flatnonzero(np.asarray(level) == name)
    return None


def _of_tasks(tasks: TaskSet, name: str) -> Target:
    if len(tasks) == 0:
        raise DataError(f"target {name!r} has no tasks.")
    batch = tasks.pool_rows(slice(None))
    starts = np.where(tasks.classes >= 0, tasks.pool.starts[tasks.classes], 0)
    support = np.where(batch.support_mask, batch.support - starts[..., None], -1)
    ids = [[int(c) for c in row if c >= 0] for row in tasks.classes]
    labelled = make_tasks(tasks.pool, ids, support=support)
    queries = None
    if tasks.n_query:
        asked = np.where(batch.query_mask, batch.query - starts[..., None], -1)
        queries = make_tasks(tasks.pool, ids, support=support, query=asked)
    return Target(name, labelled, queries)
