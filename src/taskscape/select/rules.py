"""The rules that choose training tasks; each fills a :class:`Run` until it is done."""

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from jaxtyping import Float, Int

from taskscape.errors import DataError
from taskscape.progress import progress_bar
from taskscape.select.facility import facility
from taskscape.select.run import Run, ascending

__all__ = ["RULES", "Rule", "RuleOptions"]

_TURNS = 128
"""Turns that are looked up together: k = _TURNS neighbours outlast the others' choices."""


@dataclass(frozen=True)
class RuleOptions:
    """What some of the rules can be told besides."""

    penalty: float = 0.25
    """Rule ``classes``: mean distances that a task may be farther for a class half as used."""
    candidates: int | None = None
    """Rule ``classes``: near tasks to choose from (64); ``facility``: size of the pre-selection."""
    max_test: int = 2000
    """Rule ``facility``: how many test tasks it is to serve, sampled if there are more."""


@dataclass(frozen=True)
class Rule:
    """A selection rule and what it goes by."""

    name: str
    choose: Callable[[Run, RuleOptions], None]
    score_is: str
    meaning: str
    needs_classes: bool = False


def nearest(run: Run, options: RuleOptions) -> None:
    """The tasks with the smallest mean distance from all test tasks, as in the paper."""
    means = run.source.means(run.weights)
    for task in ascending(means, run.tie_keys, run.left):
        if run.done:
            break
        run.take(task, means[task])


def random(run: Run, options: RuleOptions) -> None:
    """Tasks in an order that depends on the seed alone."""
    means = run.source.means(run.weights)
    for task in ascending(np.zeros(len(means)), run.tie_keys, run.left):
        if run.done:
            break
        run.take(task, means[task])


def coverage(run: Run, options: RuleOptions) -> None:
    """Every test task in turn takes its nearest unused training task."""

    def choose(test: int, near: Int[np.ndarray, "k"], distances: Float[np.ndarray, "k"]) -> bool:
        for task, distance in zip(near.tolist(), distances.tolist(), strict=True):
            if run.take(task, distance, test):
                return True
        return False

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
        for i in np.lexsort((run.tie_keys[near], cost)):
            if run.take(int(near[i]), float(distances[i]), test):
                return True
        return False

    _serve(run, choose, _TURNS + choice)


def _serve(run: Run, choose: Callable[[int, np.ndarray, np.ndarray], bool], k: int) -> None:
    """Let test tasks take turns; ``choose`` picks from the nearest that are still unused."""
    turns = _turns(run)
    with progress_bar("selecting tasks", run.left) as advance:
        while not run.done:
            tests = np.array([next(turns) for _ in range(min(_TURNS, run.left))])
            found = run.source.nearest(tests, k, run.unused, run.tie_keys)
            for test, near, distances in zip(tests, found.indices, found.distances, strict=True):
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


_ALL = (
    Rule("nearest", nearest, "mean distance", "smallest mean distance from the test tasks"),
    Rule("coverage", coverage, "distance", "each test task in turn takes its nearest unused task"),
    Rule("facility", lambda run, options: facility(run, options.candidates, options.max_test),
         "gain", "greedy facility location: together nearest to all test tasks"),
    Rule("classes", classes, "distance", "coverage that avoids classes used often", True),
    Rule("random", random, "mean distance", "by chance"),
)  # fmt: skip
RULES: Mapping[str, Rule] = MappingProxyType({rule.name: rule for rule in _ALL})
"""Every selection rule by name."""


def find_rule(name: str) -> Rule:
    """The rule of that name."""
    if name not in RULES:
        raise DataError(f"rule={name!r} is not a selection rule; use one of {', '.join(RULES)}.")
    return RULES[name]
