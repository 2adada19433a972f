"""The stages about the tasks themselves: data, fit, embed, health, distances."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float
from sklearn.base import clone

from taskscape.compare import class_moments, feature_separation
from taskscape.embeddings import Embeddings
from taskscape.errors import CheckpointError
from taskscape.io.tables import read_table, write_csv, write_table
from taskscape.io.values import from_plain, read_json, write_json
from taskscape.pools import ClassPool
from taskscape.pools.sheet import contact_sheet
from taskscape.similarity import (
    DEFAULT_SIMILARITY,
    DistanceSource,
    Resemblance,
    RetrievalTest,
    choose_settings,
    distances_between,
    resemblance,
)
from taskscape.similarity.known import TASK_THEMES, find_similarity
from taskscape.similarity.nearest_tasks import SAME, TIE, nearest_tasks
from taskscape.similarity.retrieval import retrieval_if_any
from taskscape.study.plan import Plan
from taskscape.study.stages import Stage, Steps
from taskscape.tasks import TaskSet
from taskscape.themes.estimator import TaskThemes
from taskscape.themes.places import all_rows
from taskscape.themes.prepare import Preparation
from taskscape.themes.task_model import HealthWarning, OutlierTasksWarning, TaskModel

_FILES = {
    "test tasks": "test.parquet",
    "validation tasks": "val.parquet",
    "training tasks": "train.parquet",
}
_LEAST_SEPARATION = 1e-6
_ASKED_SHOTS = 5
"""Samples of each class that tasks of a group find each other by."""


def data_stage(plan: Plan) -> Stage[None]:
    """What is in the data: counts, a picture, and every class with its group and split."""

    def make(folder: Path, steps: Steps) -> None:
        pool = plan.pool
        write_json(folder / "data.json", pool.to_dict() | {"notes": plan.notes})
        with steps.step(1.0, "drawing a contact sheet"):
            contact_sheet(pool, folder / "contact_sheet.png")
        classes: dict[str, Any] = {
            "class": pool.class_names,
            "group": pool.groups or ("",) * len(pool),
            "split": pool.splits or ("",) * len(pool),
            "samples": pool.counts,
        }  # `--split-file` and `--group-file` read it again
        write_csv(folder / "classes.csv", classes)

    return Stage("data", {"notes": list(plan.notes)}, make, lambda folder: None)


def fit_stage(plan: Plan, out: Path) -> Stage[TaskThemes]:
    """Image-themes and task-themes, learned from training tasks; interrupted, the latter resume
    from a checkpoint."""
    checkpoint = out / "fit.checkpoint"

    def make(folder: Path, steps: Steps) -> None:
        model = plan.config.fit.model(plan.config.seed)
        auto = plan.config.fit.choose_settings
        if auto:
            n_way, seed = plan.config.tasks.n_way, plan.config.seed
            with steps.step(0.5, "choosing settings"):
                model = choose_settings(plan.fit_tasks, model, n_way=n_way, seed=seed).model
        with steps.step(0.5 if auto else 1.0, "fitting themes"):
            try:
                model.fit(plan.fit_tasks, checkpoint=checkpoint, resume=True)
            except CheckpointError:
                checkpoint.unlink(missing_ok=True)  # of other settings, or damaged
                model.fit(plan.fit_tasks, checkpoint=checkpoint)
        model.save(folder / "model")
        paper = model.co_clustering_
        assert paper is not None
        history = {
            "tasks": paper.fit_info_[-1].tasks,
            "stopped": paper.fit_info_[-1].done,
            "held_out": paper.held_out_,
            "held_out_nats_per_sample": paper.elbo_history_,
            "preparation": model.preparation_.config.describe(),
            "settings": model.origin,
            "variance_kept": model.preparation_.explained,
        }
        write_json(folder / "fit.json", history)
        checkpoint.unlink(missing_ok=True)

    sizes = ("tasks.n_train", "tasks.n_val", "tasks.n_test", "tasks.n_shot")
    settings = plan.settings("fit", "tasks", but=sizes)
    return Stage("fit", settings, make, lambda f: TaskModel.load(f / "model"))


Embedded: TypeAlias = Mapping[str, Embeddings]
"""The embedded tasks of each split."""


def embed_called(model: TaskThemes, sets: Mapping[str, TaskSet]) -> dict[str, Embeddings]:
    """Embed several lists of tasks at once; warnings of outliers call them by these names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutlierTasksWarning)
        embedded = model.embed(TaskSet.concatenate(list(sets.values())))
    parts, start = {}, 0
    for called, tasks in sets.items():
        part = embedded[start : start + len(tasks)]
        parts[called] = replace(part, ids=np.arange(len(tasks)))
        model.warn_of_outliers(parts[called], called)
        start += len(tasks)
    return parts


