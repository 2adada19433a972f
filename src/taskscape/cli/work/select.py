"""For ``taskscape select``: tasks that lie in files, and a learner that judges the rules."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import typer
from jaxtyping import Int

from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.meta import learner_and_training
from taskscape.pools import ClassPool, load_pool
from taskscape.recipes import LEARNER_PRESETS, network_for, prepared_pool
from taskscape.select import LearnerJudge, Selection
from taskscape.similarity import TASK_THEMES
from taskscape.storage import read_parquet
from taskscape.tasks import TaskSet, load_tasks
from taskscape.tasks.manifest import read_header
from taskscape.themes.estimator import TaskThemes

__all__ = ["Auto", "print_selection", "read_embedded_tasks", "read_tasks_of", "samples_of"]

_SCALE = 8.0


def print_selection(chosen: Selection, known: Embeddings | TaskSet) -> None:
    typer.echo(chosen.summary())
    if "auto" in chosen.settings:
        typer.echo(f"  {chosen.settings['auto']['why']}")
    for index, why in list(zip(chosen.indices.tolist(), chosen.why, strict=True))[:5]:
        name = known.ids[index] if isinstance(known, Embeddings) else index
        typer.echo(f"  task {name} ({', '.join(known.names(index))}): {why}")
    if len(chosen) > 5:
        typer.echo(f"  … and {len(chosen) - 5:,} more")


def read_tasks_of(similarity: str, data: str | None, test: Path, train: Path) -> tuple[Any, Any]:
    """Test and training tasks as a notion of similarity takes them: embedded, or as task sets."""
    if similarity == TASK_THEMES:
        asked, known = Embeddings.load(test), Embeddings.load(train)
        asked.header.check_same_model(known.header, str(test), str(train))
        return asked, known
    if data is None:
        raise DataError(
            f"--similarity {similarity} looks at samples: give --data, what the tasks are from."
        )
    pool = load_pool(data)
    return load_tasks(test, pool), load_tasks(train, pool)


@dataclass(frozen=True)
class Auto:
    """What only ``--rule auto`` looks at: a learner to try the rules with."""

    learner: str | None
    model: Path | None
    data: str | None
    tasks: Path | None
    validation: Path | None
    validation_tasks: Path | None

    def options(self, train: Embeddings | TaskSet, seed: int) -> dict[str, Any]:
        """The validation tasks, and the learner that judges what was chosen for them."""
        if (
            self.learner is None
            or self.model is None
            or self.data is None
            or self.tasks is None
            or self.validation is None
            or self.validation_tasks is None
        ):
            raise DataError(
                "--rule auto trains a learner and needs --learner, --model, --data, --tasks, "
                "--validation and --validation-tasks; from Python: taskscape.select.LearnerJudge."
            )
        settings = LEARNER_PRESETS["forecasting"].get(self.learner, {})
        learner, training = learner_and_training(self.learner, settings)
        pool = train.pool if isinstance(train, TaskSet) else load_pool(self.data)
        preparation = TaskThemes.load(self.model).preparation_
        features = prepared_pool(pool, preparation, unit_length=True)
        judge = LearnerJudge(
            learner,
            network_for(features, settings, scale=_SCALE),
            _over(self.tasks, pool, features),
            _over(self.validation_tasks, pool, features),
            training=training,
            seed=seed,
        )
        validation: Embeddings | TaskSet
        if isinstance(train, TaskSet):
            validation = load_tasks(self.validation, pool)
        else:
            validation = Embeddings.load(self.validation)
            where = str(self.validation)
            validation.header.check_same_model(train.header, where, "the training tasks")
        return {"judge": judge, "validation": validation}


def _over(path: Path, pool: ClassPool, features: ClassPool) -> TaskSet:
    return replace(load_tasks(path, pool), pool=features)


def read_embedded_tasks(path: Path, embedded: Embeddings, source: Path) -> pa.Table:
    """The table of tasks, seen to be those that were embedded, row by row."""
    table = read_parquet(path)
    read_header(table.schema, str(path))
    if "classes" not in table.column_names:
        raise DataError(f"{path} is not a list of tasks that can be read: it has no classes.")
    classes = table["classes"].to_pylist()
    same = len(classes) == len(embedded) and all(
        ids == [int(c) for c in row if c >= 0]
        for ids, row in zip(classes, embedded.classes, strict=True)
    )
    if not same:
        raise DataError(
            f"{path} has other tasks than {source}, row by row; give the tasks that were embedded."
        )
    return table


def samples_of(
    unit: str,
    samples_per_class: int | None,
    train: Embeddings | TaskSet,
    listed: pa.Table | None,
) -> Int[np.ndarray, "tasks"] | None:
    if unit != "samples":
        return None
    if samples_per_class is not None:
        return train.n_way * samples_per_class
    if isinstance(train, TaskSet):
        return None  # it knows its own
    if listed is not None:
        header = read_header(listed.schema, "the list of tasks")
        shots = listed["n_shot"].to_numpy()
        if shots.all():
            return train.n_way * (shots + int(header["n_query"]))
    raise DataError(
        "--unit samples needs to know the samples of each task: give --samples-per-class, or "
        "--tasks that have a number of shots."
    )
