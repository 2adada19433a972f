"""The nearest training tasks of each test task, with ties counted and settled by class means.

Many tasks have the same mixture of task-themes: with L of them, a task of C classes has about
(C + L − 1 choose L − 1) different ones, 56 for 5 classes and 4 task-themes, so that hundreds of
training tasks are equally near. Which of these look most like the test task, class by class, the
means of their classes tell.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.arguments import check_whole
from taskscape.compare import Neighbours
from taskscape.compare import nearest as nearest_by_distance
from taskscape.compare.posteriors import Tasks
from taskscape.embeddings import Embeddings
from taskscape.embeddings.catalogue import PosteriorStream
from taskscape.errors import DataError
from taskscape.notebook import ShownInNotebooks
from taskscape.pools import ClassPool
from taskscape.similarity.similarity import DistanceSource
from taskscape.similarity.transport import squared_distances, transport_classes
from taskscape.tasks import TaskSet, make_tasks

TIE = 0.1
"""Nats within which training tasks count as equally near. The same classes known by other samples
are about as far: 0.09 nats in the middle (glyphs, 8 samples a class, 200 tasks)."""
SAME = 1e-6
"""Differences of other distances, of which 1 is usual, that are rounding."""
_LOOKED_AT = 1000
"""Of equally near training tasks, at most so many are compared by their class means."""
_SPARE = 16
_NUMBERS = 1 << 22
"""Distances held at once."""


@dataclass(frozen=True, eq=False, repr=False)
class NearestTasks(Neighbours, ShownInNotebooks):
    """The k nearest training tasks of each test task; of equals, the most alike class by class."""

    by_classes: Float[np.ndarray, "tasks k"] | None
    """Root mean squared distance between class means under their best assignment; None where the
    samples are not known."""
    ties: Int[np.ndarray, "tasks"]
    """How many training tasks are not told apart from the nearest one, itself among them."""
    tie: float = TIE
    """How far distances of such tasks may be from each other."""

    def _rows(self) -> Iterable[Mapping[str, Any]]:
        for i, near in enumerate(self.indices):
            far = ", ".join(f"{d:.3g}" for d in self.distances[i])
            yield {"task": i, "nearest": ", ".join(map(str, near)), "distances": far}

    def summary(self) -> str:
        """Which of them are not told apart, and where it is said how far to trust it."""
        n, many = len(self.ties), int(self.ties.max(initial=0))
        if many < 2:
            said = "No other training task is as near as the first."
        else:
            within = f" (within {self.tie:g} nats)" if self.tie == TIE else ""
            several = f" of {(self.ties > 1).mean():.0%} of {n:,} tasks, up to" if n > 1 else ""
            more = " or more" if many > _LOOKED_AT else ""
            order = "their order means nothing; give the data to put the most alike first"
            if self.by_classes is not None:
                order = "the most alike come first, by the distance between their class means"
            said = (
                f"Not told apart from the nearest{several}: {many:,}{more} tasks{within}; {order}."
            )
        return (
            f"{said}\nHow far to trust it: how often tasks of one group find each other in these "
            "data (`retrieval`, or `taskscape compare --retrieval --data …`)."
        )


def nearest(
    test: Tasks,
    train: Tasks | Iterable[Tasks],
    k: int = 10,
    *,
    pool: ClassPool | None = None,
    kind: str = "kl",
) -> NearestTasks:
    """The ``k`` training tasks with the smallest distance from each test task, exactly.

    Tasks and ``kind`` are as :func:`taskscape.compare.nearest` takes them. How many are not told
    apart from the nearest is counted, to about a thousand. With the ``pool`` that the tasks are
    from, the most alike of equals come first, as in :func:`nearest_tasks`.
    """
    k = check_whole(k, "k", 1)
    tie = TIE if not isinstance(test, Embeddings) or test.header.counts_themes else SAME
    find = partial(nearest_by_distance, test, train, kind=kind)
    return _settled(find, k, tie, None if pool is None else partial(_apart, test, train, pool))


def _settled(
    find: Callable[[int], Neighbours],
    k: int,
    tie: float,
    apart: Callable[[Int[np.ndarray, "tests some"]], Float[np.ndarray, "tests some"]] | None,
) -> NearestTasks:
    """The k nearest of those that ``find`` gives, of equals those least ``apart`` first."""
    near, levels = _with_levels(find(k + _SPARE), tie)
    if (n := levels.shape[1]) < k:
        raise DataError(f"k={k} is more than the {n} training tasks; lower k.")
    if n == k + _SPARE and (levels[:, -1] == levels[:, k - 1]).any():
        near, levels = _with_levels(find(k + _LOOKED_AT), tie)
    by_classes = np.zeros(levels.shape) if apart is None else apart(near.indices)
    order = np.lexsort((by_classes, levels), axis=1)[:, :k]
    indices, distances, by_classes = (
        np.take_along_axis(part, order, axis=1)
        for part in (near.indices, near.distances, by_classes)
    )
    ties = (levels == 0).sum(axis=1)
    return NearestTasks(indices, distances, None if apart is None else by_classes, ties, tie)


def _with_levels(near: Neighbours, tie: float) -> tuple[Neighbours, Float[np.ndarray, "tests _"]]:
    """And 0 for what is within ``tie`` of the nearest, 1 within the next, and so on: equals."""
    beyond = near.distances - near.distances.min(axis=1, keepdims=True)
    return near, np.floor(beyond / tie)


def _apart(
    test: Tasks,
    train: Tasks | Iterable[Tasks],
    pool: ClassPool,
    near: Int[np.ndarray, "tests some"],
) -> Float[np.ndarray, "tests some"]:
    """How far the class means of each test task are from those of the training tasks near it."""
    places, column = np.unique(near, return_inverse=True)
    if isinstance(train, PosteriorStream):
        train = train.catalogue.take(places, train.where)
    elif isinstance(train, Embeddings):
        train = train[places]
    if not (isinstance(train, Embeddings) and isinstance(test, Embeddings)):
        raise DataError("pool settles ties of embedded tasks; what is given says no classes.")
    test, train = (
        make_tasks(pool, [list(e.names(i)) for i in range(len(e))]) for e in (test, train)
    )
    return _class_distances(test, train)(np.arange(len(near)), column.reshape(near.shape))


def nearest_tasks(
    test: TaskSet, train: TaskSet, distances: DistanceSource, k: int, *, tie: float = TIE
) -> NearestTasks:
    """The ``k`` nearest training tasks by ``distances``, and of equals the most alike.

    Those within ``tie`` of the nearest are equals, then those within the next ``tie``, and so on.
    How alike equals are is the distance between the means of their classes (of all samples, as they
    lie in the pools of ``test`` and ``train``) under the best assignment, as in
    :class:`taskscape.similarity.PrototypeDistance`.
    """
    alike, step = _class_distances(test, train), max(1, _NUMBERS // len(train))
    parts = []
    for tests in np.split(np.arange(len(test)), range(step, len(test), step)):
        parts.append(_settled(partial(distances.nearest, tests), k, tie, partial(alike, tests)))
    names = ("indices", "distances", "by_classes", "ties")
    whole = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return NearestTasks(**whole, tie=tie)


def _class_distances(
    test: TaskSet, train: TaskSet
) -> Callable[
    [Int[np.ndarray, "tests"], Int[np.ndarray, "tests some"]], Float[np.ndarray, "tests some"]
]:
    """A function: from each test task to some training tasks of its own, by means of classes."""
    costs = squared_distances(_means(test), _means(train))  # of classes, each pair once
    asked, known = test.class_ids, train.class_ids

    def from_one(test_task: int, trains: Int[np.ndarray, "some"]) -> Float[np.ndarray, "some"]:
        a, b = np.asarray(test.classes[test_task]), np.asarray(train.classes[trains])
        # padding, -1, stands before all ids: its costs are not looked at
        first, second = np.searchsorted(asked, a), np.searchsorted(known, b)
        own = costs[first[None, :, None], second[:, None, :]]
        ways = np.array([(a >= 0).sum()]), (b >= 0).sum(axis=1)
        return np.sqrt(transport_classes(own[None], *ways)[0])

    return lambda tests, trains: np.stack(list(map(from_one, tests.tolist(), trains)))


def _means(tasks: TaskSet) -> Float[np.ndarray, "classes dims"]:
    """The mean of all samples of each class of the tasks."""
    pool, ends = tasks.pool, tasks.pool.starts + tasks.pool.counts
    rows = [np.asarray(pool.samples[pool.starts[c] : ends[c]]) for c in tasks.class_ids.tolist()]
    return np.stack([r.reshape(len(r), -1).mean(axis=0, dtype=np.float64) for r in rows])
