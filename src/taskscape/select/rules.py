"""The rules that choose training tasks; each fills a :class:`Run` until it is done."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from taskscape.progress import progress_bar
from taskscape.similarity import DistanceSource

_TURNS = 128
"""Turns that are looked up together: k = _TURNS neighbours outlast the others' choices."""
_NEAR, _PENALTY = 64, 0.25
"""Rule ``classes``: near tasks to choose from, and mean distances that a task may be farther for a
class half as used."""
_MOST_TESTS, _MOST_NUMBERS = 2000, 40_000_000
"""Rule ``facility``: test tasks to serve, sampled if there are more, and distances in memory."""


@dataclass(eq=False)
class Run:
    """Keeps account of the tasks chosen so far, under a limit on shared classes.

    A task that was refused is never asked for again: the tasks it shares classes with only grow in
    number.
    """

    source: DistanceSource
    tie_keys: UInt64[np.ndarray, "trains"]
    test_keys: UInt64[np.ndarray, "tests"]
    left: int
    """How many tasks are still to be chosen."""
    classes: Int[np.ndarray, "trains way"] | None
    max_shared: int | None
    chosen: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    for_test: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.unused = np.ones(self.source.n_train, dtype=bool)
        most = -1 if self.classes is None else int(self.classes.max(initial=-1))
        self.uses = np.zeros(most + 1)
        self._has_class = np.zeros((most + 1, 256), dtype=np.uint8)

    @property
    def done(self) -> bool:
        """Whether nothing more can be chosen."""
        return self.left == 0 or not self.unused.any()

    def classes_of(self, task: int) -> Int[np.ndarray, "its_way"]:
        """The class ids of a training task."""
        assert self.classes is not None
        row = self.classes[task]
        return row[row >= 0]

    def take(self, task: int, score: float, test: int = -1) -> bool:
        """Choose a task unless ``max_shared`` forbids it; whether it was chosen.

        Either way it is no longer ``unused``.
        """
        self.unused[task] = False
        if not self._apart(task):
            return False
        self.left -= 1
        if self.classes is not None:
            if len(self.chosen) == self._has_class.shape[1]:
                self._has_class = np.concatenate([self._has_class, 0 * self._has_class], axis=1)
            self._has_class[self.classes_of(task), len(self.chosen)] = 1
            self.uses[self.classes_of(task)] += 1
        self.chosen.append(int(task))
        self.scores.append(float(score))
        self.for_test.append(int(test))
        return True

    def _apart(self, task: int) -> bool:
        if self.max_shared is None:
            return True
        shared = self._has_class[self.classes_of(task), : len(self.chosen)].sum(axis=0)
        return int(shared.max(initial=0)) <= self.max_shared


def ascending(
    values: Float[np.ndarray, "n"], tie_keys: UInt64[np.ndarray, "n"], first: int
) -> Iterator[int]:
    """Places from the smallest value up, of equals the least key first; sorts only what is read."""
    size, last = max(first, 256), -np.inf
    while True:
        upto = np.partition(values, size)[size] if size < len(values) else np.inf
        window = np.flatnonzero((values > last) & (values <= upto))
        yield from window[np.lexsort((tie_keys[window], values[window]))].tolist()
        if upto == np.inf:
            return
        size, last = 4 * size, upto


def nearest(run: Run) -> None:
    """The tasks with the smallest mean distance from all test tasks, as in the paper."""
    means = run.source.means()
    _take_in_order(run, means, means)


def random(run: Run) -> None:
    """Tasks in an order that depends on the seed alone."""
    _take_in_order(run, np.zeros(run.source.n_train), run.source.means())


def _take_in_order(
    run: Run, order_by: Float[np.ndarray, "trains"], scores: Float[np.ndarray, "trains"]
) -> None:
    for task in ascending(order_by, run.tie_keys, run.left):
        if run.done:
            break
        run.take(task, scores[task])


def coverage(run: Run) -> None:
    """Every test task in turn takes its nearest unused training task."""

    def choose(test: int, near: Int[np.ndarray, "k"], distances: Float[np.ndarray, "k"]) -> bool:
        pairs = zip(near.tolist(), distances.tolist(), strict=True)
        return any(run.take(task, distance, test) for task, distance in pairs)

    _serve(run, choose, _TURNS)


def classes(run: Run) -> None:
    r"""As ``coverage``, with a penalty on classes that were used often.

    .. math:: \frac{d}{\bar d} + \text{penalty} \cdot
        \frac{\text{mean use of the task's classes}}{1 + \text{mean use of all classes}}
    """
    scale = float(run.source.means().mean()) or 1.0
    assert run.classes is not None
    n_classes = len(np.unique(run.classes[run.classes >= 0]))

    def choose(test: int, near: Int[np.ndarray, "k"], distances: Float[np.ndarray, "k"]) -> bool:
        near, distances = near[:_NEAR], distances[:_NEAR]
        usual = 1 + run.uses.sum() / n_classes
        use = np.array([run.uses[run.classes_of(task)].mean() for task in near.tolist()]) / usual
        cost = distances / scale + _PENALTY * use
        order = np.lexsort((run.tie_keys[near], cost))
        return any(run.take(int(near[i]), float(distances[i]), test) for i in order)

    _serve(run, choose, _TURNS + _NEAR)


