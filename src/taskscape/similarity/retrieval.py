"""The plainest test of a similarity measure: do tasks of one source find each other?

The classes of every queried group are dealt into two halves. Queries are tasks of one half;
candidates are tasks of the other half, and of all groups that were learned from. A measure is
worth something if the nearest candidate of a query is of its own group. It needs no learner.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from taskscape.arguments import Seed, check_kind, check_seed, check_whole
from taskscape.errors import DataError
from taskscape.io.pictures import picture
from taskscape.io.values import from_plain, plain
from taskscape.notebook import ShownInNotebooks
from taskscape.pools import ClassPool
from taskscape.similarity.known import DEFAULT_SIMILARITY, PROTOTYPES, TASK_MEANS
from taskscape.similarity.registry import unfitted
from taskscape.similarity.similarity import Similarity
from taskscape.statistics import Interval, mean_interval
from taskscape.tasks import TaskSet, make_tasks, sample_tasks
from taskscape.themes.task_model import TaskModel, without_advice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NEAREST = 10
_FIT_TASKS = 2000
BASELINES: Mapping[str, str] = MappingProxyType(
    {TASK_MEANS: "means of all samples", PROTOTYPES: "class means"}
)
"""The simplest measures, which every other must beat to be worth its trouble, in words."""
TOO_FEW = (
    "How far to trust distances cannot be told: too few classes were not trained on, or too few of "
    "a group."
)
"""What is said where retrieval cannot be asked."""
_OTHERS = 9
"""Tasks that share all classes but one with a query, where there are no groups."""


@dataclass(frozen=True, eq=False, repr=False)
class Retrieval(ShownInNotebooks):
    """How often tasks of each group found their own group among those of all groups."""

    measure: str
    groups: tuple[str, ...]
    """Groups that tasks were queried from."""
    candidates: tuple[str, ...]
    """Groups that could be found."""
    at_1: Float[np.ndarray, "groups"]
    """By group, the share of its queries whose nearest task is of the group."""
    at_10: Float[np.ndarray, "groups"]
    """By group, the mean share of the ten nearest tasks that are."""
    by_mean: Float[np.ndarray, "groups"]
    """By group, the share of its queries that are nearer to the group than to any other, by the
    mean distance to all tasks of each instead of to its nearest."""
    taken_for: Float[np.ndarray, "groups candidates"]
    """The share of a group's queries whose nearest task is of each group."""
    chance: float
    by_group: bool = True
    """False where a query looks for the same classes, and is its own group."""

    def __repr__(self) -> str:
        return f"Retrieval({self.measure!r}: {100 * self.precision.value:.0f} % find their own)"

    @property
    def precision(self) -> Interval:
        """The mean of ``at_1`` with its 95 % interval over groups."""
        return mean_interval(self.at_1).within(0.0, 1.0)

    def minus(self, other: "Retrieval") -> Interval:
        """The mean difference in ``at_1``, paired by group, with its 95 % interval over groups."""
        return mean_interval(self.at_1 - other.at_1)

    def confusions(self, n: int = 5) -> list[tuple[str, str, float]]:
        """The groups most often taken for another: the group, the other, and the share."""
        wrong = self.taken_for * (np.array(self.groups)[:, None] != np.array(self.candidates))
        order = np.argsort(-wrong, axis=None, kind="stable")[:n]
        pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
        return [
            (self.groups[g], self.candidates[c], float(wrong[g, c]))
            for g, c in pairs
            if wrong[g, c]
        ]

    def summary(self) -> str:
        """The precision in a sentence."""
        p, n = self.precision, len(self.groups)
        within = f" [{100 * p.low:.0f}, {100 * p.high:.0f}]" if n > 1 else ""
        cases = f"{100 * p.value:.0f} % of cases{within}"
        chance = f"(chance {100 * self.chance:.2g} %)"
        if not self.by_group:
            what = "tasks of the same classes find each other"
            return f"{self.measure}: {what} in {cases}, over {n} tasks {chance}."
        over, near = f"{n} group{'s' * (n > 1)}", 100 * self.at_10.mean()
        return (
            f"{self.measure}: tasks of one group find each other in {cases}, over {over} {chance}; "
            f"of the ten nearest, {near:.0f} % are of the group."
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain numbers and lists."""
        return {
            **plain(self),
            "precision": vars(self.precision),
            "confusions": self.confusions(10),
        }

    def plot(self, path: str | os.PathLike[str] | None = None) -> "Figure":
        """Who is taken for whom, a row for each queried group: a figure, which notebooks show."""
        width, height = 3 + 0.16 * len(self.candidates), 2 + 0.16 * len(self.groups)
        with picture(path, width, height) as figure:
            ax = figure.subplots()
            image = ax.imshow(100 * self.taken_for, cmap="Blues", vmin=0, vmax=100, aspect="auto")
            ax.set_xticks(range(len(self.candidates)), self.candidates, rotation=90, fontsize=6)
            ax.set_yticks(range(len(self.groups)), self.groups, fontsize=6)
            ax.set_xlabel("group of the nearest task")
            ax.set_ylabel("group of the query")
            ax.set_title(f"{self.measure}: {100 * self.precision.value:.0f} % find their own group")
            figure.colorbar(image, ax=ax, label="% of a group's queries")
        return figure


def score_retrieval(
    distances: Float[np.ndarray, "queries candidates"],
    queries: np.ndarray,
    candidates: np.ndarray,
    measure: str = "distance",
) -> Retrieval:
    """Score distances from queries to candidates, given the group of each.

    Ties are settled against the measure: of equally near candidates, those of other groups count as
    nearer, so that a measure that tells nothing apart scores nothing.
    """
    own = queries[:, None] == candidates
    order = np.lexsort((own, distances), axis=1)[:, :_NEAREST]
    hits = np.take_along_axis(own, order, axis=1)
    nearest = candidates[order[:, 0]]
    groups, known = np.unique(queries), np.unique(candidates)
    rows = [queries == g for g in groups]
    means = np.stack([distances[:, candidates == c].mean(axis=1) for c in known], axis=1)
    others = np.where(queries[:, None] == known, np.inf, means).min(axis=1, initial=np.inf)
    by_mean = np.where(queries[:, None] == known, means, np.inf).min(axis=1) < others
    return Retrieval(
        measure,
        tuple(map(str, groups)),
        tuple(map(str, known)),
        np.array([hits[r, 0].mean() for r in rows]),
        np.array([hits[r].mean() for r in rows]),
        np.array([by_mean[r].mean() for r in rows]),
        np.array([[(nearest[r] == c).mean() for c in known] for r in rows]),
        float(np.mean([own[r].mean() for r in rows])),
    )


# -- the test ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class RetrievalTest(ShownInNotebooks):
    """How a similarity measure did, with the simplest baselines on the same tasks."""

    measure: Retrieval
    baselines: Mapping[str, Retrieval]

    def __repr__(self) -> str:
        return f"RetrievalTest({self.measure!r})"

    def _rows(self) -> Iterable[Mapping[str, Any]]:
        for test in (self.measure, *self.baselines.values()):
            yield {"by": test.measure, "find their own (%)": f"{100 * test.precision.value:.0f}"}

    @property
    def verdict(self) -> str:
        """How often tasks find their own, in a sentence."""
        what = "of one group" if self.measure.by_group else "of the same classes"
        share = 100 * self.measure.precision.value
        return f"Tasks {what} find each other in {share:.0f} % of cases."

    @property
    def because(self) -> str:
        """How often by the simplest measures and by chance, and whether one of those is better."""
        result = {name: 100 * b.precision.value for name, b in self.baselines.items()}
        each = ", ".join(f"{BASELINES.get(k, k)} would find {v:.0f} %" for k, v in result.items())
        chance = f"chance would find {100 * self.measure.chance:.2g} %."
        said = f"{each}; {chance}" if each else chance
        if better := self.clearly_better():
            said += f" So {BASELINES.get(better, better)} tell more here than this distance does."
        return said[0].upper() + said[1:]

    def summary(self) -> str:
        """The answer in words, with its interval and the paired difference to every baseline."""
        gaps = self.gaps.items()
        beside = [f"{name}: paired difference {gap.in_points()} points." for name, gap in gaps]
        return "\n".join([f"{self.verdict} {self.because}", self.measure.summary(), *beside])

    @property
    def gaps(self) -> dict[str, Interval]:
        """How much more often by the measure than by each baseline, paired by group."""
        return {name: self.measure.minus(other) for name, other in self.baselines.items()}

    def clearly_better(self) -> str:
        """The baseline that is clearly better than the measure, if there is one."""
        gaps = self.gaps
        worst = min(gaps, key=lambda name: gaps[name].high, default="")
        return worst if worst and gaps[worst].sign(3) < 0 else ""

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain numbers and lists."""
        return {
            "measure": self.measure.to_dict(),
            "baselines": {name: b.to_dict() for name, b in self.baselines.items()},
            "differences": {name: vars(gap) for name, gap in self.gaps.items()},
        }

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "RetrievalTest":
        """The test that :meth:`to_dict` took apart."""
        return from_plain(RetrievalTest, values)


def retrieval(
    pool: ClassPool,
    similarity: str | Similarity | TaskModel = DEFAULT_SIMILARITY,
    *,
    split: str | None = None,
    n_way: int = 5,
    n_shot: int = 5,
    n_queries: int = 20,
    n_candidates: int = 40,
    baselines: Sequence[str] = tuple(BASELINES),
    seed: Seed = 0,
) -> RetrievalTest:
    """How often tasks of a group of ``pool`` find their own group by a similarity measure.

    ``similarity`` is a name of ``SIMILARITIES``, a measure, or a model, such as ``TaskThemes()``; a
    model is left as it is, and a copy of it is fitted.

    Queried are classes of ``split``, by default all that are not for training; where the pool has
    no splits, those of half of its groups by chance. Measures are fitted to tasks of the training
    classes, so that they never see a queried class, nor a queried group unless it has training
    classes too, which are then to be found. Of every group, ``n_queries`` and ``n_candidates``
    tasks are drawn. Without groups, each of 5 ``n_queries`` queries is to find the same classes
    with other samples among up to nine tasks that share all classes but one with it.
    """
    check_kind(pool, ClassPool, "pool", "Open one with load_pool.")
    n_way, n_shot = check_whole(n_way, "n_way", 2), check_whole(n_shot, "n_shot", 1)
    check_whole(n_queries, "n_queries", 1)
    check_whole(n_candidates, "n_candidates", 1)
    dealt = deal(pool, split, n_way, n_shot, (n_queries, n_candidates), seed)

    def score(measure: str | Similarity | TaskModel) -> Retrieval:
        name = measure if isinstance(measure, str) else type(measure).__name__
        return dealt.score(unfitted(measure, int(seed)), name)

    return RetrievalTest(score(similarity), {name: score(name) for name in baselines})


def retrieval_if_any(
    pool: ClassPool,
    similarity: str | Similarity | TaskModel,
    n_way: int = 5,
    n_shot: int = 5,
    **options: Any,
) -> RetrievalTest | None:
    """:func:`retrieval` by tasks of up to ``n_way`` classes; None where even two are too many."""
    for way in range(n_way, 1, -1):
        with suppress(DataError):
            return retrieval(pool, similarity, n_way=way, n_shot=n_shot, **options)
    return None


@dataclass(frozen=True, eq=False)
class Dealt:
    """Tasks that look for their own, those to be found, and those that measures are fitted to."""

    queries: TaskSet
    candidates: TaskSet
    owners: tuple[np.ndarray, np.ndarray]
    """What each of both belongs to."""
    train: TaskSet
    by_group: bool

    def score(self, measure: Similarity, name: str = "") -> Retrieval:
        """How often queries find their own by a measure, which is fitted first."""
        with without_advice():  # unseen groups may well be unlike those learned from
            matrix = measure.fit(self.train).cdist(self.queries, self.candidates)
        if self.by_group:
            return score_retrieval(matrix, *self.owners, name)
        beside = _families(len(self.queries), len(self.candidates))
        scored = score_retrieval(np.where(beside, matrix, np.inf), *self.owners, name)
        return replace(scored, by_group=False, chance=float(len(self.queries) / beside.sum()))


def deal(
    pool: ClassPool,
    split: str | None,
    n_way: int,
    n_shot: int,
    sizes: tuple[int, int],
    seed: Seed,
) -> Dealt:
    """Draw what a retrieval needs; it depends on the pool's classes, not on its samples."""
    rng = np.random.default_rng(check_seed(seed))
    by_group = pool.groups is not None
    draw = _by_group if by_group else _by_classes
    queries, candidates, owners, learned = draw(pool, split, n_way, n_shot, sizes, rng)
    train = sample_tasks(
        pool.subset(learned.tolist()), _FIT_TASKS, n_way=n_way, n_shot=n_shot, seed=seed,
        within_group=by_group,
    )  # fmt: skip
    return Dealt(queries, candidates, owners, train, by_group)


Drawn = tuple[TaskSet, TaskSet, tuple[np.ndarray, np.ndarray], Int[np.ndarray, "classes"]]
"""Queries, candidates, what each of both belongs to, and the classes to learn from."""


def _by_group(
    pool: ClassPool,
    split: str | None,
    n_way: int,
    n_shot: int,
    sizes: tuple[int, int],
    rng: np.random.Generator,
) -> Drawn:
    """Queries of unseen classes of each group, candidates of its others and of all groups."""
    groups = np.asarray(pool.groups)
    learned, asked = _seen_and_asked(pool, split, rng)
    first: dict[str, np.ndarray] = {}
    second: dict[str, np.ndarray] = {}
    for group in np.unique(groups):
        seen, unseen = (of[groups[of] == group] for of in (learned, rng.permutation(asked)))
        if len(seen) >= n_way:
            second[group] = seen
        elif len(unseen) >= 2 * n_way:
            unseen, second[group] = np.array_split(unseen, 2)
        if group in second and len(unseen) >= n_way:
            first[group] = unseen
    if not first or len(second) < 2:
        raise DataError(
            f"retrieval asks tasks of one group to find each other among those of others; {pool!r} "
            f"has {len(first)} groups to query and {len(second)} to find. A queried group needs "
            f"{2 * n_way} classes outside of the training split, or {n_way} there and {n_way} in "
            "it; lower n_way, or give the classes other groups."
        )
    sets, owners = [], []
    for classes_of, n in zip((first, second), sizes, strict=True):
        drawn = [
            rng.choice(classes, n_way, replace=False).tolist()
            for classes in classes_of.values()
            for _ in range(n)
        ]
        sets.append(make_tasks(pool, drawn, n_shot=n_shot, seed=int(rng.integers(2**31))))
        owners.append(np.repeat(list(classes_of), n))
    return sets[0], sets[1], (owners[0], owners[1]), learned


def _seen_and_asked(
    pool: ClassPool, split: str | None, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Classes to learn from, and classes to query."""
    if pool.splits is None:
        if split is not None:
            pool.classes_in(split)  # which says how to have splits
        of = np.asarray(pool.groups or range(len(pool)))
        names = rng.permutation(np.unique(of))
        training = ~np.isin(of, names[: len(names) // 2])
        return np.flatnonzero(training), np.flatnonzero(~training)
    known = pool.classes_in("train")  # an error where there are none
    rest = np.setdiff1d(np.arange(len(pool)), known)
    asked = rest if split is None else np.intersect1d(rest, pool.classes_in(split))
    if not len(asked):
        raise DataError(
            f"split={split!r}: measures are fitted to the training classes of {pool!r}; queries "
            "need classes that are not among them. Query another split, or keep some apart."
        )
    return known, asked


def _by_classes(
    pool: ClassPool,
    split: str | None,
    n_way: int,
    n_shot: int,
    sizes: tuple[int, int],
    rng: np.random.Generator,
) -> Drawn:
    """Queries, the same classes with other samples, and tasks that share all classes but one."""
    learned, asked = _seen_and_asked(pool, split, rng)
    if len(asked) <= n_way:
        raise DataError(
            f"retrieval of {n_way}-way tasks needs more than {n_way} classes that were not learned "
            f"from; {pool!r} has {len(asked)}. Lower n_way, or split the classes otherwise."
        )
    pool.require(2 * n_shot, f"two draws of n_shot={n_shot}", asked.tolist())
    queries, others = [], []
    for _ in range(5 * sizes[0]):
        classes = rng.choice(asked, n_way, replace=False)
        queries.append(classes.tolist())
        for i, new in enumerate(rng.permutation(np.setdiff1d(asked, classes))[:_OTHERS]):
            others.append([*np.delete(classes, i % n_way).tolist(), int(new)])
    own, beside = (
        make_tasks(pool, wanted, n_shot=2 * n_shot, seed=int(rng.integers(2**31))).halves()
        for wanted in (queries, others)
    )
    names = np.arange(len(queries)).astype(str)
    owners = names, np.concatenate([names, np.full(len(others), "one class differs")])
    return own[0], TaskSet.concatenate([own[1], beside[0]]), owners, learned


def _families(n_queries: int, n_candidates: int) -> Bool[np.ndarray, "queries candidates"]:
    """Which candidates a query is to be found among: its own classes, and those beside them."""
    others = (n_candidates - n_queries) // n_queries
    own = np.concatenate([np.arange(n_queries), np.repeat(np.arange(n_queries), others)])
    return np.arange(n_queries)[:, None] == own
