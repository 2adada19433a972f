"""``taskscape forecast``: how well will a trained learner do on new tasks?"""

import json
from pathlib import Path
from typing import Annotated

import typer

from taskscape.cli.options import (
    AsJson,
    Model,
    NQuery,
    NShot,
    NTasks,
    NWay,
    Seed,
    Source,
    Split,
    TasksFile,
    refuse_given,
)
from taskscape.errors import DataError
from taskscape.files import check_output

__all__ = ["register"]

EPILOG = (
    "Example:  taskscape forecast model glyphs --train train.parquet --trained out/learner "
    "--split test --n-way 5 --n-shot 5 --out forecasts.csv  ·  "
    "taskscape forecast model glyphs --train train.parquet --calibration val-tasks.parquet "
    "--accuracy val-accuracies.csv --tasks new-tasks.parquet"
)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("forecast", epilog=EPILOG)(forecast)


def forecast(
    model: Model,
    source: Source,
    train: Annotated[
        Path | None, typer.Option(help="The learner's training tasks, by `taskscape embed`.")
    ] = None,
    trained: Annotated[
        Path | None, typer.Option(help="A trained learner, by `taskscape train` or `run`.")
    ] = None,
    accuracy: Annotated[
        Path | None,
        typer.Option(help="Instead: its accuracy on each calibration task, CSV or Parquet."),
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="Calibration tasks, written by `taskscape tasks`.")
    ] = None,
    calibration_split: Annotated[
        str, typer.Option(help="Else draw them from classes that the learner has not seen.")
    ] = "val",
    n_calibration: Annotated[int, typer.Option(help="How many calibration tasks to draw.")] = 1000,
    n_query: NQuery = 15,
    episodes: Annotated[int, typer.Option(help="Evaluations of each calibration task.")] = 10,
    forecaster: Annotated[
        Path | None, typer.Option(help="Instead of all that: a forecaster written by --save.")
    ] = None,
    tasks: TasksFile = None,
    split: Split = None,
    n_tasks: NTasks = 1000,
    n_way: NWay = "5",
    n_shot: NShot = "5",
    seed: Seed = 0,
    confidence: Annotated[float, typer.Option(help="What the intervals should hold.")] = 0.9,
    save: Annotated[Path | None, typer.Option(help="Keep the forecaster in this folder.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write a .csv, .parquet or .json file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Expected accuracy of a trained learner on new tasks, from their labelled samples alone.

    It is calibrated on tasks of classes that the learner has not seen: give the learner, which is
    then evaluated on them, or its accuracies on them.
    """
    from taskscape.cli.work.data import get_tasks
    from taskscape.cli.work.forecast import (
        FORECASTS,
        measured_accuracies,
        plain_forecasts,
        print_forecasts,
        write_forecasts,
    )
    from taskscape.embeddings import Embeddings
    from taskscape.forecast import Forecaster
    from taskscape.pools import load_pool
    from taskscape.storage import arrays_of_kind
    from taskscape.themes.estimator import TaskThemes

    FORECASTS.check(out)
    if forecaster is not None:
        refuse_given(
            forecast, "--forecaster, which is calibrated already", train=train, trained=trained,
            accuracy=accuracy, calibration=calibration, calibration_split=calibration_split,
            n_calibration=n_calibration, n_query=n_query, episodes=episodes, confidence=confidence,
        )  # fmt: skip
    else:
        _check_options(train, trained, accuracy, calibration)
    if save is not None:
        check_output(save, arrays_of_kind("forecaster"), forecaster, out)
    fitted, pool = TaskThemes.load(model), load_pool(source)
    new = get_tasks(pool, tasks, split, n_tasks, n_way, n_shot, seed)
    if forecaster is not None:
        ready = Forecaster.load(forecaster, fitted)
    else:
        assert train is not None
        known = get_tasks(
            pool, calibration, calibration_split, n_calibration, n_way, n_shot, seed + 1, n_query
        )
        name, measured = measured_accuracies(fitted, known, trained, accuracy, episodes, seed)
        ready = Forecaster(fitted, Embeddings.load(train), name, confidence=confidence)
        ready.fit(known, measured)
    if save is not None:
        ready.save(save)
    forecasts = ready.predict(new)
    if out is not None:
        write_forecasts(out, forecasts, new)
    if as_json:
        typer.echo(json.dumps(plain_forecasts(forecasts, new)))
    else:
        print_forecasts(ready, forecasts, new)
        for path in (out, save):
            if path is not None:
                typer.echo(f"written to {path}")


def _check_options(
    train: Path | None,
    trained: Path | None,
    accuracy: Path | None,
    calibration: Path | None,
) -> None:
    if train is None:
        raise DataError("--train is missing: the learner's training tasks, embedded.")
    if (trained is None) == (accuracy is None):
        raise DataError("give either --trained, to be evaluated, or --accuracy, already measured.")
    if accuracy is not None and calibration is None:
        raise DataError("--accuracy needs --calibration, the tasks that it was measured on.")
