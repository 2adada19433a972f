"""``taskscape select``: choose training tasks for test tasks."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from jaxtyping import Int

from taskscape.cli.options import SimilarityName, TestTasks, TrainTasks, one_source
from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.files import check_output, written_in_one_piece
from taskscape.meta import learner_and_training
from taskscape.pools import ClassPool, load_pool
from taskscape.select import RULES, LearnerJudge, Selection, TrialOptions
from taskscape.select import select as select_tasks
from taskscape.select.selection import SELECTION_FILE
from taskscape.similarity import TASK_THEMES
from taskscape.similarity.registry import find_similarity
from taskscape.studies.recipes import (
    LEARNER_PRESETS,
    network_for,
    prepared_pool,
)
from taskscape.tasks import TASKS, TaskSet, load_tasks, save_tasks
from taskscape.themes.estimator import TaskThemes

__all__ = ["read_tasks_of", "register"]

_RULES = "; ".join(f"{name}: {rule.meaning}" for name, rule in RULES.items())
_RULES += "; auto: the one that helps a learner on validation tasks"
_SCALE = 8.0


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        "select",
        epilog="Example:  taskscape select test.parquet train.parquet --budget 500 --rule coverage "
        "--out selection.json --tasks train_tasks.parquet --out-tasks chosen.parquet  ·  "
        "taskscape select test_tasks.parquet train_tasks.parquet --budget 500 --data glyphs "
        "--similarity prototypes",
    )(select)


def select(
    test: TestTasks,
    train: TrainTasks,
    budget: Annotated[
        int, typer.Option("--budget", "-n", help="How many tasks, or samples, to choose.")
    ],
    rule: Annotated[str, typer.Option(help=f"{_RULES}.")] = "coverage",
    similarity: SimilarityName = TASK_THEMES,
    seed: Annotated[int, typer.Option(help="Settles ties and the order of turns.")] = 0,
    max_shared: Annotated[
        int | None, typer.Option(help="No two chosen tasks share more classes than this.")
    ] = None,
    unit: Annotated[str, typer.Option(help="What --budget counts: tasks or samples.")] = "tasks",
    samples_per_class: Annotated[
        int | None, typer.Option(help="For --unit samples: samples of each class of a task.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the selection as JSON.")] = None,
    tasks: Annotated[
        Path | None, typer.Option(help="The tasks that were embedded, by `taskscape tasks`.")
    ] = None,
    out_tasks: Annotated[
        Path | None, typer.Option(help="With --tasks: write the chosen tasks, ready to train on.")
    ] = None,
    learner: Annotated[
        str | None, typer.Option(help="For --rule auto: the learner to train, such as maml.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="For --rule auto: the model that embedded the tasks.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="For --similarity and --rule auto: the data that the tasks are from; may be "
            "repeated."
        ),
    ] = None,
    validation: Annotated[
        Path | None, typer.Option(help="For --rule auto: tasks of validation classes, as TEST.")
    ] = None,
    validation_tasks: Annotated[
        Path | None, typer.Option(help="For --rule auto: those tasks; they need queries.")
    ] = None,
    trials: Annotated[int, typer.Option(help="For --rule auto: trainings of each rule.")] = 5,
    trial_n: Annotated[
        int | None, typer.Option(help="For --rule auto: tasks to train on in a trial.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the selection as JSON.")] = False,
) -> None:
    """Choose the training tasks that suit the test tasks best.

    --rule auto tries the rules first: it selects for validation tasks, trains the learner on what
    was chosen, and keeps the rule that beats random choice by more than the noise, if any does.
    """
    if out is not None:
        check_output(out, SELECTION_FILE, out_tasks)
    if out_tasks is not None:
        check_output(out_tasks, TASKS, tasks, validation_tasks, test, train)
    find_similarity(similarity)
    embedded = similarity == TASK_THEMES
    if embedded and out_tasks is not None and tasks is None:
        raise DataError("--out-tasks needs --tasks, the tasks that were embedded.")
    source = one_source(data)
    asked, known = read_tasks_of(similarity, source, test, train)
    listed = _read_tasks(tasks, known, train) if embedded and tasks is not None else None
    judge: dict[str, Any] = {}
    if rule == "auto":
        if not embedded:  # nothing is embedded beforehand: the lists of tasks are all there is
            tasks, validation = train, validation or validation_tasks
        auto = _Auto(learner, model, source, tasks, validation, validation_tasks)
        judge = auto.options(known, seed)
        judge["trial"] = TrialOptions(trials=trials, n=trial_n)
    chosen = select_tasks(
        asked,
        known,
        budget,
        rule,
        similarity=similarity,
        seed=seed,
        train_classes=known.classes if embedded else known,
        train_samples=_samples(unit, samples_per_class, known, listed),
        max_shared=max_shared,
        unit=unit,
        **judge,
    )
    if out is not None:
        chosen.save(out)
    if out_tasks is not None and isinstance(known, TaskSet):
        save_tasks(known[chosen.indices], out_tasks)
    elif out_tasks is not None and listed is not None:
        with written_in_one_piece(out_tasks, TASKS) as file:
            pq.write_table(listed.take(pa.array(chosen.indices)), file, compression="zstd")
    if as_json:
        typer.echo(json.dumps(chosen.to_dict()))
        return
    _say(chosen, known)
    for path in (out, out_tasks):
        if path is not None:
            typer.echo(f"written to {path}")


def _say(chosen: Selection, known: Embeddings | TaskSet) -> None:
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
class _Auto:
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


def _read_tasks(path: Path, embedded: Embeddings, source: Path) -> pa.Table:
    """The table of tasks, seen to be those that were embedded, row by row."""
    try:
        table = pq.read_table(path)
        classes = table["classes"].to_pylist()
    except (FileNotFoundError, KeyError, pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is not a list of tasks that can be read: {error}.") from error
    same = len(classes) == len(embedded) and all(
        ids == [int(c) for c in row if c >= 0]
        for ids, row in zip(classes, embedded.classes, strict=True)
    )
    if not same:
        raise DataError(
            f"{path} has other tasks than {source}, row by row; give the tasks that were embedded."
        )
    return table


def _samples(
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
        header = json.loads(listed.schema.metadata[b"taskscape"])
        shots = listed["n_shot"].to_numpy()
        if shots.all():
            return train.n_way * (shots + int(header["n_query"]))
    raise DataError(
        "--unit samples needs to know the samples of each task: give --samples-per-class, or "
        "--tasks that have a number of shots."
    )
