"""Is the representation sound at any size, and do fits confirm each other? A line for each fit.

    python -m experiments representation --pools letters omniglot mini_imagenet \\
        --image-themes 8 16 32 --task-themes 4 8 16 --out experiments/results/representation.jsonl

A cell is a pool, a size and a seed, which decides what tasks are learned from. ``--class-share
0.8`` gives each fit another four fifths of the training classes. Tested on validation classes; in a
pool without any, five groups of the training classes are held out for it.
"""

import itertools
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from experiments.lab import Lab, option
from experiments.recipes import nearest_centroid, with_validation
from taskscape.compare import mean_distance
from taskscape.pools import ClassPool, load_pool
from taskscape.statistics import pairwise_spearman, spearman
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.themes import TaskThemes
from taskscape.themes.health import count_points
from taskscape.themes.prepare import unit_length
from taskscape.themes.task_model import without_advice

__all__ = ["RepresentationSettings", "Size", "agreement", "represent", "run"]

_QUERIES, _EPISODES = 4, 20


@dataclass(frozen=True)
class RepresentationSettings:
    """What to study, and how."""

    pools: tuple[str, ...] = option("known data sets or paths", ("letters",))
    seeds: tuple[int, ...] = option("of the tasks that are learned from", (0, 1, 2))
    image_themes: tuple[int, ...] = option("K, one or several", (8,))
    task_themes: tuple[int, ...] = option("L, one or several", (4,))
    ensemble: int = 1
    n_train: int = 4000
    class_share: float = option("part of the training classes that a fit sees", 1.0)


@dataclass(frozen=True)
class Size:
    """What a cell is fitted with."""

    image_themes: int = 8
    task_themes: int = 4
    ensemble: int = 1
    n_train: int = 4000
    n_evaluated: int = 1000
    n_reference: int = 2000
    class_share: float = 1.0


def represent(pool: ClassPool, size: Size, seed: int) -> dict[str, Any]:
    """Fit once; look at the fit, and at what it says of validation tasks."""
    evaluated = sample_tasks(pool, size.n_evaluated, split="val", n_way=5, n_shot=16, seed=991)
    reference = sample_tasks(pool, size.n_reference, split="train", n_way=5, n_shot=16, seed=992)
    row, distance = _fit(_part(pool, size.class_share, seed), size, seed, evaluated, reference)
    explained = {}
    if size.class_share >= 1:
        explained["correlation_with_accuracy"] = round(
            spearman(distance, centroid_accuracy(pool, evaluated)), 4
        )
    return {**row, **explained, "distances": [float(f"{d:.4g}") for d in distance]}


def agreement(fits: list[dict[str, Any]]) -> list[float]:
    """Rank correlations between all pairs of fits of the validation tasks' distances."""
    pairs = pairwise_spearman([np.array(fit["distances"]) for fit in fits])
    return [round(pair, 4) for pair in pairs]


def centroid_accuracy(pool: ClassPool, tasks: TaskSet) -> Float[np.ndarray, "tasks"]:
    """Accuracy of the nearest class mean from one sample per class, over several draws."""
    seen = pool if pool.is_images else unit_length(pool)
    asked = replace(tasks, pool=seen).with_samples(1, _QUERIES)
    return np.asarray(nearest_centroid(asked, _EPISODES).accuracy)


def _fit(
    pool: ClassPool, size: Size, seed: int, evaluated: TaskSet, reference: TaskSet
) -> tuple[dict[str, Any], Float[np.ndarray, "tasks"]]:
    train = sample_tasks(pool, size.n_train, split="train", n_way=(5, 10), n_shot=16, seed=seed)
    began = time.perf_counter()
    with without_advice():  # it is kept in the result instead
        model = TaskThemes.paper(
            image_themes=size.image_themes, task_themes=size.task_themes, random_state=seed,
            n_restarts=size.ensemble, ensemble=size.ensemble,
        ).fit(train)  # fmt: skip
        fitted = time.perf_counter()
        seen, known = model.embed(evaluated), model.embed(reference)
    lam = seen.lam
    shares = (lam[0] - model.delta).sum(axis=0) / (lam[0] - model.delta).sum()
    health = model.health_
    row = {
        "seed": seed,
        "dead_or_duplicate_themes": [int(state.best_flaws) for state in model.states_],
        "least_used_image_theme": float(model.theme_usage_.min()),
        "least_used_task_theme": min(health.task_theme_usage),
        "alpha_totals": [round(float(a), 3) for a in model.alpha_.sum(axis=1)],
        "validation_bound": float(seen.elbo.mean()),
        "training_bound": float(known.elbo.mean()),
        "distinct": count_points(lam[0]),
        "largest_share": round(float(shares.max()), 4),
        "agreement_within_ensemble": health.agreement,
        "tasks_learned_from": model.fit_info_[-1].tasks,
        "advice": list(health.advice),
        "fit_seconds": round(fitted - began, 1),
        "embed_seconds": round(time.perf_counter() - fitted, 1),
    }
    return row, mean_distance(seen, known)


def _part(pool: ClassPool, share: float, seed: int) -> ClassPool:
    """The pool with some of its training classes left out of every split."""
    if share >= 1:
        return pool
    train = pool.classes_in("train")
    out = np.random.default_rng([seed, 7]).permutation(train)[int(share * len(train)) :]
    assert pool.splits is not None
    splits = ["test" if c in set(out.tolist()) else s for c, s in enumerate(pool.splits)]
    return replace(pool, splits=tuple(splits))


def run(settings: RepresentationSettings, lab: Lab) -> None:
    """Fit every pool at every size with every seed."""
    for name in settings.pools:
        for K, L in itertools.product(settings.image_themes, settings.task_themes):
            size = Size(K, L, settings.ensemble, settings.n_train, class_share=settings.class_share)
            fits = []
            for seed in settings.seeds:
                cell = {"what": "representation", "pool": name, **vars(size), "seed": seed}
                fits.append(lab.results(cell, partial(_loaded_and_fitted, name, size, seed)))
            print(name, K, L, "agreement", agreement(fits), flush=True)


def _loaded_and_fitted(name: str, size: Size, seed: int) -> dict[str, Any]:
    return represent(with_validation(load_pool(name)), size, seed)
