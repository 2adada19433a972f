"""For ``taskscape forecast``: measured accuracies, and forecasts as tables and words."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import typer
from jaxtyping import Float

from taskscape.cli.work.learners import samples_for
from taskscape.cli.work.tables import Tables
from taskscape.csv_tables import read_csv
from taskscape.errors import DataError
from taskscape.forecast import FORECASTS_FILE, Forecaster, Forecasts
from taskscape.meta import Trained, evaluate
from taskscape.storage import read_parquet
from taskscape.tasks import TaskSet
from taskscape.themes.estimator import TaskThemes

__all__ = [
    "FORECASTS",
    "measured_accuracies",
    "plain_forecasts",
    "print_forecasts",
    "write_forecasts",
]

_SHOWN = 10
_COLUMNS = ("task", "expected", "low", "high", "outside", "classes")
_ACCURACIES = "expected a column accuracy, or accuracy/1, accuracy/2, …, and a row for each task"
_BECAUSE = "because of "
FORECASTS = Tables("forecasts", _COLUMNS, FORECASTS_FILE, more=_BECAUSE)


def measured_accuracies(
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
    table = None if path.suffix == ".parquet" else read_csv(path, _ACCURACIES)
    columns: dict[str, Any] = read_parquet(path).to_pydict() if table is None else table.columns
    chosen = [c for c in columns if c == "accuracy" or c.startswith("accuracy/")]
    if not chosen:
        raise DataError(f"{path} has no column 'accuracy'; {_ACCURACIES}.")
    if table is not None:
        return np.stack([table.numbers(c) for c in chosen], axis=1)
    try:
        parts = [np.asarray(columns[c], dtype=np.float64) for c in chosen]
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} holds accuracies that are not numbers: {error}.") from error
    return np.concatenate([p.reshape(len(p), -1) for p in parts], axis=1)


def plain_forecasts(forecasts: Forecasts, tasks: TaskSet) -> dict[str, Any]:
    values = forecasts.to_dict()
    for i, row in enumerate(values["tasks"]):
        row["classes"] = list(tasks.names(i))
    return values


def write_forecasts(path: Path, forecasts: Forecasts, tasks: TaskSet) -> None:
    plain = plain_forecasts(forecasts, tasks)
    rows = [
        {
            **{k: row[k] for k in _COLUMNS},
            **{f"{_BECAUSE}{what}": moved for what, moved in row["reasons"].items()},
        }
        for row in plain["tasks"]
    ]
    FORECASTS.write(path, rows, plain)


def print_forecasts(ready: Forecaster, forecasts: Forecasts, tasks: TaskSet) -> None:
    calibration = ready.calibration
    assert calibration is not None
    typer.echo(forecasts.summary())
    typer.echo(ready.summary())
    because = "  mainly because of" if calibration.beats_mean else ""
    typer.echo(f"{'task':>6}  expected  {100 * forecasts.confidence:.0f} % interval{because}")
    for i in range(min(_SHOWN, len(forecasts))):
        reason = ""
        if calibration.beats_mean:
            what, moved = max(forecasts.reasons.items(), key=lambda r: abs(r[1][i]))
            reason = f"{what} ({100 * moved[i]:+z.1f}): "
        typer.echo(
            f"{i:>6}  {100 * forecasts.expected[i]:7.1f}  {100 * forecasts.low[i]:5.1f} to "
            f"{100 * forecasts.high[i]:5.1f}  {reason}{', '.join(tasks.names(i))}"
        )
    if len(forecasts) > _SHOWN:
        typer.echo(f"  … and {len(forecasts) - _SHOWN:,} more")
