"""``taskscape forecast``: how well will a trained learner do on new tasks?"""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from jaxtyping import Float

from taskscape.cli.learners import samples_for
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
    get_tasks,
)
from taskscape.cli.tables import Tables
from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.files import check_output
from taskscape.forecast import FORECASTS_FILE, Forecaster, Forecasts
from taskscape.meta import Trained, evaluate
from taskscape.pools import load_pool
from taskscape.storage import arrays_of_kind
from taskscape.tasks import TaskSet
from taskscape.themes.estimator import TaskThemes

__all__ = ["register"]

EPILOG = (
    "Example:  taskscape forecast model glyphs --train train.parquet --trained out/learner "
    "--split test --n-way 5 --n-shot 5 --out forecasts.csv  ·  "
    "taskscape forecast model glyphs --train train.parquet --calibration val-tasks.parquet "
    "--accuracy val-accuracies.csv --tasks new-tasks.parquet"
)
_SHOWN = 10
_COLUMNS = ("task", "expected", "low", "high", "outside", "classes")
_BECAUSE = "because of "


_TABLES = Tables("forecasts", _COLUMNS, FORECASTS_FILE, more=_BECAUSE)


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
    _check_options(train, trained, accuracy, calibration, forecaster, out)
    if save is not None:
        check_output(save, arrays_of_kind("forecaster"), forecaster, out)
    _TABLES.check(out)
    fitted, pool = TaskThemes.load(model), load_pool(source)
    new = get_tasks(pool, tasks, split, n_tasks, n_way, n_shot, seed)
    if forecaster is not None:
        ready = Forecaster.load(forecaster, fitted)
    else:
        assert train is not None
        known = get_tasks(
            pool, calibration, calibration_split, n_calibration, n_way, n_shot, seed + 1, n_query
        )
        name, measured = _measured(fitted, known, trained, accuracy, episodes, seed)
        ready = Forecaster(fitted, Embeddings.load(train), name, confidence=confidence)
        ready.fit(known, measured)
    if save is not None:
        ready.save(save)
    forecasts = ready.predict(new)
    if out is not None:
        _write(out, forecasts, new)
    if as_json:
        typer.echo(json.dumps(_plain(forecasts, new), ensure_ascii=False))
    else:
        _print(ready, forecasts, new)
        for path in (out, save):
            if path is not None:
                typer.echo(f"written to {path}")


def _check_options(
    train: Path | None,
    trained: Path | None,
    accuracy: Path | None,
    calibration: Path | None,
    forecaster: Path | None,
    out: Path | None,
) -> None:
    if out is not None:
        _TABLES.check_name(out)
    if forecaster is not None:
        if trained is not None or accuracy is not None:
            raise DataError("--forecaster is calibrated already; leave --trained, --accuracy out.")
        return
    if train is None:
        raise DataError("--train is missing: the learner's training tasks, embedded.")
    if (trained is None) == (accuracy is None):
        raise DataError("give either --trained, to be evaluated, or --accuracy, already measured.")
    if accuracy is not None and calibration is None:
        raise DataError("--accuracy needs --calibration, the tasks that it was measured on.")


def _measured(
    model: TaskThemes,
    tasks: TaskSet,
    path: Path | None,
    accuracy: Path | None,
    episodes: int,
    seed: int,
) -> tuple[str, Float[np.ndarray, "tasks episodes"]]:
    """The name of the learner, and its accuracy on each calibration task."""
    if accuracy is not None:
        return accuracy.stem, _read_accuracy(accuracy)
    assert path is not None
    trained = Trained.load(path)
    seen = replace(tasks, pool=samples_for(trained, tasks.pool, model, path))
    scores = evaluate(trained.learner, trained.state, seen, episodes=episodes, seed=seed)
    name = type(trained.learner).__name__
    return name, scores.accuracy_by_episode.astype(np.float64)


def _read_accuracy(path: Path) -> Float[np.ndarray, "tasks episodes"]:
    """Columns accuracy, or accuracy/1, accuracy/2, …: a row for each calibration task, in order."""
    try:
        if path.suffix == ".parquet":
            columns = pq.read_table(path).to_pydict()
        else:
            with path.open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}
        chosen = [c for c in columns if c == "accuracy" or c.startswith("accuracy/")]
        parts = [np.asarray(columns[c], dtype=np.float64) for c in chosen]
    except (OSError, ValueError, TypeError, pa.ArrowInvalid) as error:
        raise DataError(
            f"{path} is not a table of accuracies that can be read: {error}."
        ) from error
    if not chosen:
        raise DataError(f"{path} has no column 'accuracy', or 'accuracy/1', 'accuracy/2', ….")
    return np.concatenate([p.reshape(len(p), -1) for p in parts], axis=1)


def _plain(forecasts: Forecasts, tasks: TaskSet) -> dict[str, Any]:
    values = forecasts.to_dict()
    for i, row in enumerate(values["tasks"]):
        row["classes"] = list(tasks.names(i))
    return values


def _write(path: Path, forecasts: Forecasts, tasks: TaskSet) -> None:
    plain = _plain(forecasts, tasks)
    rows = [
        {
            **{k: row[k] for k in _COLUMNS},
            **{f"{_BECAUSE}{what}": moved for what, moved in row["reasons"].items()},
        }
        for row in plain["tasks"]
    ]
    _TABLES.write(path, rows, plain)


def _print(ready: Forecaster, forecasts: Forecasts, tasks: TaskSet) -> None:
    calibration = ready.calibration
    assert calibration is not None
    typer.echo(
        f"{forecasts.learner}: expected accuracy over {len(forecasts):,} tasks "
        f"{100 * forecasts.expected.mean():.1f} % (from {100 * forecasts.expected.min():.1f} to "
        f"{100 * forecasts.expected.max():.1f}); calibrated on {calibration.n_tasks:,} tasks of "
        f"{calibration.n_classes} classes, mean error on classes left out "
        f"{100 * calibration.error:.1f} points."
    )
    typer.echo(
        f"{'task':>6}  expected  {100 * forecasts.confidence:.0f} % interval  mainly because of"
    )
    for i in range(min(_SHOWN, len(forecasts))):
        what, moved = max(forecasts.reasons.items(), key=lambda r: abs(r[1][i]))
        typer.echo(
            f"{i:>6}  {100 * forecasts.expected[i]:7.1f}  {100 * forecasts.low[i]:5.1f} to "
            f"{100 * forecasts.high[i]:5.1f}  {what} ({100 * moved[i]:+.1f}): "
            f"{', '.join(tasks.names(i))}"
        )
    if len(forecasts) > _SHOWN:
        typer.echo(f"  … and {len(forecasts) - _SHOWN:,} more")
