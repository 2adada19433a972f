"""The stages about the tasks themselves: data, fit, embed, health."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from taskscape.csv_tables import write_csv
from taskscape.embeddings import Embeddings
from taskscape.errors import CheckpointError
from taskscape.pools import SPLITS, ClassPool
from taskscape.pools.sheet import contact_sheet
from taskscape.storage import forget_checkpoint, read_json, write_json
from taskscape.study.plan import Plan
from taskscape.study.stages import Stage, Steps
from taskscape.tasks import TaskSet
from taskscape.themes.estimator import HealthWarning, OutlierTasksWarning, TaskThemes
from taskscape.themes.health import count_points, few_points


def data_stage(plan: Plan, model: TaskThemes) -> Stage[dict[str, Any]]:
    """What is in the data: counts, a picture, and every class with its split and task-themes."""

    def make(folder: Path, steps: Steps) -> None:
        pool = plan.pool
        write_json(folder / "data.json", {**_summary(pool), "notes": plan.notes})
        with steps.step(0.5, "drawing a contact sheet"):
            contact_sheet(pool, folder / "contact_sheet.png")
        with steps.step(0.5, "weighing the task-themes of classes"):
            write_csv(folder / "classes.csv", _classes(pool, model))

    notes = {"notes": list(plan.notes)}
    return Stage("data", notes, make, lambda f: read_json(f / "data.json"), ("fit",))


def _classes(pool: ClassPool, model: TaskThemes) -> dict[str, Sequence[Any]]:
    """A row for each class, which `--split-file` reads again; task-themes under the best fit."""
    weights = model.class_weights(pool)
    weights = weights if weights.ndim == 2 else weights[0]
    themes = {f"task_theme_{l}": np.round(column, 4) for l, column in enumerate(weights.T)}  # noqa: E741
    return {
        "class": pool.class_names,
        "group": pool.groups or ("",) * len(pool),
        "split": pool.splits or ("",) * len(pool),
        "samples": pool.counts,
        **themes,
    }


def _summary(pool: ClassPool) -> dict[str, Any]:
    assert pool.splits is not None
    groups = pool.groups or ("",) * len(pool)
    parts: dict[str, dict[str, int]] = {}
    for split, group in zip(pool.splits, groups, strict=True):
        of = parts.setdefault(split, {})
        of[group] = of.get(group, 0) + 1
    return {
        "name": pool.name,
        "fingerprint": pool.fingerprint,
        "kind": "images" if pool.is_images else "features",
        "sample_shape": pool.sample_shape,
        "samples": pool.n_samples,
        "samples_per_class": [int(pool.counts.min()), int(pool.counts.max())],
        "classes": {s: sum(parts[s].values()) for s in SPLITS if s in parts},
        "groups": {s: parts[s] for s in SPLITS if s in parts} if pool.groups else None,
    }


def fit_stage(plan: Plan, out: Path) -> Stage[TaskThemes]:
    """Task-themes, learned from training tasks; interrupted, the fit goes on from a checkpoint."""
    checkpoint = out / "fit.checkpoint"

    def make(folder: Path, steps: Steps) -> None:
        model = plan.config.fit.model(plan.config.seed)
        with steps.step(1.0, "fitting task-themes"):
            try:
                model.fit(plan.fit_tasks, checkpoint=checkpoint, resume=True)
            except CheckpointError:
                forget_checkpoint(checkpoint)  # of other settings, or damaged
                model.fit(plan.fit_tasks, checkpoint=checkpoint)
        model.save(folder / "model")
        last = model.fit_info_[-1]
        history = {
            "tasks": last.tasks,
            "stopped": last.done,
            "held_out": model.held_out_,
            "held_out_nats_per_sample": model.elbo_history_,
            "preparation": model.preparation_.config.describe(),
            "variance_kept": model.preparation_.explained,
        }
        write_json(folder / "fit.json", history)
        forget_checkpoint(checkpoint)

    settings = {"seed": plan.config.seed, **asdict(plan.config.fit)}
    return Stage("fit", settings, make, lambda f: TaskThemes.load(f / "model"))


@dataclass(frozen=True, eq=False)
class SplitEmbeddings:
    """The embedded tasks of each split."""

    train: Embeddings
    val: Embeddings | None
    test: Embeddings


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


def embed_stage(plan: Plan, model: TaskThemes) -> Stage[SplitEmbeddings]:
    """The posteriors of training, validation and test tasks, one file each.

    Known by up to ``tasks.n_shot`` samples of each class. Selection embeds the test tasks again,
    from the ``selection.n_shot`` that learners will have.
    """

    def make(folder: Path, steps: Steps) -> None:
        every = {
            "test tasks": plan.test,
            "validation tasks": plan.val,
            "training tasks": plan.train,
        }
        sets = {called: tasks for called, tasks in every.items() if tasks is not None}
        with steps.step(1.0, "embedding tasks"):
            embedded = embed_called(model, sets)
        for name, called in zip(("test", "val", "train"), every, strict=True):
            if called in embedded:
                embedded[called].save(folder / f"{name}.parquet")

    def load(folder: Path) -> SplitEmbeddings:
        val = folder / "val.parquet"
        return SplitEmbeddings(
            train=Embeddings.load(folder / "train.parquet"),
            val=Embeddings.load(val) if val.exists() else None,
            test=Embeddings.load(folder / "test.parquet"),
        )

    settings = {"seed": plan.config.seed, **asdict(plan.config.tasks)}
    return Stage("embed", settings, make, load, ("fit",))


def health_stage(
    model: TaskThemes, embedded: SplitEmbeddings, warned: list[str]
) -> Stage[dict[str, Any]]:
    """Whether the representation is sound."""

    def make(folder: Path, steps: Steps) -> None:
        lam = embedded.test.lam[0]
        few = few_points(lam, np.asarray(model.members_[0].delta), "test tasks")
        if few is not None:
            warnings.warn(few, HealthWarning, stacklevel=1)
        said = [*warned, *([] if few is None else [few])]
        health = {
            "ok": model.health_.ok and not said,
            **model.health_.to_dict(),
            "distinct_test_tasks": count_points(lam),
            "test_tasks": len(embedded.test),
            "warnings": said,
            "summary": model.health_.summary(),
        }
        write_json(folder / "health.json", health)

    return Stage("health", {}, make, lambda f: read_json(f / "health.json"), ("fit", "embed"))
