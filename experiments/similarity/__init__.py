"""Which similarity measure predicts a test task's accuracy best.

    python -m experiments similarity --pool mini_imagenet --split test \\
        --learners protonet,maml --seeds 0 1 2 --minutes 8 --out found.jsonl

What is measured, accuracies by episode and difficulty, is kept in ``arrays`` beside the ledger.
"""

import sys
from dataclasses import dataclass, replace
from functools import partial

from experiments.lab import Lab, Store, option
from experiments.recipes import with_validation
from experiments.similarity.measures import FAMILIES, run_measures
from experiments.similarity.study import (
    Measured,
    SimilarityStudy,
    Sizes,
    measured_accuracies,
    measured_difficulty,
)
from taskscape.pools import load_pool

__all__ = [
    "FAMILIES",
    "Measured",
    "SimilaritySettings",
    "SimilarityStudy",
    "Sizes",
    "measured_accuracies",
    "run",
    "run_measures",
]


@dataclass(frozen=True)
class _ChangedSizes:
    """Fields of :class:`Sizes`; None: as ``--scale`` says."""

    tasks: int | None = option("of the split; by default all combinations, or 5,000", None)
    fit_tasks: int | None = None
    reference: int | None = option("training tasks that distances are measured to", None)
    few_tasks: int | None = None
    few_reference: int | None = None
    learner_tasks: int | None = None
    episodes: int | None = None
    probe_updates: int | None = None


@dataclass(frozen=True)
class SimilaritySettings:
    """What to study, and how."""

    pool: str = option("a known data set or a path")
    split: str = option("whose tasks", "val", choices=("val", "test"))
    learners: tuple[str, ...] = option("", ("protonet", "maml"), commas=True)
    network: str = option("what learns", "mlp", choices=("mlp", "conv4"))
    seeds: tuple[int, ...] = option("of the fits and of the learners", (0, 1, 2))
    families: tuple[str, ...] = option("of measures", tuple(FAMILIES), choices=tuple(FAMILIES))
    scale: float = option("below 1: fewer tasks of every kind", 1.0)
    sizes: _ChangedSizes = _ChangedSizes()


def run(settings: SimilaritySettings, lab: Lab) -> None:
    """Study what the settings ask for."""
    changed = {k: v for k, v in vars(settings.sizes).items() if v is not None}
    study = SimilarityStudy(
        with_validation(load_pool(settings.pool)),
        settings.split,
        replace(Sizes.scaled(settings.scale), **changed),
        network=settings.network,
    )
    measure = partial(_measure, Store(lab, study.pool.fingerprint), study, settings)
    run_measures(
        study, lab, measure,
        learners=settings.learners, seeds=settings.seeds, families=settings.families,
    )  # fmt: skip


def _measure(store: Store, study: SimilarityStudy, settings: SimilaritySettings) -> Measured:
    print(f"{study.pool!r}; {study.tasks!r} of split {study.split!r}", file=sys.stderr, flush=True)
    accuracies = {
        n: measured_accuracies(store, study, n, settings.seeds) for n in settings.learners
    }
    for name, by_seed in accuracies.items():
        means = ", ".join(f"{a.mean():.3f}" for a in by_seed.values())
        print(f"{name}: {means}", file=sys.stderr, flush=True)
    return Measured(accuracies, measured_difficulty(store, study))
