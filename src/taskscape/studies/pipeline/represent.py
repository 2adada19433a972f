"""The stages about the tasks themselves: data, fit, embed, health."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from taskscape.embeddings import Embeddings
from taskscape.errors import CheckpointError
from taskscape.pools import SPLITS, ClassPool
from taskscape.pools.sheet import contact_sheet
from taskscape.storage import read_json, write_json
from taskscape.studies.pipeline.plan import Plan, joined
from taskscape.studies.pipeline.stages import Stage, Steps
from taskscape.themes.estimator import TaskThemes

__all__ = ["SplitEmbeddings", "data_stage", "embed_stage", "fit_stage", "health_stage"]


def data_stage(plan: Plan) -> Stage[dict[str, Any]]:
    """What is in the data, and a picture of it."""

    def make(folder: Path, steps: Steps) -> None:
        pool = plan.pool
        write_json(folder / "data.json", {**_summary(pool), "notes": plan.notes})
        with steps.step(1.0, "drawing a contact sheet"):
            contact_sheet(pool, folder / "contact_sheet.png")

    notes = {"notes": list(plan.notes)}
    return Stage("data", notes, make, lambda f: read_json(f / "data.json"))


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
                checkpoint.unlink(missing_ok=True)  # of other settings, or damaged
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
        checkpoint.unlink(missing_ok=True)

    settings = {"seed": plan.config.seed, **asdict(plan.config.fit)}
    return Stage("fit", settings, make, lambda f: TaskThemes.load(f / "model"))


@dataclass(frozen=True, eq=False)
class SplitEmbeddings:
    """The embedded tasks of each split."""

    train: Embeddings
    val: Embeddings | None
    test: Embeddings


def embed_stage(plan: Plan, model: TaskThemes) -> Stage[SplitEmbeddings]:
    """The posteriors of training, validation and test tasks, one file each.

    Known by up to ``tasks.n_shot`` samples of each class. Selection and forecasts embed the test
    tasks again, from the ``selection.n_shot`` and ``evaluate.n_shot`` that learners will have.
    """

    def make(folder: Path, steps: Steps) -> None:
        sets = {"test": plan.test, "val": plan.val, "train": plan.train}
        everything = joined(joined(plan.test, plan.val), plan.train)
        with steps.step(1.0, "embedding tasks"):
            embedded = model.embed(everything)
        start = 0
        for name, tasks in sets.items():
            if tasks is not None:
                part = embedded[start : start + len(tasks)]
                start += len(tasks)
                replace(part, ids=np.arange(len(tasks))).save(folder / f"{name}.parquet")

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
        del steps
        lam = embedded.test.lam[0]
        write_json(
            folder / "health.json",
            {
                "ok": model.health_.ok and not warned,
                **model.health_.to_dict(),
                "distinct_test_tasks": len(np.unique(lam.round(1), axis=0)),
                "test_tasks": len(embedded.test),
                "warnings": warned,
                "summary": model.health_.summary(),
            },
        )

    return Stage(
        "health", {}, make,
        lambda f: read_json(f / "health.json"), ("fit", "embed"),
    )  # fmt: skip
