"""Do fits to other classes agree on distances, and do distances explain accuracy?

    python -m experiments agreement --pool omniglot --out agreement.jsonl

A cell is a fit of the default model to another four fifths of the training classes, with the mean
distance of every test task to the training tasks, by all factors and by each. A task has all
samples of its classes. For features, accuracy is that of the nearest class mean from one sample a
class, averaged over episodes, and difficulty how far apart a task's class means are.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from experiments.lab import Lab, option
from experiments.recipes import nearest_centroid
from taskscape.compare import mean_distance
from taskscape.diagram import correlation_diagram
from taskscape.pools import ClassPool, load_pool
from taskscape.statistics import pairwise_spearman
from taskscape.study.represent import difficulty
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.themes import TaskThemes
from taskscape.themes.prepare import unit_length
from taskscape.themes.task_model import without_advice

__all__ = ["AgreementSettings", "agreement", "run"]

_SHARE = 0.8
_EPISODES, _QUERIES = 20, 5


@dataclass(frozen=True)
class AgreementSettings:
    """What to fit, and how often."""

    pool: str = option("a known data set or a path")
    seeds: tuple[int, ...] = option("each leaves out another fifth of the classes", (0, 1, 2, 3))
    n_test: int = 1000
    n_train: int = 2000


def run(settings: AgreementSettings, lab: Lab) -> None:
    """Fit what the settings ask for and the ledger does not hold."""
    pool = load_pool(settings.pool)
    sizes = {"n_test": settings.n_test, "n_train": settings.n_train}
    cells = [
        {"what": "agreement", "pool": pool.name, "data": pool.fingerprint, "seed": seed, **sizes}
        for seed in settings.seeds
    ]
    drawn: dict[str, Any] = {"n_way": 5, "n_shot": "all"}
    test = sample_tasks(pool, settings.n_test, split="test", seed=11, **drawn)
    train = sample_tasks(pool, settings.n_train, split="train", seed=12, **drawn)
    for cell in lab.missing(cells):
        seed = cell["seed"]
        known = pool.subset(_some_classes(pool, seed).tolist())
        model = TaskThemes(random_state=seed).fit(
            sample_tasks(known, settings.n_train, seed=seed, **drawn)
        )
        with without_advice():  # features of the training classes' network explain those best
            a, b = model.embed(test), model.embed(train)
        distances = {"themes": mean_distance(a, b)}
        for name in (f.name for f in model.factors_):
            distances[name] = mean_distance(a.factor(name), b.factor(name))
        explained = {} if pool.is_images else _explained(distances, test)
        kept = {k: [float(f"{x:.4g}") for x in d] for k, d in distances.items()}
        lab.add(cell, {"distances": kept, **explained})
        print(cell["pool"], seed, explained, flush=True)


def agreement(fits: list[dict[str, Any]], measure: str) -> list[float]:
    """Rank correlations between all pairs of fits of the test tasks' distances."""
    return pairwise_spearman([np.array(fit["distances"][measure]) for fit in fits])


def _some_classes(pool: ClassPool, seed: int) -> np.ndarray:
    train = np.random.default_rng(seed).permutation(pool.classes_in("train"))
    return train[: round(_SHARE * len(train))]


def _explained(
    distances: dict[str, Float[np.ndarray, "tasks"]], test: TaskSet
) -> dict[str, dict[str, Any]]:
    """Rank correlations with accuracy, plain and given difficulty, with intervals over classes."""
    features = unit_length(test.pool)
    episodes = replace(test, pool=features).with_samples(1, _QUERIES)
    accuracy = nearest_centroid(episodes, _EPISODES).accuracy
    hard = difficulty(features, test)[:, 0]
    correlations: dict[str, dict[str, Any]] = {"correlation": {}, "given_difficulty": {}}
    for name, distance in distances.items():
        drawn = correlation_diagram(distance, accuracy, classes=test, difficulty=hard)
        curve = drawn.curves[0]
        assert curve.partial is not None
        correlations["correlation"][name] = vars(curve.spearman)
        correlations["given_difficulty"][name] = vars(curve.partial)
    return correlations
