"""Is the representation sound at any size, and do fits confirm each other? A line for each fit.

    python -m taskscape.studies.representation --pools glyphs omniglot mini_imagenet \
        --image-themes 8 16 32 --task-themes 4 8 16 --out docs/results/representation.jsonl

A cell is a pool, a size and a seed, which decides what tasks are learned from. ``--class-share
0.8`` gives each fit another four fifths of the training classes. Judged on validation classes; in a
pool without any, five groups of the training classes are held out for it.
"""

import argparse
import itertools
import shlex
import sys
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from taskscape.compare import mean_kl
from taskscape.meta import ProtoNet, evaluate, mlp
from taskscape.pools import ClassPool, load_pool
from taskscape.statistics import spearman
from taskscape.studies.learning import hold_out, unit_length
from taskscape.studies.ledger import Ledger, surroundings
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.themes.estimator import HealthWarning, OutlierTasksWarning, TaskThemes

__all__ = ["Size", "agreement", "main", "represent"]

_GROUPS_HELD_OUT = 5
_QUERIES, _EPISODES = 4, 20


@dataclass(frozen=True)
class Size:
    """What a cell is fitted with."""

    image_themes: int = 8
    task_themes: int = 4
    ensemble: int = 1
    n_train: int = 4000
    n_judged: int = 1000
    n_reference: int = 2000
    class_share: float = 1.0


def represent(pool: ClassPool, size: Size, seed: int) -> dict[str, Any]:
    """Fit once; look at the fit, and at what it says of validation tasks."""
    judged = sample_tasks(pool, size.n_judged, split="val", n_way=5, n_shot=16, seed=991)
    reference = sample_tasks(pool, size.n_reference, split="train", n_way=5, n_shot=16, seed=992)
    row, distance = _fit(_part(pool, size.class_share, seed), size, seed, judged, reference)
    explained = {}
    if size.class_share >= 1:
        explained["correlation_with_accuracy"] = round(
            spearman(distance, centroid_accuracy(pool, judged)), 4
        )
    return {**row, **explained, "distances": [float(f"{d:.4g}") for d in distance]}


def agreement(fits: list[dict[str, Any]]) -> list[float]:
    """Rank correlations between all pairs of fits of the validation tasks' distances."""
    distances = [np.array(fit["distances"]) for fit in fits]
    return [round(spearman(a, b), 4) for i, a in enumerate(distances) for b in distances[:i]]


def centroid_accuracy(pool: ClassPool, tasks: TaskSet) -> Float[np.ndarray, "tasks"]:
    """Accuracy of the nearest class mean from one sample per class, over several draws."""
    seen = pool if pool.is_images else unit_length(pool)
    flat = mlp(int(np.prod(seen.sample_shape)), ())
    state = ProtoNet().init(jax.random.key(0), flat, 5)
    asked = replace(tasks, pool=seen).with_samples(1, _QUERIES)
    return np.asarray(evaluate(ProtoNet(), state, asked, episodes=_EPISODES).accuracy)


def _fit(
    pool: ClassPool, size: Size, seed: int, judged: TaskSet, reference: TaskSet
) -> tuple[dict[str, Any], Float[np.ndarray, "tasks"]]:
    train = sample_tasks(pool, size.n_train, split="train", n_way=(5, 10), n_shot=16, seed=seed)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HealthWarning)  # kept in the result instead
        warnings.simplefilter("ignore", OutlierTasksWarning)
        model = TaskThemes(
            image_themes=size.image_themes, task_themes=size.task_themes, random_state=seed,
            n_restarts=size.ensemble, ensemble=size.ensemble,
        ).fit(train)  # fmt: skip
        fitted = time.perf_counter()
        seen, known = model.embed(judged), model.embed(reference)
    lam, of_training = seen.lam, known.lam
    shares = (lam[0] - model.delta).sum(axis=0) / (lam[0] - model.delta).sum()
    health = model.health_
    row = {
        "seed": seed,
        "dead_or_duplicate_themes": [int(state.best_flaws) for state in model.states_],
        "least_used_image_theme": float(model.theme_usage_.min()),
        "least_used_task_theme": min(health.task_theme_usage),
        "alpha_totals": [round(float(a), 3) for a in model.alpha_.sum(axis=1)],
        "validation_bound": float(seen.elbo[0].mean()),
        "training_bound": float(known.elbo[0].mean()),
        "distinct": len(np.unique(lam[0].round(1), axis=0)),
        "largest_share": round(float(shares.max()), 4),
        "agreement_within_ensemble": health.agreement,
        "tasks_learned_from": model.fit_info_[-1].tasks,
        "mean_sweeps": float(seen.sweeps[0].mean()),
        "advice": list(health.advice),
        "fit_seconds": round(fitted - began, 1),
        "embed_seconds": round(time.perf_counter() - fitted, 1),
    }
    return row, mean_kl(lam, of_training)


def _part(pool: ClassPool, share: float, seed: int) -> ClassPool:
    """The pool with some of its training classes left out of every split."""
    if share >= 1:
        return pool
    train = pool.classes_in("train")
    out = np.random.default_rng([seed, 7]).permutation(train)[int(share * len(train)) :]
    assert pool.splits is not None
    splits = ["test" if c in set(out.tolist()) else s for c, s in enumerate(pool.splits)]
    return replace(pool, splits=tuple(splits))


def load(name: str) -> ClassPool:
    """A pool with validation classes."""
    pool = load_pool(name)
    return pool if "val" in (pool.splits or ()) else hold_out(pool, _GROUPS_HELD_OUT)


def main() -> None:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pools", nargs="+", default=["glyphs"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--image-themes", nargs="+", type=int, default=[8])
    parser.add_argument("--task-themes", nargs="+", type=int, default=[4])
    parser.add_argument("--ensemble", type=int, default=1)
    parser.add_argument("--n-train", type=int, default=4000)
    parser.add_argument("--class-share", type=float, default=1.0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    command = "python -m taskscape.studies.representation " + shlex.join(sys.argv[1:])
    ledger = Ledger(options.out, {"command": command, **surroundings()})
    for name in options.pools:
        for K, L in itertools.product(options.image_themes, options.task_themes):
            size = Size(K, L, options.ensemble, options.n_train, class_share=options.class_share)
            about = {"what": "representation", "pool": name, **vars(size)}
            fits = []
            for seed in options.seeds:
                cell = {**about, "seed": seed}
                if ledger.get(cell) is None:
                    ledger.add(cell, represent(load(name), size, seed))
                fits.append(ledger.get(cell) or {})
            print(name, K, L, "agreement", agreement(fits), flush=True)


if __name__ == "__main__":
    main()
