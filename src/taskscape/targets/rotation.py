"""Every group of a pool is the target once: what choosing for it gains, and what that tells.

Groups are dealt into folds. For every fold, candidates are drawn and similarities fitted on the
groups outside of it; then each of its groups is a target with a few labelled samples a class.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from taskscape.arguments import check_whole
from taskscape.errors import DataError
from taskscape.io.files import cache_dir
from taskscape.io.ledger import Ledger
from taskscape.pools import ClassPool
from taskscape.pools.join import same_name
from taskscape.progress import progress_bar
from taskscape.select.known import RANDOM
from taskscape.select.trials import gain_over
from taskscape.similarity import Similarity, make_similarity
from taskscape.similarity.known import PROTOTYPES, THEMES
from taskscape.targets.advisor import (
    ALL,
    Outlook,
    Sources,
    WayTrials,
    random_of,
    source_way,
    training_classes,
)
from taskscape.targets.gains import LEAST_TARGETS, GainSeen, evidence_of
from taskscape.targets.known import HALF, RANKS, WAYS, AdvisorSettings
from taskscape.targets.target import LEAST_QUERIES, Target, find_target


@dataclass(frozen=True)
class Rotation:
    """The groups of a pool, dealt into folds, and how each is tried as the target."""

    pool: ClassPool
    ways: tuple[str, ...]
    """Ways to choose: those of ``WAYS``, and other similarity measures."""
    folds: int = 7
    without_namesakes: bool = False
    """Only targets of which another source has one by the same name, and without that."""
    settings: AdvisorSettings = field(default_factory=AdvisorSettings)

    @cached_property
    def dealt(self) -> list[list[str]]:
        """The targets of every fold; an error where some cannot be tried, or there are none."""
        given, n_folds = self.settings, check_whole(self.folds, "folds", 2)
        folds = _dealt_groups(self.pool, n_folds, given.n_way, self.without_namesakes)
        targets = [name for fold in folds for name in fold]
        if not targets:
            namesake = " and another group of its name" if self.without_namesakes else ""
            raise DataError(
                f"no group of {self.pool!r} can be a target: that takes the {given.n_way} classes "
                f"of a task{namesake}. Give a pool with groups, or lower n_way."
            )
        check_whole(given.n_query, "n_query", LEAST_QUERIES)
        self.pool.require(
            given.n_shot + LEAST_QUERIES, f"n_shot={given.n_shot} and {LEAST_QUERIES} queries",
            np.flatnonzero(np.isin(self.pool.groups or (), targets)).tolist(),
        )  # fmt: skip
        return folds

    def sources_without(self, fold: Sequence[str]) -> Sources:
        """Candidates of the groups outside of a fold, and similarities fitted to them."""
        outside = np.flatnonzero(~np.isin(self.pool.groups or (), fold))
        rest = replace(self.pool.subset(outside.tolist()), splits=None)
        return Sources.of(rest, self.settings, _measures(self.ways, self.settings))

    def target(self, name: str) -> Target:
        """A group as the target."""
        return find_target(name, self.pool, **self.settings.target_sizes())


def _dealt_groups(
    pool: ClassPool, folds: int, n_way: int, without_namesakes: bool
) -> list[list[str]]:
    """The groups that a task can be drawn from, in folds; the pool's kinds of groups are spread.

    Groups of one name, such as the Greek of two sources, go into different folds, so that a target
    has the other one among its sources; or those alone are dealt, and go into the same fold.
    """
    sizes, by_name = Counter(pool.groups or ()), list[list[str]]()
    for group in (g for g in sizes if sizes[g] >= n_way):
        own = next((of_name for of_name in by_name if same_name(of_name[0], group)), None)
        if own is None:
            by_name.append(own := [])
        own.append(group)
    if without_namesakes:
        shared = [of_name for of_name in by_name if len(of_name) > 1]
        return [[g for of_name in shared[i::folds] for g in of_name] for i in range(folds)]
    in_order = [g for of_name in by_name for g in of_name]
    return [in_order[i::folds] for i in range(folds)]


def _measures(ways: Sequence[str], settings: AdvisorSettings) -> dict[str, Similarity]:
    """The similarity measures that ways need."""
    ranked = (PROTOTYPES,) if {RANKS, HALF} & set(ways) else ()
    return {
        name: make_similarity(name, seed=settings.seed)
        for name in dict.fromkeys((THEMES, *ranked, *ways))
        if name not in (RANKS, HALF, RANDOM, ALL)
    }


def try_target(
    outlook: Outlook,
    learner: str,
    ways: Sequence[str],
    budgets: Sequence[int],
    *,
    trials: int = 3,
    random_trials: int = 6,
    with_sources: bool = False,
) -> list[WayTrials]:
    """Train by each way, by chance and on all candidates; on every source alone if asked."""
    asked: list[tuple[str, int, int]] = []
    for budget in budgets:
        asked.append((RANDOM, budget, random_trials))
        asked += [(way, budget, trials) for way in ways]
    everything = len(outlook.sources.tasks)
    asked.append((ALL, everything, 2))
    if with_sources:
        asked += [(source_way(g), everything, 1) for g in outlook.sources.groups]
    return outlook.try_ways(learner, asked, outlook.sources.settings.seed)


def summaries(target: Target, tried: Sequence[WayTrials]) -> list[dict[str, Any]]:
    """By way and budget, the gain over random choice, and what spoke for it beforehand."""
    assert target.queries is not None
    rows = []
    for trials in tried:
        has_budget = trials.way != ALL and not trials.way.startswith(source_way(""))
        random = random_of(tried, trials.budget if has_budget else tried[0].budget)
        assert trials.accuracy is not None
        assert random.accuracy is not None
        gain = gain_over(trials.accuracy, random.accuracy, target.queries.classes)
        on_folds = trials.held_out_accuracy
        rows.append(
            {
                "way": trials.way,
                "budget": trials.budget,
                "accuracy": trials.accuracy.mean(1).tolist(),
                "gain": gain.value,
                "low": gain.low,
                "high": gain.high,
                "held_out": None if trials.held_out is None else trials.held_out.tolist(),
                "held_out_accuracy": None if on_folds is None else on_folds.mean(1).tolist(),
                "evidence": evidence_of(trials, random) or 0.0,
            }
        )
    return rows


def gains_seen(entries: Iterable[Mapping[str, Any]]) -> list[GainSeen]:
    """What a ledger of targets tells :func:`taskscape.advise` of others."""
    return [
        GainSeen(
            entry["cell"]["target"], entry["cell"]["learner"], seen["way"], seen["budget"],
            seen["gain"], seen["evidence"],
        )
        for entry in entries
        for seen in entry["ways"]
        if seen["way"] in WAYS and seen["way"] != RANDOM
    ]  # fmt: skip


def experience_of(
    pool: ClassPool,
    learner: str = "protonet",
    n: int = 100,
    settings: AdvisorSettings | None = None,
    *,
    but: str | None = None,
) -> list[GainSeen]:
    """What choosing gains on a pool's own groups of training classes, each the target once.

    For ``advise(…, experience=…)``. What was seen is kept in the cache folder, so that only the
    first target of a pool waits for it. ``but`` is a group that is left out: the target itself.
    """
    ways = tuple(way for way in WAYS if way != RANDOM)
    rotation = Rotation(training_classes(pool), ways, settings=settings or AdvisorSettings())
    others = {g for fold in rotation.dealt for g in fold} - {but}
    if len(others) < LEAST_TARGETS:
        raise DataError(
            f"{pool!r} has {len(others)} groups of {rotation.settings.n_way} or more training "
            f"classes besides the target; at least {LEAST_TARGETS} are needed to see what choosing "
            "gains on it. Leave experience out, to go by gains on the embedded data."
        )
    return [seen for seen in gains_seen(_rotated(rotation, learner, n)) if seen.target != but]


def _rotated(rotation: Rotation, learner: str, n: int) -> list[dict[str, Any]]:
    """Every group of a pool as the target once; what was seen is kept in the cache folder."""
    ledger = Ledger(cache_dir() / "targets" / f"{rotation.pool.fingerprint}.jsonl")
    cells = []
    with progress_bar("groups as targets", sum(map(len, rotation.dealt))) as advance:
        for number, fold in enumerate(rotation.dealt):
            sources: Sources | None = None
            for name in fold:
                cell = {
                    "what": "target", "target": name, "learner": learner, "budget": n,
                    "fold": number, "folds": rotation.folds, "ways": list(rotation.ways),
                    **asdict(rotation.settings),
                }  # fmt: skip
                if ledger.get(cell) is None:
                    sources = sources or rotation.sources_without(fold)
                    outlook = sources.look_at(rotation.target(name))
                    tried = try_target(outlook, learner, rotation.ways, [n])
                    ledger.add(cell, {"ways": summaries(outlook.target, tried)})
                cells.append(ledger.get(cell) or {})
                advance(1)
    return cells
