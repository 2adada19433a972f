"""What choosing tasks for a target is worth: every group of a pool is the target once.

    python -m taskscape.studies targets --pool glyphs --learners protonet,maml --out found.jsonl

Groups are dealt into folds. For every fold, candidates are drawn and similarities fitted on the
groups outside of it; then each of its groups is a target with a few labelled samples a class. For
each target and learner: accuracy after training on what each way chooses, on candidates by chance,
on all, and on every single source; and what can be known of the target beforehand. Accuracies of
every task are kept beside the ledger.
"""

import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from taskscape.pools import ClassPool, load_pool
from taskscape.similarity import Similarity, make_similarity
from taskscape.similarity.known import TASK_THEMES
from taskscape.similarity.task_themes import ThemeSimilarity
from taskscape.studies.lab import Lab, Store, option
from taskscape.targets.advisor import AdvisorSettings, Outlook, Sources
from taskscape.targets.cues import cues_of
from taskscape.targets.target import Target, target_of_classes
from taskscape.targets.trials import ALL, WayTrials, gain_over, random_of, source_way, try_ways
from taskscape.targets.ways import HALF, RANDOM, RANKS
from taskscape.themes.estimator import TaskThemes

__all__ = ["TargetsSettings", "dealt_groups", "run"]

_SIZES: dict[str, dict[str, Any]] = {
    "task_themes 8×4": {"image_themes": 8, "task_themes": 4},
    "task_themes 32×16": {"image_themes": 32, "task_themes": 16},
    "task_themes ×3": {"n_restarts": 3, "ensemble": 3},
}
"""Sizes of task-themes that are compared with those of the settings."""


@dataclass(frozen=True)
class TargetsSettings:
    """What to study, and how."""

    pool: str = option("a known data set or a path, with groups")
    learners: tuple[str, ...] = option("", ("protonet", "maml"), commas=True)
    budgets: tuple[int, ...] = option("how many training tasks to choose", (100, 400))
    folds: int = 7
    only_folds: tuple[int, ...] = option("not all of them: several machines can share", ())
    network: str = option("mlp on principal components, or conv4", "mlp", choices=("mlp", "conv4"))
    trials: int = option("trainings of each way", 3)
    random_trials: int = option("trainings on random tasks", 6)
    ways: tuple[str, ...] = option(
        "ways to choose", (TASK_THEMES, *_SIZES, "prototypes", "task2vec", RANKS, HALF), commas=True
    )
    with_sources: bool = option("also train on every single source", False)
    settings: AdvisorSettings = field(default_factory=AdvisorSettings)


def dealt_groups(pool: ClassPool, folds: int, n_way: int) -> list[list[str]]:
    """The groups that a task can be drawn from, in folds; the pool's kinds of groups are spread."""
    groups = list(dict.fromkeys(pool.groups or ()))
    sizes = {g: (pool.groups or ()).count(g) for g in groups}
    large = [g for g in groups if sizes[g] >= n_way]
    return [large[i::folds] for i in range(folds)]


def notions(ways: tuple[str, ...], settings: AdvisorSettings) -> dict[str, Similarity]:
    """The notions of similarity that some ways need."""
    needed: dict[str, Similarity] = {}
    ranked = (TASK_THEMES, "prototypes") if {RANKS, HALF} & set(ways) else ()
    for name in dict.fromkeys((TASK_THEMES, *ranked, *ways)):
        if name == TASK_THEMES or name in _SIZES:
            usual: dict[str, Any] = {
                "image_themes": settings.image_themes,
                "task_themes": settings.task_themes,
            }
            sizes = usual | _SIZES.get(name, {})
            needed[name] = ThemeSimilarity(TaskThemes(random_state=settings.seed, **sizes))
        elif name not in (RANKS, HALF, RANDOM, ALL):
            needed[name] = make_similarity(name, seed=settings.seed)
    return needed


