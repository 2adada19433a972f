"""What does choosing for a target gain where a share of the candidate tasks is bad?

    python -m experiments bad_tasks --pool glyphs --out found.jsonl

Bad are tasks whose labels are permuted (samples of a group, dealt to its classes by chance), or
tasks of an unrelated source (gratings). A cell is a kind, a share and a target. Measures are fitted
to all candidates, good or bad: nobody says which are which. ``--separable`` leaves out candidates
whose own labelled samples are classified no better than by chance.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Shaped, UInt8

from experiments.lab import Lab, option
from taskscape.pools import ClassPool, load_pool
from taskscape.similarity import TaskHardness, make_similarity
from taskscape.similarity.known import PROTOTYPES, THEMES
from taskscape.targets.advisor import Outlook, Sources
from taskscape.targets.known import RANKS, AdvisorSettings
from taskscape.targets.rotation import Rotation, summaries, try_target
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.themes.task_model import without_advice

__all__ = ["KINDS", "BadTasksSettings", "gratings", "run", "separable", "with_bad_classes"]

WAYS = (THEMES, PROTOTYPES, RANKS)
KINDS = ("permuted labels", "unrelated source")
_GROUPS, _CLASSES, _SAMPLES = 8, 10, 30


@dataclass(frozen=True)
class BadTasksSettings:
    """What to try."""

    pool: str = option("a known data set or a path, with groups")
    kinds: tuple[str, ...] = option("of bad tasks", KINDS, choices=KINDS)
    shares: tuple[float, ...] = option("of the candidates that are bad", (0.0, 0.2, 0.4, 0.6))
    learner: str = "protonet"
    budget: int = 100
    trials: int = option("trainings of each way; twice as many at random", 2)
    separable: bool = option("only candidates that are easier than chance", False)
    folds: int = 7
    only_folds: tuple[int, ...] = option("not all of them", ())
    settings: AdvisorSettings = field(default_factory=AdvisorSettings)


def run(settings: BadTasksSettings, lab: Lab) -> None:
    """Try what the settings ask for and the ledger does not hold."""
    pool = load_pool(settings.pool)
    given = settings.settings
    rotation = Rotation(pool, WAYS, settings.folds, settings=given)
    conditions = list(
        dict.fromkeys((k if share else "none", share) for share in settings.shares
                      for k in settings.kinds)
    )  # fmt: skip
    for number, fold in enumerate(rotation.dealt):
        if settings.only_folds and number not in settings.only_folds:
            continue
        for kind, share in conditions:
            cells = [
                {"what": "bad tasks", "kind": kind, "share": share, "pool": pool.name,
                 "data": pool.fingerprint, "target": name, "fold": number, "folds": settings.folds,
                 "learner": settings.learner, "budget": settings.budget,
                 "trials": settings.trials, **asdict(given),
                 **({"separable": True} if settings.separable else {})}
                for name in fold
            ]  # fmt: skip
            sources: Sources | None = None
            for cell in lab.missing(cells):
                lab.check_time()
                if sources is None:
                    outside = np.flatnonzero(~np.isin(pool.groups or (), fold))
                    clean = replace(pool.subset(outside.tolist()), splits=None)
                    sources = _sources(clean, kind, share, given)
                    sources = separable(sources) if settings.separable else sources
                _one_target(cell, sources.look_at(rotation.target(cell["target"])), lab)


def _one_target(cell: Mapping[str, Any], outlook: Outlook, lab: Lab) -> None:
    began, budget, trials = time.perf_counter(), cell["budget"], cell["trials"]
    found = try_target(
        outlook, cell["learner"], WAYS, [budget], trials=trials, random_trials=2 * trials
    )
    is_bad = np.array(outlook.sources.pool.splits)[outlook.sources.tasks.classes[:, 0]] == "val"
    ways = [
        {**summary, "bad": float(np.mean([is_bad[rows].mean() for rows in tried.chosen]))}
        for summary, tried in zip(summaries(outlook.target, found), found, strict=True)
    ]
    counts = {"candidates": len(is_bad), "bad": int(is_bad.sum())}
    seconds = time.perf_counter() - began
    lab.add(cell, {"ways": ways, "gap": outlook.gap, **counts, "seconds": seconds})
    gains = {w["way"]: f"{100 * w['gain']:+.1f} ({w['bad']:.0%} bad)" for w in ways}
    print(cell["kind"], cell["share"], cell["target"], gains, flush=True)


def _sources(clean: ClassPool, kind: str, share: float, settings: AdvisorSettings) -> Sources:
    """Candidates, a share of them bad, and measures fitted to all of them."""
    pool = with_bad_classes(clean, kind, settings.seed)
    n_bad = round(share * settings.candidates)
    n_query = max(1, min(settings.n_query, int(pool.counts.min()) - settings.n_shot))

    def drawn(split: str, n: int) -> TaskSet:
        return sample_tasks(
            pool, n, split=split, n_way=settings.n_way, n_shot=settings.n_shot, n_query=n_query,
            within_group=True, seed=settings.seed,
        )  # fmt: skip

    sets = [drawn("train", settings.candidates - n_bad)]
    tasks = TaskSet.concatenate([*sets, drawn("val", n_bad)] if n_bad else sets)
    measures = {name: make_similarity(name, seed=settings.seed) for name in (THEMES, PROTOTYPES)}
    with without_advice():
        fitted = {name: measure.fit(tasks) for name, measure in measures.items()}
        embedded = {name: measure.embed(tasks) for name, measure in fitted.items()}
    return Sources(settings, tasks, fitted, embedded)


def separable(sources: Sources) -> Sources:
    r"""The candidates whose samples, each left out of its class's mean, tell their class.

    Better than by chance: mean log-odds of an error below those of guessing, :math:`\ln(C - 1)`.
    """
    tasks = sources.tasks
    hardness = TaskHardness().fit(tasks).embed(tasks)[:, 0]
    kept = np.flatnonzero(hardness < np.log(tasks.n_way - 1))
    embedded = {name: own[kept] for name, own in sources.embedded.items()}
    return replace(sources, tasks=tasks[kept], embedded=embedded)


def with_bad_classes(clean: ClassPool, kind: str, seed: int) -> ClassPool:
    """The pool as training classes, and bad ones as validation classes, in groups of their own."""
    if kind == "none":
        return replace(clean, splits=("train",) * len(clean))
    samples = clean.samples[clean.rows]
    of = np.repeat(np.arange(len(clean)), clean.counts)
    groups = np.asarray(clean.groups)
    if kind == "permuted labels":
        rng = np.random.default_rng([seed, 11])
        bad, bad_of, bad_groups = samples.copy(), of, [f"bad {g}" for g in groups]
        for group in np.unique(groups):
            rows = np.flatnonzero(groups[of] == group)
            bad[rows] = samples[rng.permutation(rows)]
    else:
        shape = (_GROUPS, _CLASSES, _SAMPLES, *clean.sample_shape)
        bad = gratings(shape, seed).reshape(-1, *clean.sample_shape)
        bad_of = np.repeat(np.arange(_GROUPS * _CLASSES), _SAMPLES)
        bad_groups = [f"gratings {i // _CLASSES}" for i in range(_GROUPS * _CLASSES)]
    n, n_bad = len(clean), len(bad_groups)
    return ClassPool.from_arrays(
        np.concatenate([samples, bad]), np.concatenate([of, n + bad_of]), name=clean.name,
        groups=[*groups.tolist(), *bad_groups], splits=["train"] * n + ["val"] * n_bad,
    )  # fmt: skip


def gratings(shape: tuple[int, ...], seed: int) -> UInt8[np.ndarray, "groups classes n h w"]:
    """Images of stripes: groups have a width of stripes, classes an angle; samples a place, noise.

    Nothing in them is like writing, but their classes can be told apart.
    """
    groups, classes, samples, height, width = shape
    rng = np.random.default_rng([seed, 12])
    y, x = np.mgrid[:height, :width]
    waves = 2 + 6 * np.arange(groups) / max(groups - 1, 1)
    angles = np.pi * np.arange(classes) / classes
    along = np.cos(angles)[:, None, None] * x + np.sin(angles)[:, None, None] * y
    phase = 2 * np.pi * rng.random((groups, classes, samples, 1, 1))
    stripes: Shaped[np.ndarray, "..."] = np.sin(
        2 * np.pi * waves[:, None, None, None, None] * along[:, None] / width + phase
    )
    noisy = 127.5 * (1 + stripes) + 20 * rng.normal(size=(groups, classes, samples, height, width))
    return np.clip(noisy, 0, 255).astype(np.uint8)
