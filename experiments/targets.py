"""What choosing tasks for a target is worth: every group of a pool is the target once.

    python -m experiments targets --pool glyphs --learners protonet,maml --out found.jsonl

For each target and learner: accuracy after training on what each way chooses, on candidates by
chance, on all, and on every single source. Accuracies of every task are kept beside the ledger.
"""

import re
import time
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from experiments.lab import Lab, Store, option
from taskscape.arguments import check_whole
from taskscape.pools import load_pool
from taskscape.similarity.known import PROTOTYPES, TASK_THEMES, THEMES
from taskscape.targets.advisor import Outlook, Sources
from taskscape.targets.known import HALF, RANKS, AdvisorSettings
from taskscape.targets.rotation import Rotation, summaries, try_target

__all__ = ["TargetsSettings", "run"]


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
        "ways to choose", (THEMES, TASK_THEMES, PROTOTYPES, "task2vec", RANKS, HALF), commas=True
    )
    with_sources: bool = option("also train on every single source", False)
    without_namesakes: bool = option(
        "only targets of which another source has one by the same name, and without that", False
    )
    settings: AdvisorSettings = field(default_factory=AdvisorSettings)


def run(settings: TargetsSettings, lab: Lab) -> None:
    """Study what the settings ask for; a fold is fitted when its first cell is missing."""
    pool = load_pool(settings.pool)
    given = settings.settings
    taken_by = {
        network: replace(given, network=network, components=given.components * (network == "mlp"))
        for network in settings.networks
    }
    rotation = Rotation(pool, settings.ways, settings.folds, settings.without_namesakes, given)
    store = Store(lab, pool.fingerprint, given.seed)
    for number in settings.only_folds:
        check_whole(number, "only_folds", 0, settings.folds - 1)
    for number, fold in enumerate(rotation.dealt):
        if settings.only_folds and number not in settings.only_folds:
            continue
        by_network: dict[str, Sources] = {}
        for name in fold:
            outlook: Outlook | None = None
            for network, learner in product(settings.networks, settings.learners):
                cell = {
                    "what": "target", "pool": pool.name, "target": name, "learner": learner,
                    "fold": number, "folds": settings.folds,
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
                    fitted = rotation.sources_without(fold)
                    by_network = {n: replace(fitted, settings=taken_by[n]) for n in taken_by}
                outlook = outlook or by_network[network].look_at(rotation.target(name))
                asked = replace(outlook, sources=by_network[network])
                _one_target(settings, store, cell, asked)


def _one_target(
    settings: TargetsSettings, store: Store, cell: dict[str, Any], outlook: Outlook
) -> None:
    began, target = time.perf_counter(), outlook.target
    tried = try_target(
        outlook, cell["learner"], settings.ways, settings.budgets, trials=settings.trials,
        random_trials=settings.random_trials, with_sources=settings.with_sources,
    )  # fmt: skip
    ways = summaries(target, tried)
    results = {
        "distances": {name: outlook.by_source(name) for name in outlook.distances},
        "gap": outlook.gap,
        "ways": ways,
        "seconds": time.perf_counter() - began,
    }
    assert target.queries is not None
    queries = target.queries.max_way * target.queries.n_query
    arrays = {
        f"{i:03d} {t.way} {t.budget}": np.round(t.accuracy * queries).astype(np.uint16)
        for i, t in enumerate(tried)
        if t.accuracy is not None
    }
    plain = re.sub(r"[ /]", "-", target.name)
    apart = "-without-namesakes" if settings.without_namesakes else ""
    name = f"{cell['network']}-{cell['learner']}-{plain}{apart}"
    store.keep(name, classes=target.queries.classes, **arrays)
    store.add(cell, results)
    first = settings.budgets[0]
    gains = {w["way"]: f"{100 * w['gain']:+.1f}" for w in ways if w["budget"] == first}
    print(cell["network"], cell["learner"], target.name, gains, flush=True)
