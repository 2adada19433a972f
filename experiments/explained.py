"""Figure 2 by other distances: do they explain the accuracies that were kept, given difficulty?

    python -m experiments explained --figure fig2-mini-imagenet --out found.jsonl

Accuracies of the five learners are those kept beside the ledger of the paper's figures; nothing is
trained. A cell is a figure, a measure and a seed, which decides what the measure is fitted to.
Where the test tasks are all combinations of the test classes, correlations are also given all four
measures of difficulty of the study of similarity.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.lab import Lab, Store, option
from experiments.paper.fig2 import LEARNERS, Fig2
from experiments.paper.plan import fig2_plan
from experiments.similarity import SimilarityStudy
from taskscape.diagram import CorrelationDiagram
from taskscape.pools import load_pool
from taskscape.similarity import SIMILARITIES, make_similarity
from taskscape.tasks import sample_tasks
from taskscape.themes.task_model import without_advice

__all__ = ["KEPT", "ExplainedSettings", "run"]

KEPT = Path(__file__).parent / "results" / "paper" / "results.jsonl"
"""The ledger that accuracies are kept beside."""


@dataclass(frozen=True)
class ExplainedSettings:
    """What to compare."""

    figure: str = option(
        "of the paper's", "fig2-mini-imagenet", choices=("fig2-mini-imagenet", "fig2-omniglot")
    )
    measures: tuple[str, ...] = option(
        "similarity measures", ("themes", "position", "task_means"),
        choices=tuple(SIMILARITIES),
    )  # fmt: skip
    seeds: tuple[int, ...] = option("of the training tasks", (0, 1))
    n_train: int = option("training tasks that measures are fitted to and distances go to", 2000)


def run(settings: ExplainedSettings, lab: Lab) -> None:
    """Compare what the settings ask for and the ledger does not hold."""
    plan = fig2_plan(settings.figure, 1.0)
    pool = load_pool(plan.pool)
    figure = Fig2(settings.figure, pool, plan, Store(Lab(KEPT), pool.fingerprint))
    learners = [name for name in LEARNERS if figure.has_accuracy(name)]
    test = figure.tests().with_samples("all")
    study = SimilarityStudy(pool)
    hard: np.ndarray | None = None
    for seed in settings.seeds:
        cells = [
            {"what": "explained", "figure": settings.figure, "data": pool.fingerprint,
             "measure": measure, "n_train": settings.n_train, "n_test": len(test), "seed": seed}
            for measure in settings.measures
        ]  # fmt: skip
        train = sample_tasks(
            pool, settings.n_train, split=plan.train_split, n_shot="all", seed=100 + seed
        )
        for cell in lab.missing(cells):
            lab.check_time()
            began = time.perf_counter()
            measure = make_similarity(cell["measure"], seed=seed)
            with without_advice():  # features of the training classes' network explain those best
                distance = measure.fit(train).distances(test, train).mean_distance()
            drawn = figure.diagram_of(distance, learners, cell["measure"])
            results = _kept(drawn)
            if np.array_equal(study.tasks.classes, test.classes):
                hard = study.difficulty() if hard is None else hard
                given_all = figure.diagram_of(distance, learners, cell["measure"], hard)
                for curve in given_all.curves:
                    results["learners"][curve.learner]["given_all"] = vars(curve.partial)
            lab.add(cell, {**results, "seconds": round(time.perf_counter() - began, 2)})
            print(seed, cell["measure"], results["learners"]["protonet"], flush=True)


def _kept(drawn: CorrelationDiagram) -> dict[str, Any]:
    """What tables and the figure need of a diagram."""
    curves = {
        c.learner: {
            "mean_accuracy": c.mean_accuracy,
            "bins": [[b.distance, b.accuracy, b.n_tasks] for b in c.bins],
            "spearman": vars(c.spearman),
            "given_difficulty": None if c.partial is None else vars(c.partial),
            "ceiling": c.ceiling,
        }
        for c in drawn.curves
    }
    return {"learners": curves, "with_difficulty": drawn.distance_and_difficulty}
