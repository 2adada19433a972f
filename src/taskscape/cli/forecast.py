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

from taskscape.cli.ranges import parse_range, parse_shots
from taskscape.cli.wishes import (
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
from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.files import Kind, check_output, csv_with, written_in_one_piece
from taskscape.forecast import FORECASTS_FILE, Forecaster, Forecasts
from taskscape.meta import Trained, evaluate, restore
from taskscape.pools import ClassPool, load_pool
from taskscape.storage import arrays_of_kind, load_arrays
from taskscape.studies.recipes import prepared_pool
from taskscape.tasks import TaskSet, load_tasks, sample_tasks
from taskscape.tasks.class_lists import write_classes
from taskscape.themes.estimator import TaskThemes

__all__ = ["register"]

EPILOG = (
    "Example:  taskscape forecast model glyphs --train train.parquet --learner out/learner "
    "--split test --n-way 5 --n-shot 5 --out forecasts.csv  ·  "
    "taskscape forecast model glyphs --train train.parquet --calibration val-tasks.parquet "
    "--accuracy val-accuracies.csv --tasks new-tasks.parquet"
)
_SHOWN = 10
_COLUMNS = ("task", "expected", "low", "high", "outside", "classes")
_BECAUSE = "because of "


def _is_table(path: Path) -> bool:
    try:
        names = pq.read_schema(path).names
    except (pa.ArrowInvalid, OSError):
        return False
    rest = names[len(_COLUMNS) :]
    return tuple(names[: len(_COLUMNS)]) == _COLUMNS and all(n.startswith(_BECAUSE) for n in rest)


_KINDS = {
    ".csv": csv_with("a table of forecasts", *_COLUMNS, more=_BECAUSE),
    ".parquet": Kind("a table of forecasts", _is_table),
    ".json": FORECASTS_FILE,
}


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("forecast", epilog=EPILOG)(forecast)


def forecast(
    model: Annotated[Path, typer.Argument(help="A model written by `taskscape fit`.")],
    source: Source,
    train: Annotated[
        Path | None, typer.Option(help="The learner's training tasks, by `taskscape embed`.")
    ] = None,
    learner: Annotated[
        Path | None, typer.Option(help="A trained learner, as `taskscape run` stores it.")
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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")] = False,
) -> None:
    """Expected accuracy of a trained learner on new tasks, from their labelled samples alone.

    It is calibrated on tasks of classes that the learner has not seen: give the learner, which is
    then evaluated on them, or its accuracies on them.
    """
    _check_wishes(train, learner, accuracy, calibration, forecaster, out)
    if save is not None:
        check_output(save, arrays_of_kind("forecaster"), forecaster, out)
    if out is not None:
        check_output(out, _KINDS[out.suffix])
    fitted, pool = TaskThemes.load(model), load_pool(source)
    new = get_tasks(pool, tasks, split, n_tasks, n_way, n_shot, seed)
    if forecaster is not None:
        made = Forecaster.load(forecaster, fitted)
    else:
        assert train is not None
        if calibration is not None:
            known = load_tasks(calibration, pool)
        else:
            known = sample_tasks(
                pool, n_calibration, split=calibration_split,
                n_way=parse_range(n_way, "--n-way"), n_shot=parse_shots(n_shot, "--n-shot"),
                n_query=n_query, seed=seed + 1,
            )  # fmt: skip
        name, measured = _measured(fitted, known, learner, accuracy, episodes, seed)
        made = Forecaster(fitted, Embeddings.load(train), name, confidence=confidence)
        made.fit(known, measured)
    if save is not None:
        made.save(save)
    found = made.predict(new)
    if out is not None:
        _write(out, found, new)
    if as_json:
        typer.echo(json.dumps(_plain(found, new), ensure_ascii=False))
    else:
        _tell(made, found, new)
        for path in (out, save):
            if path is not None:
                typer.echo(f"written to {path}")


def _check_wishes(
    train: Path | None,
    learner: Path | None,
    accuracy: Path | None,
    calibration: Path | None,
    forecaster: Path | None,
    out: Path | None,
) -> None:
    if out is not None and out.suffix not in _KINDS:
        raise DataError(f"--out {out}: expected a name that ends in .csv, .parquet or .json.")
    if forecaster is not None:
        if learner is not None or accuracy is not None:
            raise DataError("--forecaster is calibrated already; leave --learner, --accuracy out.")
        return
    if train is None:
        raise DataError("--train is missing: the learner's training tasks, embedded.")
    if (learner is None) == (accuracy is None):
        raise DataError("give either --learner, to be evaluated, or --accuracy, already measured.")
    if accuracy is not None and calibration is None:
        raise DataError("--accuracy needs --calibration, the tasks that it was measured on.")


def _measured(
    model: TaskThemes,
    tasks: TaskSet,
    learner: Path | None,
    accuracy: Path | None,
    episodes: int,
    seed: int,
) -> tuple[str, Float[np.ndarray, "tasks episodes"]]:
    """The name of the learner, and its accuracy on each calibration task."""
    if accuracy is not None:
        return accuracy.stem, _read_accuracy(accuracy)
    assert learner is not None
    arrays, header = load_arrays(learner, "trained learner")
    trained = restore(arrays, header)
    seen = replace(tasks, pool=_as_learned(trained, tasks.pool, model, learner))
    found = evaluate(trained.learner, trained.state, seen, episodes=episodes, seed=seed)
    name = type(trained.learner).__name__
    return name, found.accuracy_by_episode.astype(np.float64)


def _as_learned(trained: Trained, pool: ClassPool, model: TaskThemes, path: Path) -> ClassPool:
    """The samples as the learner takes them: prepared at unit length, or as they are."""
    wanted = tuple(trained.network.sample_shape)
    if wanted == (model.preparation_.dims,):
        return prepared_pool(pool, model.preparation_, unit_length=True)
    if wanted == tuple(pool.sample_shape):
        return pool
    raise DataError(
        f"{path} takes samples of shape {wanted}; the data have {tuple(pool.sample_shape)}, and "
        f"({model.preparation_.dims},) as the model prepares them."
    )


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


def _plain(found: Forecasts, tasks: TaskSet) -> dict[str, Any]:
    values = found.to_dict()
    for i, row in enumerate(values["tasks"]):
        row["classes"] = list(tasks.names(i))
    return values


def _write(path: Path, found: Forecasts, tasks: TaskSet) -> None:
    told = _plain(found, tasks)
    with written_in_one_piece(path, _KINDS[path.suffix]) as made:
        if path.suffix == ".json":
            made.write_text(json.dumps(told, ensure_ascii=False) + "\n", encoding="utf-8")
            return
        flat = [
            {
                **{k: row[k] for k in _COLUMNS},
                **{f"{_BECAUSE}{what}": moved for what, moved in row["reasons"].items()},
            }
            for row in told["tasks"]
        ]
        if path.suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(flat), made, compression="zstd")
            return
        with made.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(flat[0]))
            writer.writeheader()
            writer.writerows({**row, "classes": write_classes(row["classes"])} for row in flat)


def _tell(made: Forecaster, found: Forecasts, tasks: TaskSet) -> None:
    calibration = made.calibration
    assert calibration is not None
    typer.echo(
        f"{found.learner}: expected accuracy over {len(found):,} tasks "
        f"{100 * found.expected.mean():.1f} % (from {100 * found.expected.min():.1f} to "
        f"{100 * found.expected.max():.1f}); calibrated on {calibration.n_tasks:,} tasks of "
        f"{calibration.n_classes} classes, mean error on classes left out "
        f"{100 * calibration.error:.1f} points."
    )
    typer.echo(f"{'task':>6}  expected  {100 * found.confidence:.0f} % interval  mainly because of")
    for i in range(min(_SHOWN, len(found))):
        what, moved = max(found.reasons.items(), key=lambda r: abs(r[1][i]))
        typer.echo(
            f"{i:>6}  {100 * found.expected[i]:7.1f}  {100 * found.low[i]:5.1f} to "
            f"{100 * found.high[i]:5.1f}  {what} ({100 * moved[i]:+.1f}): "
            f"{', '.join(tasks.names(i))}"
        )
    if len(found) > _SHOWN:
        typer.echo(f"  … and {len(found) - _SHOWN:,} more")
