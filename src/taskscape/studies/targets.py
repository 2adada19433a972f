"""What choosing tasks for a target is worth: every group of a pool is the target once.

    python -m taskscape.studies targets --pool glyphs --learners protonet,maml --out found.jsonl

Groups are dealt into folds. For every fold, candidates are drawn and similarities fitted on the
groups outside of it; then each of its groups is a target with a few labelled samples a class. For
each target and learner: accuracy after training on what each way chooses, on candidates by chance,
on all, and on every single source; and what can be known of the target beforehand. Accuracies of
every task are kept beside the ledger.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from taskscape.arguments import check_whole
from taskscape.errors import DataError
from taskscape.files import cache_dir
from taskscape.pools import ClassPool, load_pool
from taskscape.pools.look_alikes import same_name
from taskscape.similarity import Similarity, make_similarity
from taskscape.similarity.known import TASK_THEMES
from taskscape.similarity.task_themes import ThemeSimilarity
from taskscape.statistics import Interval, mean_interval
from taskscape.studies.lab import Lab, Store, option
from taskscape.targets.advisor import AdvisorSettings, Outlook, Sources
from taskscape.targets.cues import cues_of
from taskscape.targets.gains import LEAST_TARGETS, GainSeen
from taskscape.targets.known import HALF, PROTOTYPES, RANDOM, RANKS, WAYS
from taskscape.targets.target import LEAST_QUERIES, Target, target_of_classes
from taskscape.targets.trials import ALL, WayTrials, gain_over, random_of, source_way, try_ways
from taskscape.themes.estimator import TaskThemes

__all__ = [
    "SizeGain",
    "TargetsSettings",
    "check_own_targets",
    "dealt_groups",
    "experience_of",
    "gains_by_size",
    "gains_seen",
    "run",
    "size_gains_table",
]

_SIZED = re.compile(rf"{TASK_THEMES} (?:(\d+)×(\d+))?(?:×(\d+))?")
"""Task-themes of another size than the settings have, or an ensemble: ``task_themes 32×16``,
``task_themes ×3``."""
_COMPARED = tuple(f"{TASK_THEMES} {size}" for size in ("8×4", "32×16", "×3"))


@dataclass(frozen=True)
class TargetsSettings:
    """What to study, and how."""

    pool: str = option("a known data set or a path, with groups")
    learners: tuple[str, ...] = option("", ("protonet", "maml"), commas=True)
    budgets: tuple[int, ...] = option("how many training tasks to choose", (100, 400))
    folds: int = 7
    only_folds: tuple[int, ...] = option("not all of them: several machines can share", ())
    networks: tuple[str, ...] = option(
        "mlp on principal components, conv4 on images", ("mlp",), choices=("mlp", "conv4")
    )
    trials: int = option("trainings of each way", 3)
    random_trials: int = option("trainings on random tasks", 6)
    ways: tuple[str, ...] = option(
        "ways to choose; 'task_themes 32×16' has so many image-themes and task-themes, "
        "'task_themes ×3' three fits",
        (TASK_THEMES, *_COMPARED, PROTOTYPES, "task2vec", RANKS, HALF),
        commas=True,
    )
    with_sources: bool = option("also train on every single source", False)
    without_namesakes: bool = option(
        "only targets of which another source has one by the same name, and without that", False
    )
    settings: AdvisorSettings = field(default_factory=AdvisorSettings)


def dealt_groups(
    pool: ClassPool, folds: int, n_way: int, without_namesakes: bool = False
) -> list[list[str]]:
    """The groups that a task can be drawn from, in folds; the pool's kinds of groups are spread.

    Groups of one name, such as the Greek of two sources, go into different folds, so that a target
    has the other one among its sources; or those alone are dealt, and go into the same fold.
    """
    groups = list(dict.fromkeys(pool.groups or ()))
    sizes = {g: (pool.groups or ()).count(g) for g in groups}
    by_name: list[list[str]] = []
    for group in (g for g in groups if sizes[g] >= n_way):
        known = next((some for some in by_name if same_name(some[0], group)), None)
        if known is None:
            by_name.append([group])
        else:
            known.append(group)
    if without_namesakes:
        shared = [some for some in by_name if len(some) > 1]
        return [[g for some in shared[i::folds] for g in some] for i in range(folds)]
    in_order = [g for some in by_name for g in some]
    return [in_order[i::folds] for i in range(folds)]


def notions(ways: tuple[str, ...], settings: AdvisorSettings) -> dict[str, Similarity]:
    """The notions of similarity that some ways need."""
    needed: dict[str, Similarity] = {}
    ranked = (TASK_THEMES, PROTOTYPES) if {RANKS, HALF} & set(ways) else ()
    for name in dict.fromkeys((TASK_THEMES, *ranked, *ways)):
        if name == TASK_THEMES or _SIZED.fullmatch(name):
            needed[name] = ThemeSimilarity(_themes_of(name, settings))
        elif name not in (RANKS, HALF, RANDOM, ALL):
            needed[name] = make_similarity(name, seed=settings.seed)
    return needed


def _themes_of(way: str, settings: AdvisorSettings) -> TaskThemes:
    """The model that a way goes by."""
    size = _SIZED.fullmatch(way)
    K, L, fits = (None, None, None) if size is None else size.groups()
    return TaskThemes(
        image_themes=int(K or settings.image_themes),
        task_themes=int(L or settings.task_themes),
        n_restarts=int(fits or 1),
        ensemble=int(fits or 1),
        random_state=settings.seed,
    )


def run(settings: TargetsSettings, lab: Lab, pool: ClassPool | None = None) -> None:
    """Study what the settings ask for; a fold is fitted when its first cell is missing.

    With ``pool``, which is open already, in the place of the one that they name.
    """
    pool = load_pool(settings.pool) if pool is None else pool
    given = settings.settings
    taken_by = {
        network: given if network == "mlp" else replace(given, components=0)
        for network in settings.networks
    }
    store = Store(lab, pool.fingerprint, given.seed)
    folds = _folds(pool, settings)
    for number, fold in enumerate(folds):
        if settings.only_folds and number not in settings.only_folds:
            continue
        by_network: dict[str, Sources] = {}
        for name in fold:
            outlook: Outlook | None = None
            for network, learner in product(settings.networks, settings.learners):
                cell = {
                    "what": "target", "pool": pool.name, "target": name, "learner": learner,
                    "fold": number, "folds": settings.folds, "network": network,
                    "budgets": list(settings.budgets), "ways": list(settings.ways),
                    "trials": [settings.trials, settings.random_trials],
                    "with_sources": settings.with_sources, **asdict(taken_by[network]),
                }  # fmt: skip
                if settings.without_namesakes:
                    cell["without_namesakes"] = True
                if store.finished(cell):
                    continue
                store.check_time()
                if not by_network:
                    fitted = _sources_without(fold, pool, settings)
                    by_network = {n: replace(fitted, settings=taken_by[n]) for n in taken_by}
                outlook = outlook or by_network[network].look_at(_target(name, pool, given))
                asked = replace(outlook, sources=by_network[network])
                _one_target(settings, store, cell, asked)


def _folds(pool: ClassPool, settings: TargetsSettings) -> list[list[str]]:
    """The targets of every fold; an error where some cannot be studied, or there are none."""
    given, n_folds = settings.settings, check_whole(settings.folds, "folds", 2)
    for number in settings.only_folds:
        check_whole(number, "only_folds", 0, n_folds - 1)
    folds = dealt_groups(pool, n_folds, given.n_way, settings.without_namesakes)
    targets = [name for fold in folds for name in fold]
    if not targets:
        namesake = " and another group of its name" if settings.without_namesakes else ""
        raise DataError(
            f"no group of {pool!r} can be a target: that takes the {given.n_way} classes of a "
            f"task{namesake}. Give a pool with groups, or lower n_way."
        )
    check_whole(given.n_query, "n_query", LEAST_QUERIES)
    pool.require(
        given.n_shot + LEAST_QUERIES, f"n_shot={given.n_shot} and {LEAST_QUERIES} queries",
        np.flatnonzero(np.isin(pool.groups or (), targets)).tolist(),
    )  # fmt: skip
    return folds


def _sources_without(fold: list[str], pool: ClassPool, settings: TargetsSettings) -> Sources:
    began = time.perf_counter()
    outside = np.flatnonzero(~np.isin(pool.groups or (), fold))
    rest = replace(pool.subset(outside.tolist()), splits=None)
    sources = Sources.of(rest, settings.settings, notions(settings.ways, settings.settings))
    print(f"without {', '.join(fold)}: {time.perf_counter() - began:.1f} s", flush=True)
    return sources


def _target(name: str, pool: ClassPool, settings: AdvisorSettings) -> Target:
    classes = np.flatnonzero(np.asarray(pool.groups) == name)
    return target_of_classes(pool, classes, name, **settings.target_sizes())


def gains_seen(entries: Iterable[Mapping[str, Any]]) -> list[GainSeen]:
    """What a ledger of this study tells :func:`taskscape.advise` of other targets."""
    return [
        GainSeen(
            entry["cell"]["target"], entry["cell"]["learner"], seen["way"], seen["budget"],
            seen["gain"], seen["cues"]["evidence"],
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
    settings = settings or AdvisorSettings()
    pool = _to_learn_from(pool)
    targets = {g for fold in dealt_groups(pool, 1, settings.n_way) for g in fold}
    if len(targets - {but}) < LEAST_TARGETS:
        raise DataError(
            f"{pool!r} has {len(targets - {but})} groups of {settings.n_way} or more training "
            f"classes besides the target; at least {LEAST_TARGETS} are needed to see what choosing "
            "gains on it. Leave experience out, to go by gains on the embedded data."
        )
    ways = tuple(way for way in WAYS if way != RANDOM)
    cells = _rotated(pool, learner, n, ways, settings, "experience")
    return [seen for seen in gains_seen(cells) if seen.target != but]


def _to_learn_from(pool: ClassPool) -> ClassPool:
    """The training classes of a pool, or all of them where it has no splits."""
    return pool if pool.splits is None else pool.split("train")


def _rotated(
    pool: ClassPool, learner: str, n: int, ways: tuple[str, ...], settings: AdvisorSettings,
    kept_in: str,
) -> list[dict[str, Any]]:  # fmt: skip
    """Every group of a pool as the target once; what was seen is kept in the cache folder."""
    lab = Lab(cache_dir() / kept_in / f"{pool.fingerprint}.jsonl")
    run(TargetsSettings(pool.name, (learner,), (n,), ways=ways, settings=settings), lab, pool)
    wanted = {"learner": learner, "budgets": [n], "ways": list(ways), **asdict(settings)}
    return [e for e in lab.cells.values() if wanted.items() <= e["cell"].items()]


@dataclass(frozen=True)
class SizeGain:
    """What choosing tasks by task-themes of one size gains over random choice."""

    image_themes: int
    task_themes: int
    gain: Interval
    """The mean over targets, with its 95 % interval over them."""
    worst: float
    """On the target that gained least."""
    n_targets: int


def check_own_targets(pool: ClassPool) -> None:
    """Raise an error, before anything takes long, if a pool's own groups cannot be targets."""
    _folds(_to_learn_from(pool), TargetsSettings(pool.name))


