"""``taskscape select``: choose training tasks for test tasks."""

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from jaxtyping import Int

from taskscape.cli.auto import Trial
from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.files import check_output, json_with, written_in_one_piece
from taskscape.select import RULES
from taskscape.select import select as select_tasks
from taskscape.tasks import TASKS

__all__ = ["register"]

_JSON = json_with("a selection", what="selection")
_RULES = "; ".join(f"{rule.name}: {rule.meaning}" for rule in RULES.values())
_RULES += "; auto: the one that helps a learner on validation tasks"


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        "select",
        epilog="Example:  taskscape select test.parquet train.parquet -n 500 --rule coverage "
        "--out selection.json --tasks train_tasks.parquet --out-tasks chosen.parquet",
    )(select)


def select(
    test: Annotated[Path, typer.Argument(help="Test tasks, written by `taskscape embed`.")],
    train: Annotated[Path, typer.Argument(help="Training tasks: such a file, or a catalogue.")],
    n: Annotated[int, typer.Option("-n", help="How many tasks, or samples, to choose.")],
    rule: Annotated[str, typer.Option(help=f"{_RULES}.")] = "coverage",
    seed: Annotated[int, typer.Option(help="Settles ties and the order of turns.")] = 0,
    max_shared: Annotated[
        int | None, typer.Option(help="No two chosen tasks share more classes than this.")
    ] = None,
    budget: Annotated[str, typer.Option(help="What -n counts: tasks or samples.")] = "tasks",
    samples_per_class: Annotated[
        int | None, typer.Option(help="For --budget samples: samples of each class of a task.")
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
        str | None, typer.Option(help="For --rule auto: the data that the tasks are from.")
    ] = None,
    validation: Annotated[
        Path | None, typer.Option(help="For --rule auto: embedded tasks of validation classes.")
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
        check_output(out, _JSON, out_tasks)
    if out_tasks is not None:
        check_output(out_tasks, TASKS, tasks, validation_tasks)
    asked, pool = Embeddings.load(test), Embeddings.load(train)
    asked.header.check_same_model(pool.header, str(test), str(train))
    if out_tasks is not None and tasks is None:
        raise DataError("--out-tasks needs --tasks, the tasks that were embedded.")
    listed = None if tasks is None else _read_tasks(tasks, pool, train)
    samples = _samples(budget, samples_per_class, pool, listed)
    options: dict[str, Any] = {
        "seed": seed,
        "train_classes": pool.classes,
        "train_samples": samples,
        "max_shared": max_shared,
        "budget": budget,
    }
    if rule == "auto":
        trial = Trial(learner, model, data, tasks, validation, validation_tasks, trials, trial_n)
        chosen = trial.select(asked, pool, n, **options)
    else:
        chosen = select_tasks(asked, pool, n, rule, **options)
    if out is not None:
        with written_in_one_piece(out, _JSON) as made:
            made.write_text(chosen.to_json() + "\n", encoding="utf-8")
    if out_tasks is not None and listed is not None:
        with written_in_one_piece(out_tasks, TASKS) as made:
            pq.write_table(listed.take(pa.array(chosen.indices)), made, compression="zstd")
    if as_json:
        typer.echo(json.dumps(chosen.to_dict()))
        return
    typer.echo(chosen.summary())
    if "auto" in chosen.settings:
        typer.echo(f"  {chosen.settings['auto']['why']}")
    for index, why in list(zip(chosen.indices.tolist(), chosen.why, strict=True))[:5]:
        typer.echo(f"  task {pool.ids[index]} ({', '.join(pool.names(index))}): {why}")
    if len(chosen) > 5:
        typer.echo(f"  … and {len(chosen) - 5:,} more")
    for path in (out, out_tasks):
        if path is not None:
            typer.echo(f"written to {path}")


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
    budget: str, samples_per_class: int | None, embedded: Embeddings, tasks: pa.Table | None
) -> Int[np.ndarray, "tasks"] | None:
    if budget != "samples":
        return None
    if samples_per_class is not None:
        return embedded.n_way * samples_per_class
    if tasks is not None:
        header = json.loads(tasks.schema.metadata[b"taskscape"])
        shots = tasks["n_shot"].to_numpy()
        if shots.all():
            return embedded.n_way * (shots + int(header["n_query"]))
    raise DataError(
        "--budget samples needs to know the samples of each task: give --samples-per-class, or "
        "--tasks that have a number of shots."
    )
