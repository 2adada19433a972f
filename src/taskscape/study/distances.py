"""The stage about distances: how far the test tasks are, how hard, and whether that is usual."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from taskscape.compare import class_moments, feature_separation
from taskscape.io.tables import read_table, write_csv, write_table
from taskscape.io.values import from_plain, read_json, write_json
from taskscape.pools import ClassPool
from taskscape.similarity import (
    DistanceSource,
    Resemblance,
    Similarity,
    distances_between,
    make_similarity,
    nearest_tasks,
    resemblance,
)
from taskscape.similarity.known import DEFAULT_SIMILARITY, TASK_THEMES, find_similarity
from taskscape.similarity.nearest_tasks import SAME, TIE
from taskscape.study.plan import Plan
from taskscape.study.represent import SplitEmbeddings, unfitted_measure
from taskscape.study.stages import Stage, Steps
from taskscape.tasks import TaskSet
from taskscape.tasks.class_lists import write_classes
from taskscape.themes.estimator import TaskThemes
from taskscape.themes.places import all_rows
from taskscape.themes.prepare import Preparation

_LEAST_SEPARATION = 1e-6


def distances_stage(
    plan: Plan, model: TaskThemes, embedded: SplitEmbeddings, features: ClassPool
) -> Stage[dict[str, Any]]:
    """Distances, neighbours and difficulty of the test tasks, as a result of a study calls them."""
    by_task_themes = plan.config.similarity == TASK_THEMES  # under which many are equally near
    tie = TIE if by_task_themes else SAME

    def make(folder: Path, steps: Steps) -> None:
        with steps.step(0.3, "leaving out training classes in turn"):
            likeness = resemblance(
                plan.test, plan.train, unfitted_measure(plan, model), validation=plan.val,
                seed=plan.config.seed,
            )  # fmt: skip
        with steps.step(0.5, "nearest training tasks"):
            distances = _measure(plan, embedded)
            near = nearest_tasks(
                replace(plan.test, pool=features), replace(plan.train, pool=features), distances,
                plan.config.evaluate.k, tie=tie,
            )  # fmt: skip
        columns = {
            "distance": distances.mean_distance(),
            "nearest": near.indices,
            "nearest_distance": near.distances,
            "nearest_by_classes": near.by_classes,
            "ties": near.ties,
            "difficulty": difficulty(features, plan.test)[:, 0],
        }
        ids = {"task": embedded.test.ids}
        write_table(folder / "distances.parquet", ids | columns)
        sheet: dict[str, Any] = {
            **ids,
            "classes": [write_classes(embedded.test.names(i)) for i in range(len(embedded.test))],
            "distance": columns["distance"],
            "nearest": near.distances.mean(axis=1),
            "difficulty": columns["difficulty"],
        }
        write_csv(folder / "distances.csv", sheet)
        write_json(folder / "resemblance.json", likeness.to_dict())

    def load(folder: Path) -> dict[str, Any]:
        columns = read_table(folder / "distances.parquet")
        del columns["task"]
        likeness = from_plain(Resemblance, read_json(folder / "resemblance.json"))
        return columns | {"resemblance": likeness}

    settings = {"k": plan.config.evaluate.k, "tie": tie, "seed": plan.config.seed}
    settings |= similarity_settings(plan)
    return Stage("distances", settings, make, load, ("embed",))


def similarity_settings(plan: Plan) -> dict[str, Any]:
    """What distances follow from besides the model; nothing where they are the model's own."""
    if plan.config.similarity == DEFAULT_SIMILARITY:
        return {}
    updates = plan.config.selection.probe_updates
    return {"similarity": plan.config.similarity, "probe_updates": updates}


def fit_similarity(plan: Plan, name: str, train: TaskSet) -> Similarity:
    """A similarity measure other than the study's own model, fitted to training tasks."""
    updates = plan.config.selection.probe_updates
    return make_similarity(name, seed=plan.config.seed, updates=updates).fit(train)


def _measure(plan: Plan, embedded: SplitEmbeddings) -> DistanceSource:
    """The distances from the test tasks to the training tasks."""
    name = plan.config.similarity
    measure = find_similarity(name)
    if measure.factor is not None:
        return distances_between(embedded.test, embedded.train, name)
    fitted = fit_similarity(plan, name, plan.train)
    return fitted.distances(plan.test, fitted.embed(plan.train))


def difficulty(
    pool: ClassPool, tasks: TaskSet, preparation: Preparation | None = None
) -> Float[np.ndarray, "tasks 2"]:
    """How much the classes of each task overlap: spread within over distance between them.

    On average over pairs of classes, and of the two nearest; from all samples of the classes, as
    they are or prepared. More is harder.
    """
    ids = tasks.class_ids
    rows = all_rows(pool, ids)
    owner = np.empty(len(pool.samples), dtype=np.int64)
    for c in ids:
        owner[pool.starts[c] : pool.starts[c] + pool.counts[c]] = c
    x = pool.samples[rows] if preparation is None else preparation(pool.take(rows))
    apart = feature_separation(class_moments(x, owner[rows], len(pool)), tasks)
    return 1 / np.maximum(np.stack([apart.mean, apart.smallest], axis=1), _LEAST_SEPARATION)
