"""``taskscape select``: choose training tasks for test tasks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from taskscape.cli.options import (
    SimilarityName,
    TestTasks,
    TrainTasks,
    one_source,
    read_tasks_of,
)
from taskscape.errors import DataError
from taskscape.files import check_output, written_in_one_piece
from taskscape.select.known import RULES
from taskscape.similarity.known import TASK_THEMES, find_similarity

__all__ = ["register"]

_RULES = "; ".join(f"{name}: {rule.meaning}" for name, rule in RULES.items())
_RULES += "; auto: the one that helps a learner on validation tasks"


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
    import pyarrow as pa

    from taskscape.select import TrialOptions
    from taskscape.select import select as select_tasks
    from taskscape.select.selection import SELECTION_FILE
    from taskscape.storage import write_parquet
    from taskscape.tasks import TASKS, TaskSet

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
    listed = _read_embedded_tasks(tasks, known, train) if embedded and tasks is not None else None
    judge: dict[str, Any] = {}
    if rule == "auto":
        if not embedded:  # nothing is embedded beforehand: the lists of tasks are all there is
            tasks, validation = train, validation or validation_tasks
        judge = _judge(known, learner, model, source, tasks, validation, validation_tasks, seed)
        judge["trial"] = TrialOptions(trials=trials, n=trial_n)
    chosen = select_tasks(
        asked,
        known,
        budget,
        rule,
        similarity=similarity,
        seed=seed,
        train_classes=known.classes if embedded else known,
        train_samples=_samples_of(unit, samples_per_class, known, listed),
        max_shared=max_shared,
        unit=unit,
        **judge,
    )
    if out is not None:
        chosen.save(out)
    if out_tasks is not None and isinstance(known, TaskSet):
        known[chosen.indices].save(out_tasks)
    elif out_tasks is not None and listed is not None:
        with written_in_one_piece(out_tasks, TASKS) as file:
            write_parquet(file, listed.take(pa.array(chosen.indices)))
    if as_json:
        typer.echo(json.dumps(chosen.to_dict()))
        return
    _print_selection(chosen, known)
    for path in (out, out_tasks):
        if path is not None:
            typer.echo(f"written to {path}")


def _print_selection(chosen: Any, known: Any) -> None:
    typer.echo(chosen.summary())
    if "auto" in chosen.settings:
        typer.echo(f"  {chosen.settings['auto']['why']}")
    for index, why in list(zip(chosen.indices.tolist(), chosen.why, strict=True))[:5]:
        name = known.ids[index] if hasattr(known, "ids") else index
        typer.echo(f"  task {name} ({', '.join(known.names(index))}): {why}")
    if len(chosen) > 5:
        typer.echo(f"  … and {len(chosen) - 5:,} more")


def _judge(
    train: Any,
    learner: str | None,
    model: Path | None,
    data: str | None,
    tasks: Path | None,
    validation: Path | None,
    validation_tasks: Path | None,
    seed: int,
) -> dict[str, Any]:
    """For ``--rule auto``: validation tasks, and the learner that judges the choices for them."""
    from taskscape.embeddings import Embeddings
    from taskscape.meta import find_learner, learner_and_training, network_for
    from taskscape.pools import load_pool
    from taskscape.select import LearnerJudge
    from taskscape.tasks import TaskSet
    from taskscape.themes.estimator import TaskThemes
    from taskscape.themes.prepare import prepared_pool

    if not (learner and model and data and tasks and validation and validation_tasks):
        raise DataError(
            "--rule auto trains a learner and needs --learner, --model, --data, --tasks, "
            "--validation and --validation-tasks; from Python: taskscape.select.LearnerJudge."
        )
    settings = find_learner(learner).settings
    kind, training = learner_and_training(learner, settings)
    embedded = isinstance(train, Embeddings)
    pool = load_pool(data) if embedded else train.pool
    features = prepared_pool(pool, TaskThemes.load(model).preparation_, unit_length=True)
    judge = LearnerJudge(
        kind,
        network_for(features, settings),
        replace(TaskSet.load(tasks, pool), pool=features),
        replace(TaskSet.load(validation_tasks, pool), pool=features),
        training=training,
        seed=seed,
    )
    if not embedded:
        return {"judge": judge, "validation": TaskSet.load(validation, pool)}
    held_out = Embeddings.load(validation)
    held_out.header.check_same_model(train.header, str(validation), "the training tasks")
    return {"judge": judge, "validation": held_out}


def _read_embedded_tasks(path: Path, embedded: Any, source: Path) -> Any:
    """The table of tasks, verified to be those that were embedded, row by row."""
    from taskscape.storage import read_parquet
    from taskscape.tasks.manifest import read_header

    table = read_parquet(path)
    read_header(table.schema, str(path))
    if "classes" not in table.column_names:
        raise DataError(f"{path} is not a list of tasks that can be read: it has no classes.")
    classes = table["classes"].to_pylist()
    if classes != [[int(c) for c in row if c >= 0] for row in embedded.classes]:
        raise DataError(
            f"{path} has other tasks than {source}, row by row; give the tasks that were embedded."
        )
    return table


def _samples_of(unit: str, samples_per_class: int | None, train: Any, listed: Any) -> Any:
    """The samples of each training task, or None where they are not needed or known already."""
    from taskscape.tasks import TaskSet
    from taskscape.tasks.manifest import read_header

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
