"""Do tasks of one source find each other, by each similarity measure? On unseen groups.

    python -m experiments retrieval --pool omniglot --out found.jsonl

A cell is a data set, a measure and a seed, which draws classes, tasks and samples. The classes of
mini-ImageNet are grouped by WordNet: canids, other animals, things. Names of places are made by
:mod:`experiments.places`.
"""

import time
from dataclasses import asdict, dataclass, replace

import numpy as np

from experiments.lab import Lab, option
from taskscape.pools import ClassPool, load_pool
from taskscape.similarity import SIMILARITIES, retrieval

__all__ = ["RetrievalSettings", "run", "with_superclasses"]

_CANIDS, _ANIMALS = (2_083_346, 2_120_505), 2_666_195
"""Ids of WordNet 3.0 that its synsets of canids lie between, and the last animal's."""


@dataclass(frozen=True)
class RetrievalSettings:
    """What to try."""

    pool: str = option("a known data set or a path")
    measures: tuple[str, ...] = option(
        "similarity measures",
        ("themes", "image_themes", "position", "task_themes", "task_means", "prototypes",
         "task2vec", "otdd"),
        choices=tuple(SIMILARITIES),
    )  # fmt: skip
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    n_way: int = 5
    n_shot: int = 5
    n_queries: int = option("tasks of each group that look for their own", 20)
    n_candidates: int = option("tasks of each group to be found", 40)


def with_superclasses(pool: ClassPool) -> ClassPool:
    """mini-ImageNet with its superclasses as groups, by the WordNet ids of its classes."""
    ids = np.array([int(name.removeprefix("n")) for name in pool.class_names])
    canid = (ids >= _CANIDS[0]) & (ids <= _CANIDS[1])
    groups = np.where(canid, "canids", np.where(ids <= _ANIMALS, "other animals", "things"))
    return replace(pool, groups=tuple(groups.tolist()), class_digests=None)


def run(settings: RetrievalSettings, lab: Lab) -> None:
    """Try what the settings ask for and the ledger does not hold."""
    pool = load_pool(settings.pool)
    if pool.name == "mini_imagenet":
        pool = with_superclasses(pool)
    sizes = {k: v for k, v in asdict(settings).items() if k.startswith("n_")}
    for seed in settings.seeds:
        cells = [
            {"what": "retrieval", "pool": pool.name, "data": pool.fingerprint, "measure": measure,
             "seed": seed, **sizes}
            for measure in settings.measures
        ]  # fmt: skip
        for cell in lab.missing(cells):
            began = time.perf_counter()
            test = retrieval(pool, cell["measure"], baselines=(), seed=seed, **sizes)
            seconds = time.perf_counter() - began
            scored = test.measure.to_dict()
            kept = {k: v for k, v in scored.items() if k not in ("candidates", "taken_for")}
            lab.add(cell, {**kept, "seconds": round(seconds, 2)})
            print(seed, test.measure.summary(), flush=True)
