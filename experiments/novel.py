"""Do the bound and distances tell tasks of unknown sources from tasks of known ones?

    python -m experiments novel --pool omniglot --out found.jsonl

In each split half of the groups are known. Measures are fitted to tasks of half of their classes;
then come tasks of these classes with other samples, of the other classes of known groups, of
unknown groups, and gratings, which are like nothing in the pool. A cell is a split: the AUROC of
each score, and in how many groups ``OutlierTasksWarning`` fires on a group's tasks.
"""

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.metrics import roc_auc_score

from experiments.bad_tasks import gratings
from experiments.lab import Lab, option
from taskscape.pools import ClassPool, load_pool
from taskscape.similarity import make_similarity
from taskscape.similarity.known import POSITION, PROTOTYPES, TASK_MEANS, THEMES
from taskscape.similarity.registry import ModelSimilarity
from taskscape.tasks import TaskSet, make_tasks, sample_tasks
from taskscape.themes import OutlierTasksWarning, TaskModel
from taskscape.themes.task_model import without_advice

__all__ = ["KNOWN", "NovelSettings", "deal", "run"]

SEEN, NEW, UNKNOWN, FAR = "seen classes", "new classes", "unknown groups", "gratings"
KNOWN = (SEEN, NEW)
_FIT_TASKS = 2000
_MEASURES = (THEMES, POSITION, TASK_MEANS, PROTOTYPES)
_GRATINGS = (8, 10, 20)


@dataclass(frozen=True)
class NovelSettings:
    """What to try."""

    pool: str = option("a known data set or a path, with groups")
    seeds: tuple[int, ...] = option("of the splits", (0, 1, 2, 3, 4))
    n_way: int = 5
    n_shot: int = 5
    n_tasks: int = option("of each group", 20)


def run(settings: NovelSettings, lab: Lab) -> None:
    """Try what the settings ask for and the ledger does not hold."""
    pool = load_pool(settings.pool)
    sizes = {k: v for k, v in asdict(settings).items() if k.startswith("n_")}
    cells = [
        {"what": "novel", "pool": pool.name, "data": pool.fingerprint, "seed": seed, **sizes}
        for seed in settings.seeds
    ]
    for cell in lab.missing(cells):
        began = time.perf_counter()
        results = _one_split(pool, settings, cell["seed"])
        lab.add(cell, {**results, "seconds": round(time.perf_counter() - began, 2)})
        print(cell["pool"], cell["seed"], results["auroc"], results["fires"], flush=True)


def deal(pool: ClassPool, n_way: int, seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Classes by kind and group: half of the groups are known, and half of their classes seen.

    Known groups need twice the classes of a task, unknown ones as many as it has.
    """
    rng, groups = np.random.default_rng(seed), np.asarray(pool.groups)
    classes = {g: np.flatnonzero(groups == g) for g in np.unique(groups)}
    large = rng.permutation([g for g, own in classes.items() if len(own) >= 2 * n_way])
    known = set(large[: len(large) // 2].tolist())
    dealt: dict[str, dict[str, np.ndarray]] = {SEEN: {}, NEW: {}, UNKNOWN: {}}
    for group, own in classes.items():
        if group in known:
            dealt[SEEN][group], dealt[NEW][group] = np.array_split(rng.permutation(own), 2)
        elif len(own) >= n_way:
            dealt[UNKNOWN][group] = own
    return dealt


def _one_split(pool: ClassPool, settings: NovelSettings, seed: int) -> dict[str, Any]:
    n_way, n_shot = settings.n_way, settings.n_shot
    dealt = deal(pool, n_way, seed)
    seen = np.concatenate(list(dealt[SEEN].values()))
    train = sample_tasks(
        pool.subset(seen.tolist()), _FIT_TASKS, n_way=n_way, n_shot=n_shot, within_group=True,
        seed=seed,
    )  # fmt: skip
    asked = {
        kind: _tasks(pool, by_group.values(), settings, seed) for kind, by_group in dealt.items()
    }
    if pool.is_images and pool.samples.ndim == 3:
        far = _gratings(pool, seed)
        by_width = np.arange(len(far)).reshape(_GRATINGS[0], -1)
        asked[FAR] = _tasks(far, by_width, settings, seed)
    scores: dict[str, dict[str, Float[np.ndarray, "_"]]] = {}
    fires: dict[str, float] = {}
    for name in _MEASURES:
        measure = make_similarity(name, seed=seed)
        with without_advice():
            measure.fit(train)
            reference = measure.embed(train)
            embedded = {kind: measure.embed(tasks) for kind, tasks in asked.items()}
            for kind, own in embedded.items():
                matrix = measure.distances(own, reference).matrix()
                scores.setdefault(f"{name}, nearest", {})[kind] = matrix.min(axis=1)
                scores.setdefault(f"{name}, mean", {})[kind] = matrix.mean(axis=1)
        if name == THEMES:
            assert isinstance(measure, ModelSimilarity)
            scores["bound"] = {kind: -own.elbo for kind, own in embedded.items()}
            fires = {
                kind: _share_that_fires(measure.model, own, settings.n_tasks)
                for kind, own in embedded.items()
            }
    sizes = {kind: len(by_group) for kind, by_group in dealt.items()}
    return {"auroc": _aurocs(scores), "fires": fires, "groups": sizes}


def _tasks(pool: ClassPool, of: Any, settings: NovelSettings, seed: int) -> TaskSet:
    """As many tasks of each group, one group after another."""
    rng = np.random.default_rng([seed, 13])
    drawn = [
        rng.choice(own, settings.n_way, replace=False).tolist()
        for own in of
        for _ in range(settings.n_tasks)
    ]
    return make_tasks(pool, drawn, n_shot=settings.n_shot, seed=1000 + seed)


def _gratings(pool: ClassPool, seed: int) -> ClassPool:
    groups, classes, samples = _GRATINGS
    images = gratings((*_GRATINGS, *pool.sample_shape), seed)
    return ClassPool.from_arrays(
        images.reshape(-1, *pool.sample_shape), np.repeat(np.arange(groups * classes), samples)
    )


def _share_that_fires(model: TaskModel, embedded: Any, n_tasks: int) -> float:
    """In how many groups the model warns, asked about the tasks of one group at a time."""
    fired = []
    for start in range(0, len(embedded), n_tasks):
        with warnings.catch_warnings(record=True) as output:
            warnings.simplefilter("always", OutlierTasksWarning)
            model.warn_of_outliers(embedded[start : start + n_tasks])
        fired.append(bool(output))
    return float(np.mean(fired))


def _aurocs(scores: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, dict[str, float]]:
    """By score, how often a task of a kind scores above one of known sources."""

    def auroc(by: Mapping[str, np.ndarray], kind: str, known: Sequence[str]) -> float:
        low = np.concatenate([by[k] for k in known])
        y = np.repeat([0, 1], [len(low), len(by[kind])])
        return round(float(roc_auc_score(y, np.concatenate([low, by[kind]]))), 4)

    return {
        name: {
            f"{kind} against {known}": auroc(by, kind, [known])
            for kind in (UNKNOWN, FAR)
            if kind in by
            for known in KNOWN
        }
        for name, by in scores.items()
    }
