"""Is my test set like my training set? Training classes left out in turn say what is usual.

The training classes are dealt into halves. A measure that is fitted to one half knows neither the
other half nor the test classes, so that it is fair to both. If test and training classes are alike,
these two sets lie no farther apart than the same classes dealt into two sets again, at random.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from taskscape.arguments import Seed, check_kind, check_seed
from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.io.values import plain
from taskscape.notebook import ShownInNotebooks
from taskscape.pools import ClassPool
from taskscape.similarity.known import DEFAULT_SIMILARITY
from taskscape.similarity.registry import unfitted
from taskscape.similarity.similarity import Similarity
from taskscape.tasks import TaskSet, make_tasks, sample_tasks
from taskscape.themes.task_model import TaskModel, without_advice

_FIT_TASKS = 500
_MOST_SHOT = 16
_MOST_PAIRS = 60
"""Of each set: more would take time and hardly tell more."""
_DEALS = 999
_LEAST_DEALS = 20
"""With fewer ways to deal the classes, none would be rare."""
_USUAL = 90.0
"""Percent of the deals, on average over halves; sets farther apart than so many are unlike.
Sets dealt at random are so in 2 to 10 % of cases, as the halves agree little or wholly."""


@dataclass(frozen=True)
class Standing:
    """How far a set of classes is from left-out training classes, among random deals of both."""

    percentile: float
    """Percent of the deals whose sets are nearer, over folds; NaN if there are too few deals."""
    gap: float
    """How much farther classes of different sets are apart than those of one set; 0 is not."""
    n: int
    """Classes, or groups, of the set."""
    n_train: int

    @property
    def answer(self) -> str:
        """``"alike"``, ``"unlike"`` or ``"unknown"``."""
        if math.isnan(self.percentile):
            return "unknown"
        return "unlike" if self.percentile > _USUAL else "alike"


@dataclass(frozen=True)
class Resemblance(ShownInNotebooks):
    """Whether test tasks are like the training tasks; validation tasks stand beside them."""

    measure: str
    test: Standing
    validation: Standing | None = None
    groups: Standing | None = None
    """Test groups among left-out training groups; None unless the test tasks are of others."""

    def __repr__(self) -> str:
        return f"Resemblance({self.answer}: percentile {self.test.percentile:.0f})"

    @property
    def answer(self) -> str:
        """``"alike"``, ``"unlike"`` or ``"unknown"``."""
        return self.test.answer

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        if self.answer == "unknown":
            few = f"from {self.test.n} test and {self.test.n_train} training classes"
            return f"Whether the test tasks are like the training tasks cannot be told {few}."
        return f"Test tasks are {self.test.answer.replace('alike', 'like')} the training tasks."

    @property
    def because(self) -> str:
        """What it rests on, with validation tasks and new groups beside."""
        said = []
        if self.answer != "unknown":
            said += [
                "Test classes and training classes that were left out lie farther apart than "
                f"{self.test.percentile:.0f} % of random deals of them; above {_USUAL:.0f} % is "
                "unlike.",
                f"Classes of different sets are {100 * self.test.gap:z.0f} % farther apart than "
                "those of one.",
            ]
        if self.validation is not None and self.validation.answer != "unknown":
            own = self.validation
            said.append(
                f"Validation tasks are {own.answer.replace('alike', 'like')} them "
                f"({own.percentile:.0f} %)."
            )
        if self.groups is not None:
            said.append(self._new_groups(self.groups))
        return " ".join(said)

    @staticmethod
    def _new_groups(own: Standing) -> str:
        new = "The test groups are others than the training groups"
        if own.answer == "unknown":
            few = f"from {own.n} test and {own.n_train} training groups"
            return f"{new}; whether they differ more than groups do cannot be told {few}."
        more = "as other groups do" if own.answer == "alike" else "more than other groups do"
        return f"{new} and differ {more} ({own.percentile:.0f} % of deals of groups)."

    def summary(self) -> str:
        """The answer in words, with the numbers it rests on."""
        return f"{self.verdict} {self.because}".strip()

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        said = {"answer": self.answer, "verdict": self.verdict, "summary": self.summary()}
        return said | plain(self)


@dataclass(frozen=True, eq=False)
class _Classes:
    """Some classes of a pool."""

    pool: ClassPool
    ids: Int[np.ndarray, "classes"]

    @property
    def groups(self) -> np.ndarray | None:
        return None if self.pool.groups is None else np.asarray(self.pool.groups)[self.ids]

    def only(self, which: Bool[np.ndarray, "classes"]) -> "_Classes":
        return _Classes(self.pool, self.ids[which])

    def pairs(
        self, by_group: bool, shot: int, rng: np.random.Generator
    ) -> tuple[TaskSet, np.ndarray]:
        """Tasks of two classes, no class twice, with what is dealt as one: a task, or its group."""
        ids, of = rng.permutation(self.ids), np.asarray(self.pool.groups)
        blocks = [ids[of[ids] == g] for g in np.unique(of[ids])] if by_group else [ids]
        pairs = np.concatenate([b[: len(b) // 2 * 2].reshape(-1, 2) for b in blocks])
        pairs = rng.permutation(pairs)[:_MOST_PAIRS]
        units = of[pairs[:, 0]] if by_group else np.arange(len(pairs))
        tasks = make_tasks(self.pool, pairs.tolist(), n_shot=shot, seed=int(rng.integers(2**31)))
        return tasks, np.unique(units, return_inverse=True)[1]


def resemblance(
    test: TaskSet | Embeddings,
    train: TaskSet | Embeddings,
    similarity: str | Similarity | TaskModel = DEFAULT_SIMILARITY,
    *,
    validation: TaskSet | Embeddings | None = None,
    pool: ClassPool | None = None,
    seed: Seed = 0,
) -> Resemblance:
    """Whether the classes of test tasks are like those of the training tasks, by a measure.

    The measure is fitted again, to half of the training classes, and then to the other half; tasks
    of two classes are compared. ``pool`` is what embedded tasks are from. Where all test classes
    are of other groups than the training classes, groups are compared as well, with training groups
    left out in turn.
    """
    known, asked = _classes_of(train, pool, "train"), _classes_of(test, pool, "test")
    sets = {"test": asked}
    if validation is not None:
        sets["validation"] = _classes_of(validation, pool, "validation")
    every = [known, *sets.values()]
    shot = min(_MOST_SHOT, *(int(c.pool.counts[c.ids].min()) for c in every))
    standings = _left_out(known, sets, similarity, shot, check_seed(seed), by_group=False)
    groups = [set() if c.groups is None else set(c.groups.tolist()) for c in (known, asked)]
    if all(groups) and not set.intersection(*groups):
        new = {"groups": asked}
        standings |= _left_out(known, new, similarity, shot, int(seed), by_group=True)
    name = similarity if isinstance(similarity, str) else type(similarity).__name__
    return Resemblance(name, **standings)


def _classes_of(tasks: Any, pool: ClassPool | None, name: str) -> _Classes:
    check_kind(tasks, TaskSet | Embeddings, name, "Give tasks, or embedded tasks and their pool.")
    if isinstance(tasks, TaskSet):
        return _Classes(tasks.pool, tasks.class_ids)
    if pool is None:
        raise DataError(f"{name} is embedded tasks: give pool, the samples that they are of.")
    if pool.fingerprint != tasks.header.fingerprint:
        raise DataError(
            f"{name} was embedded from other data than {pool!r}, or other splits of it. Give that "
            "pool; splits that `taskscape run` dealt are in data/classes.csv of its folder."
        )
    return _Classes(pool, np.unique(tasks.classes[tasks.classes >= 0]).astype(np.int64))


def _left_out(
    known: _Classes,
    sets: Mapping[str, _Classes],
    similarity: Any,
    shot: int,
    seed: int,
    *,
    by_group: bool,
) -> dict[str, Standing]:
    """Where each set stands, with each half of the training classes left out in turn."""
    rng = np.random.default_rng([seed, by_group])
    # of each its own: what is said of a set does not depend on those that stand beside it
    chance = {n: np.random.default_rng([seed, by_group, *n.encode()]) for n in sets}
    units = known.groups if by_group else known.ids
    assert units is not None
    names = rng.permutation(np.unique(units))
    first = np.isin(units, names[: len(names) // 2])
    standings: dict[str, list[tuple[float, float]]] = {name: [] for name in sets}
    for half in (first, ~first):
        left = known.only(half)
        if min(half.sum(), (~half).sum()) < 2:
            continue
        own, own_units = left.pairs(by_group, shot, rng)
        asked = {n: part.pairs(by_group, shot, chance[n]) for n, part in sets.items()}
        able = {n: part for n, part in asked.items() if _deals(own_units, part[1]) >= _LEAST_DEALS}
        if not able:
            continue
        rest = known.only(~half)
        learned = sample_tasks(
            rest.pool.subset(rest.ids.tolist()), _FIT_TASKS, n_way=2, n_shot=shot, seed=seed
        )
        with without_advice():
            measure = unfitted(similarity, seed).fit(learned)
            for name, (tasks, their_units) in able.items():
                sides = [measure.embed(side) for side in (own, tasks)]
                apart = np.block([[measure.cdist(a, b) for b in sides] for a in sides])
                apart = (apart + apart.T) / 2
                standings[name].append(_stand(apart, own_units, their_units, chance[name]))
    result = {}
    for name, part in sets.items():
        percentile, gap = np.mean(standings[name], axis=0) if standings[name] else (np.nan,) * 2
        n = len(np.unique(part.groups if by_group else part.ids))  # type: ignore[arg-type]
        result[name] = Standing(float(percentile), float(gap), n, len(names))
    return result


def _deals(left: np.ndarray, asked: np.ndarray) -> int:
    """How many ways there are to deal the units of both sets into two of these sizes again."""
    sizes = [len(np.unique(units)) for units in (left, asked)]
    return 0 if min(len(left), len(asked)) < 2 else math.comb(sum(sizes), sizes[1])


def _stand(
    apart: Float[np.ndarray, "tasks tasks"],
    left: Int[np.ndarray, "left"],
    asked: Int[np.ndarray, "asked"],
    rng: np.random.Generator,
) -> tuple[float, float]:
    """The percentile of the gap between two sets among deals of their units, and the gap."""
    units = np.concatenate([left, asked + left.max() + 1])
    n, n_asked = int(units.max()) + 1, len(np.unique(asked))
    dealt = np.argsort(rng.random((_DEALS, n)), axis=1) < n_asked
    own = np.concatenate([[np.arange(n) > left.max()], dealt])[:, units]
    own = own[(own.sum(axis=1) > 1) & ((~own).sum(axis=1) > 1)]
    gap = _gaps(apart, own)
    nearer, equal = (gap[1:] < gap[0] - 1e-12).mean(), (np.abs(gap[1:] - gap[0]) <= 1e-12).mean()
    return 100.0 * float(nearer + equal / 2), float(gap[0])


def _gaps(
    apart: Float[np.ndarray, "tasks tasks"], own: Bool[np.ndarray, "deals tasks"]
) -> Float[np.ndarray, "deals"]:
    r""":math:`\bar d_{ab} / \tfrac12 (\bar d_{aa} + \bar d_{bb}) - 1`, no task with itself."""
    a, b = own.astype(np.float64), (~own).astype(np.float64)
    n, m = a.sum(axis=1), b.sum(axis=1)
    aa, bb, ab = (((x @ apart) * y).sum(axis=1) for x, y in ((a, a), (b, b), (a, b)))
    within = (aa / (n * (n - 1)) + bb / (m * (m - 1))) / 2
    return ab / (n * m) / np.maximum(within, 1e-12) - 1