def run(settings: TargetsSettings, lab: Lab) -> None:
    """Study what the settings ask for; a fold is fitted when its first cell is missing."""
    pool = load_pool(settings.pool)
    store = Store(lab, pool.fingerprint, settings.settings.seed)
    given = settings.settings
    if settings.network == "conv4":
        given = replace(given, components=0)
    for number, fold in enumerate(dealt_groups(pool, settings.folds, given.n_way)):
        if settings.only_folds and number not in settings.only_folds:
            continue
        inside = np.isin(pool.groups or (), fold)
        sources: Sources | None = None
        for name in fold:
            target = target_of_classes(
                pool, np.flatnonzero(np.asarray(pool.groups) == name), name, **given.target_sizes()
            )
            outlook: Outlook | None = None
            for learner in settings.learners:
                cell = {
                    "what": "target", "pool": pool.name, "target": name, "learner": learner,
                    "fold": number, "folds": settings.folds, "network": settings.network,
                    "budgets": list(settings.budgets), "ways": list(settings.ways),
                    "trials": [settings.trials, settings.random_trials],
                    "with_sources": settings.with_sources, **asdict(given),
                }  # fmt: skip
                if store.finished(cell):
                    continue
                store.check_time()
                if sources is None:
                    began = time.perf_counter()
                    rest = replace(pool.subset(np.flatnonzero(~inside).tolist()), splits=None)
                    sources = Sources.of(rest, given, notions(settings.ways, given))
                    print(f"fold {number}: {time.perf_counter() - began:.1f} s", flush=True)
                outlook = outlook or sources.look_at(target)
                _one_target(settings, store, cell, outlook, learner)


def _one_target(
    settings: TargetsSettings, store: Store, cell: dict[str, Any], outlook: Outlook, learner: str
) -> None:
    began = time.perf_counter()
    asked: list[tuple[str, int, int]] = []
    for budget in settings.budgets:
        asked.append((RANDOM, budget, settings.random_trials))
        asked += [(way, budget, settings.trials) for way in settings.ways]
    everything = len(outlook.sources.tasks)
    asked.append((ALL, everything, 2))
    if settings.with_sources:
        asked += [(source_way(g), everything, 1) for g in outlook.sources.groups]
    tried = try_ways(outlook, learner, asked, seed=settings.settings.seed)
    target = outlook.target
    assert target.queries is not None
    summaries = [_summary(outlook, t, tried, target) for t in tried]
    results = {
        "distances": {name: outlook.by_source(name) for name in outlook.distances},
        "gap": outlook.gap,
        "ways": summaries,
        "seconds": time.perf_counter() - began,
    }
    arrays = {
        f"{i:03d} {t.way} {t.budget}": np.round(t.accuracy * _queries(target)).astype(np.uint8)
        for i, t in enumerate(tried)
        if t.accuracy is not None
    }
    name = f"{settings.network}-{learner}-{target.name.replace(' ', '-')}"
    store.keep(name, classes=target.queries.classes, **arrays)
    store.add(cell, results)
    first = settings.budgets[0]
    gains = {w["way"]: f"{100 * w['gain']:+.1f}" for w in summaries if w["budget"] == first}
    print(learner, target.name, gains, flush=True)


def _queries(target: Target) -> int:
    assert target.queries is not None
    return target.queries.max_way * target.queries.n_query


def _summary(
    outlook: Outlook, trials: WayTrials, tried: list[WayTrials], target: Target
) -> dict[str, Any]:
    assert trials.accuracy is not None
    assert target.queries is not None
    has_budget = trials.way != ALL and not trials.way.startswith(source_way(""))
    random = random_of(tried, trials.budget if has_budget else tried[0].budget)
    gain = gain_over(trials, random, target.queries.classes)
    return {
        "way": trials.way,
        "budget": trials.budget,
        "accuracy": trials.accuracy.mean(1).tolist(),
        "gain": gain.value,
        "low": gain.low,
        "high": gain.high,
        "held_out": None if trials.held_out is None else trials.held_out.tolist(),
        "held_out_accuracy": None
        if trials.held_out_accuracy is None
        else trials.held_out_accuracy.mean(1).tolist(),
        "cues": cues_of(outlook, trials, random),
    }