def _serve(run: Run, choose: Callable[[int, np.ndarray, np.ndarray], bool], k: int) -> None:
    """Let test tasks take turns; ``choose`` picks from the nearest that are still unused."""
    turns = cycle(np.argsort(run.test_keys, kind="stable").tolist())
    with progress_bar("selecting tasks", run.left) as advance:
        while not run.done:
            tests = np.array(list(islice(turns, min(_TURNS, run.left))))
            neighbours = run.source.nearest(tests, k, run.unused, run.tie_keys)
            for test, near, distances in zip(
                tests, neighbours.indices, neighbours.distances, strict=True
            ):
                before = run.left
                _one_turn(run, choose, int(test), near, distances, k)
                advance(before - run.left)


def _one_turn(
    run: Run,
    choose: Callable[[int, np.ndarray, np.ndarray], bool],
    test: int,
    near: Int[np.ndarray, "k"],
    distances: Float[np.ndarray, "k"],
    k: int,
) -> None:
    while not run.done:
        live = run.unused[near]
        if live.any() and choose(test, near[live], distances[live]):
            break
        if not run.unused[near].any():  # all refused or taken by others: look further
            k *= 2
            further = run.source.nearest(np.array([test]), k, run.unused, run.tie_keys)
            near, distances = further.indices[0], further.distances[0]


def facility(run: Run) -> None:
    r"""Greedy maximisation of how much nearer the chosen set is to the test tasks.

    .. math:: f(S) = \frac1T \sum_t \left( \max_{d} D_{td} - \min_{d \in S} D_{td} \right)

    f is monotone and submodular, so without ``max_shared`` the greedy set reaches at least 1 - 1/e
    of the best value of its size, over the candidates and the test tasks that were looked at
    (Nemhauser, Wolsey and Fisher 1978). Gains are not computed again but corrected for the test
    tasks whose nearest chosen task has changed: few, after the first choices. Once every test task
    has its nearest candidate, f cannot grow; the rule then starts again with the candidates that
    are left.
    """
    size = min(max(2000, 4 * run.left), run.source.n_train)
    order = np.argsort(run.test_keys, kind="stable")
    tests = order[: max(1, min(_MOST_TESTS, _MOST_NUMBERS // size))]
    pool = _preselect(run, tests, size)
    distances = run.source.block(tests, pool)
    waiting = np.ones(len(pool), dtype=bool)
    with progress_bar("selecting tasks", run.left) as advance:
        while not run.done and waiting.any():
            before = run.left
            _one_layer(run, pool, distances, waiting)
            advance(before - run.left)


def _preselect(run: Run, tests: Int[np.ndarray, "some"], size: int) -> Int[np.ndarray, "pool"]:
    """The tasks that are among the nearest of some test task, best ranks first, in key order."""
    k = max(1, -(-2 * size // len(tests)))
    while True:
        k = min(k, run.source.n_train)
        order = run.source.nearest(tests, k, run.unused, run.tie_keys).indices
        rank = np.full(run.source.n_train, k)
        np.minimum.at(rank, order, np.broadcast_to(np.arange(order.shape[1]), order.shape))
        pool = np.flatnonzero(rank < k)
        if len(pool) >= size or k == run.source.n_train:
            break
        k *= 2
    pool = pool[np.lexsort((run.tie_keys[pool], rank[pool]))[:size]]
    return pool[np.argsort(run.tie_keys[pool], kind="stable")]


def _one_layer(
    run: Run,
    pool: Int[np.ndarray, "pool"],
    distances: Float[np.ndarray, "tests pool"],
    waiting: Bool[np.ndarray, "pool"],
) -> None:
    """Choose until every test task has its nearest of the candidates that were waiting."""
    reached = distances[:, waiting].max(axis=1)
    negligible = 1e-12 * float(reached.mean())
    gains = np.maximum(reached[:, None] - distances, 0.0).mean(axis=0)
    chosen = 0
    while waiting.any() and not run.done:
        j = int(np.argmax(np.where(waiting, gains, -np.inf)))
        if gains[j] <= negligible and chosen:
            return
        waiting[j] = False
        if not run.take(int(pool[j]), float(gains[j])):
            continue
        chosen += 1
        nearer = np.flatnonzero(distances[:, j] < reached)
        was, now = reached[nearer, None], distances[nearer, j, None]
        there = distances[nearer]
        less = np.maximum(was - there, 0.0) - np.maximum(now - there, 0.0)
        gains -= less.sum(axis=0) / len(distances)
        reached[nearer] = now[:, 0]