def embed_stage(plan: Plan, model: TaskThemes) -> Stage[Embedded]:
    """The posteriors of training, validation and test tasks, one file each.

    Known by up to ``tasks.n_shot`` samples of each class. Selection embeds the test tasks again,
    from the ``selection.n_shot`` that learners will have.
    """

    def make(folder: Path, steps: Steps) -> None:
        sets = {"test": plan.test, "validation": plan.val, "training": plan.train}
        given = {f"{name} tasks": tasks for name, tasks in sets.items() if tasks is not None}
        with steps.step(1.0, "embedding tasks"):
            embedded = embed_called(model, given)
        for called, tasks in embedded.items():
            tasks.save(folder / _FILES[called])

    def load(folder: Path) -> Embedded:
        return {name: Embeddings.load(folder / f"{name}.parquet") for name in ("train", "test")}

    return Stage("embed", plan.settings("tasks"), make, load, ("fit",))


def unfitted_measure(plan: Plan, model: TaskThemes) -> Any:
    """The similarity measure of a study, to be fitted again to some of the training classes."""
    if plan.config.similarity == DEFAULT_SIMILARITY:
        return clone(model).set_params(co_clustering=None)
    return plan.measure(plan.config.similarity)


def health_stage(plan: Plan, model: TaskThemes) -> Stage[RetrievalTest | None]:
    """Whether distances measure: do tasks of one group find each other, on unseen classes?

    None where that cannot be asked. The measure is fitted to the training classes alone.
    """
    name = plan.config.similarity

    def make(folder: Path, steps: Steps) -> None:
        measure = unfitted_measure(plan, model)
        n_shot = max(1, min(_ASKED_SHOTS, int(plan.pool.counts.min()) // 2))
        with steps.step(1.0, "looking whether tasks of one group find each other"):
            test = retrieval_if_any(
                plan.pool, measure, plan.config.tasks.n_way, n_shot=n_shot, seed=plan.config.seed
            )
        if test is not None and (better := test.clearly_better()):
            warnings.warn(
                f"tasks of one group find each other more often by {better} than by the distance "
                f"of this study ({name}). Do not trust its distances before you know why; "
                f"--similarity {better} goes by that instead.",
                HealthWarning,
                stacklevel=1,
            )
        health = {"retrieval": None if test is None else test.to_dict()}
        write_json(folder / "health.json", health)

    def load(folder: Path) -> RetrievalTest | None:
        stored = read_json(folder / "health.json")["retrieval"]
        return None if stored is None else RetrievalTest.from_dict(stored)

    settings = plan.settings("similarity", "distances", but=("distances.k",))
    return Stage("health", settings, make, load, ("fit", "embed"))


def distances_stage(
    plan: Plan, model: TaskThemes, embedded: Embedded, features: ClassPool
) -> Stage[dict[str, Any]]:
    """Distances, neighbours and difficulty of the test tasks, as a result of a study calls them."""
    name = plan.config.similarity
    tie = TIE if name == TASK_THEMES else SAME  # by task-themes, many are equally near

    def make(folder: Path, steps: Steps) -> None:
        with steps.step(0.3, "leaving out training classes in turn"):
            likeness = resemblance(
                plan.test, plan.train, unfitted_measure(plan, model), validation=plan.val,
                seed=plan.config.seed,
            )  # fmt: skip
        with steps.step(0.5, "nearest training tasks"):
            if find_similarity(name).factor is not None:
                distances = distances_between(embedded["test"], embedded["train"], name)
            else:
                distances = distances_by_samples(plan, name, plan.test, plan.train)
            near = nearest_tasks(
                replace(plan.test, pool=features), replace(plan.train, pool=features), distances,
                plan.config.distances.k, tie=tie,
            )  # fmt: skip
        columns = {
            "distance": distances.mean_distance(),
            "nearest": near.indices,
            "nearest_distance": near.distances,
            "nearest_by_classes": near.by_classes,
            "ties": near.ties,
            "difficulty": difficulty(features, plan.test)[:, 0],
        }
        write_table(folder / "distances.parquet", {"task": embedded["test"].ids} | columns)
        write_json(folder / "resemblance.json", likeness.to_dict())

    def load(folder: Path) -> dict[str, Any]:
        columns = read_table(folder / "distances.parquet")
        del columns["task"]
        likeness = from_plain(Resemblance, read_json(folder / "resemblance.json"))
        return columns | {"resemblance": likeness}

    settings = plan.settings("similarity", "distances")
    return Stage("distances", settings, make, load, ("embed",))


def distances_by_samples(plan: Plan, name: str, test: TaskSet, train: TaskSet) -> DistanceSource:
    """Distances by a measure other than the study's own model, fitted to the training tasks."""
    fitted = plan.measure(name).fit(train)
    return fitted.distances(test, fitted.embed(train))


def difficulty(
    pool: ClassPool, tasks: TaskSet, preparation: Preparation | None = None
) -> Float[np.ndarray, "tasks 2"]:
    """How much the classes of each task overlap: spread within over distance between them.

    On average over pairs of classes, and of the two nearest; from all samples of the classes, as
    they are or prepared. More is harder.
    """
    ids = tasks.class_ids
    by_place = ids[np.argsort(pool.starts[ids])]
    rows, owner = all_rows(pool, ids), np.repeat(by_place, pool.counts[by_place])
    x = pool.samples[rows] if preparation is None else preparation(pool.take(rows))
    apart = feature_separation(class_moments(x, owner, len(pool)), tasks)
    return 1 / np.maximum(np.stack([apart.mean, apart.smallest], axis=1), _LEAST_SEPARATION)
