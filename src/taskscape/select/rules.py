"""The rules that choose training tasks; each fills a :class:`Run` until it is done."""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from taskscape.errors import DataError
from taskscape.progress import progress_bar
from taskscape.select.known import RuleOptions
from taskscape.similarity import DistanceSource

_TURNS = 128
"""Turns that are looked up together: k = _TURNS neighbours outlast the others' choices."""
_MOST_NUMBERS = 40_000_000
"""Distances that ``facility`` holds in memory."""


@dataclass(eq=False)
class Run:
    """Keeps account of the tasks chosen so far, under a budget and a limit on shared classes.

    A task that was refused is never asked for again: the budget only shrinks, and the tasks it
    shares classes with only grow in number.
    """

    source: DistanceSource
    tie_keys: UInt64[np.ndarray, "trains"]
    test_keys: UInt64[np.ndarray, "tests"]
    weights: Float[np.ndarray, "tests"]
    left: int
    """Of the budget."""
    costs: Int[np.ndarray, "trains"]
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
        self._cheapest = int(self.costs.min(initial=1))

    @property
    def done(self) -> bool:
        """Whether nothing more can be chosen."""
        return self.left < self._cheapest or not self.unused.any()

    def classes_of(self, task: int) -> Int[np.ndarray, "its_way"]:
        """The class ids of a training task."""
        assert self.classes is not None
        row = self.classes[task]
        return row[row >= 0]

    def take(self, task: int, score: float, test: int = -1) -> bool:
        """Choose a task unless the budget or ``max_shared`` forbids it; whether it was chosen.

        Either way it is no longer ``unused``.
        """
        self.unused[task] = False
        if self.costs[task] > self.left or not self._apart(task):
            return False
        self.left -= int(self.costs[task])
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


def nearest(run: Run, options: RuleOptions) -> None:
    """The tasks with the smallest mean distance from all test tasks, as in the paper."""
    means = run.source.means(run.weights)
    _take_in_order(run, means, means)


def random(run: Run, options: RuleOptions) -> None:
    """Tasks in an order that depends on the seed alone."""
    _take_in_order(run, np.zeros(run.source.n_train), run.source.means(run.weights))


def _take_in_order(
    run: Run, order_by: Float[np.ndarray, "trains"], scores: Float[np.ndarray, "trains"]
) -> None:
    for task in ascending(order_by, run.tie_keys, run.left):
        if run.done:
            break
        run.take(task, scores[task])


def coverage(run: Run, options: RuleOptions) -> None:
    """Every test task in turn takes its nearest unused training task."""

    def choose(test: int, near: Int[np.ndarray, "k"], distances: Float[np.ndarray, "k"]) -> bool:
        pairs = zip(near.tolist(), distances.tolist(), strict=True)
        return any(run.take(task, distance, test) for task, distance in pairs)

    _serve(run, choose, _TURNS)


def classes(run: Run, options: RuleOptions) -> None:
    r"""As ``coverage``, with a penalty on classes that were used often.

    .. math:: \frac{d}{\bar d} + \text{penalty} \cdot
        \frac{\text{mean use of the task's classes}}{1 + \text{mean use of all classes}}
    """
    scale = float(run.source.means(run.weights).mean()) or 1.0
    choice = options.candidates or 64
    assert run.classes is not None
    n_classes = len(np.unique(run.classes[run.classes >= 0]))

    def choose(test: int, near: Int[np.ndarray, "k"], distances: Float[np.ndarray, "k"]) -> bool:
        near, distances = near[:choice], distances[:choice]
        usual = 1 + run.uses.sum() / n_classes
        use = np.array([run.uses[run.classes_of(task)].mean() for task in near.tolist()]) / usual
        cost = distances / scale + options.penalty * use
        order = np.lexsort((run.tie_keys[near], cost))
        return any(run.take(int(near[i]), float(distances[i]), test) for i in order)

    _serve(run, choose, _TURNS + choice)


def _serve(run: Run, choose: Callable[[int, np.ndarray, np.ndarray], bool], k: int) -> None:
    """Let test tasks take turns; ``choose`` picks from the nearest that are still unused."""
    turns = _turns(run)
    with progress_bar("selecting tasks", run.left) as advance:
        while not run.done:
            tests = np.array([next(turns) for _ in range(min(_TURNS, run.left))])
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


def _turns(run: Run) -> Iterator[int]:
    """Test tasks without end, each as often as its weight says, in an order set by the seed."""
    share = run.weights / run.weights.max()
    start = (run.test_keys >> np.uint64(11)).astype(np.float64) / 2.0**53
    queue = [(start[t] / share[t], t) for t in np.flatnonzero(share > 0).tolist()]
    heapq.heapify(queue)
    while True:
        time, test = queue[0]
        heapq.heapreplace(queue, (time + 1 / share[test], test))
        yield test


def facility(run: Run, options: RuleOptions) -> None:
    r"""Greedy maximisation of how much nearer the chosen set is to the test tasks.

    .. math:: f(S) = \sum_t w_t \left( \max_{d} D_{td} - \min_{d \in S} D_{td} \right)

    f is monotone and submodular, so with unit costs and without ``max_shared`` the greedy set
    reaches at least 1 - 1/e of the best value of its size, over the candidates and the test tasks
    that were looked at (Nemhauser, Wolsey and Fisher 1978). Where costs differ, the next task is
    the one with the largest gain for its cost, which guarantees nothing. Gains are not computed
    again but corrected for the test tasks whose nearest chosen task has changed: few, after the
    first choices. Once every test task has its nearest candidate, f cannot grow; the rule then
    starts again with the candidates that are left.
    """
    n_chosen = min(run.left // max(1, int(run.costs.min())), run.source.n_train)
    size = min(options.candidates or max(2000, 4 * n_chosen), run.source.n_train)
    if size < n_chosen:
        raise DataError(f"candidates={size} is less than the {n_chosen} tasks to choose.")
    order = np.lexsort((np.arange(run.source.n_test), run.test_keys))
    order = order[run.weights[order] > 0]
    tests = order[: max(1, min(options.max_test, _MOST_NUMBERS // size))]
    pool = _preselect(run, tests, size)
    distances = run.source.block(tests, pool)
    weights = run.weights[tests] / run.weights[tests].sum()
    waiting = np.ones(len(pool), dtype=bool)
    with progress_bar("selecting tasks", run.left) as advance:
        while not run.done and waiting.any():
            before = run.left
            _one_layer(run, pool, distances, weights, waiting)
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
    weights: Float[np.ndarray, "tests"],
    waiting: Bool[np.ndarray, "pool"],
) -> None:
    """Choose until every test task has its nearest of the candidates that were waiting."""
    reached = distances[:, waiting].max(axis=1)
    negligible = 1e-12 * float(reached @ weights)
    costs = run.costs[pool]
    gains = weights @ np.maximum(reached[:, None] - distances, 0.0)
    chosen = 0
    while waiting.any() and not run.done:
        j = int(np.argmax(np.where(waiting, gains / costs, -np.inf)))
        if gains[j] <= negligible and chosen:
            return
        waiting[j] = False
        if not run.take(int(pool[j]), float(gains[j] / costs[j])):
            continue
        chosen += 1
        nearer = np.flatnonzero(distances[:, j] < reached)
        was, now = reached[nearer, None], distances[nearer, j, None]
        there = distances[nearer]
        gains -= weights[nearer] @ (np.maximum(was - there, 0.0) - np.maximum(now - there, 0.0))
        reached[nearer] = now[:, 0]