def gains_by_size(
    pool: ClassPool,
    sizes: Sequence[tuple[int, int]],
    learner: str = "protonet",
    n: int = 100,
    settings: AdvisorSettings | None = None,
) -> list[SizeGain]:
    """What choosing by task-themes of several sizes (K, L) gains on a pool's own groups.

    Each group of training classes is the target once, and the sizes are fitted to the others. What
    was seen is kept in the cache folder.
    """
    ways = tuple(f"{TASK_THEMES} {K}×{L}" for K, L in sizes)
    cells = _rotated(_to_learn_from(pool), learner, n, ways, settings or AdvisorSettings(), "sizes")
    gains = {
        way: np.array([tried["gain"] for e in cells for tried in e["ways"] if tried["way"] == way])
        for way in ways
    }
    return [
        SizeGain(K, L, mean_interval(gains[way]), float(gains[way].min()), len(gains[way]))
        for (K, L), way in zip(sizes, ways, strict=True)
    ]


def size_gains_table(gains: Sequence[SizeGain]) -> str:
    """Gains by size as text, the best first."""
    lines = ["image-themes  task-themes  points over random choice  worst target"]
    for g in sorted(gains, key=lambda g: -g.gain.value):
        lines.append(
            f"{g.image_themes:12d}  {g.task_themes:11d}  {g.gain.in_points():>25}  "
            f"{100 * g.worst:+12.1f}"
        )
    return "\n".join([*lines, f"tasks chosen for each of {gains[0].n_targets} groups."])


def _one_target(
    settings: TargetsSettings, store: Store, cell: dict[str, Any], outlook: Outlook
) -> None:
    began, learner = time.perf_counter(), cell["learner"]
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
        f"{i:03d} {t.way} {t.budget}": np.round(t.accuracy * _queries(target)).astype(np.uint16)
        for i, t in enumerate(tried)
        if t.accuracy is not None
    }
    plain = re.sub(r"[ /]", "-", target.name)
    apart = "-without-namesakes" if settings.without_namesakes else ""
    name = f"{cell['network']}-{learner}-{plain}{apart}"
    store.keep(name, classes=target.queries.classes, **arrays)
    store.add(cell, results)
    first = settings.budgets[0]
    gains = {w["way"]: f"{100 * w['gain']:+.1f}" for w in summaries if w["budget"] == first}
    print(cell["network"], learner, target.name, gains, flush=True)


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
