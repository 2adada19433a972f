"""``taskscape forecast``: how well will a trained learner do on new tasks?"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from taskscape.cli import options as opt
from taskscape.errors import DataError
from taskscape.io.files import atomic_write

if TYPE_CHECKING:
    import taskscape
    from taskscape.forecast import Forecaster, Forecasts
    from taskscape.themes import TaskModel


_SHOWN = 10
_COLUMNS = ("task", "classes", "expected", "low", "high", "outside")
_ACCURACIES = "expected a column accuracy, or accuracy/1, accuracy/2, …, and a row for each task"


@opt.command(
    "forecast out/fit/model glyphs --split test --n-shot 1 "
    "--forecaster out/forecast/forecaster-protonet --out forecasts.csv",
    "forecast model glyphs --train train.parquet --calibration val-tasks.parquet "
    "--accuracy val-accuracies.csv --tasks new-tasks.parquet",
)
def forecast(
    model: opt.Model,
    source: opt.Source,
    train: Annotated[Path | None, Option(help="What it was trained on, embedded.")] = None,
    trained: Annotated[
        Path | None, Option(help="A trained learner, by `taskscape run` or `Trained.save`.")
    ] = None,
    accuracy: Annotated[
        Path | None, Option(help="Instead: its accuracy on each calibration task, CSV or Parquet.")
    ] = None,
    calibration: Annotated[Path | None, Option(help="Calibration tasks, as a file.")] = None,
    calibration_split: Annotated[
        str, Option(help="Or draw them from this split, which the learner has not seen.")
    ] = "val",
    n_calibration: Annotated[int, Option(help="How many calibration tasks to draw.")] = 1000,
    n_query: opt.NQuery = 15,
    episodes: Annotated[int, Option(help="Evaluations of each calibration task.")] = 10,
    forecaster: Annotated[
        Path | None, Option(help="Instead of all that: a forecaster written by --save.")
    ] = None,
    tasks: opt.TasksFile = None,
    split: opt.Split = None,
    n_tasks: opt.NTasks = 1000,
    n_way: opt.NWay = "5",
    n_shot: opt.NShot = "5",
    seed: opt.Seed = 0,
    confidence: Annotated[float, Option(help="What the intervals should hold.")] = 0.9,
    save: Annotated[Path | None, Option(help="Keep the forecaster in this folder.")] = None,
    out: Annotated[Path | None, Option(help="Write a CSV with a row for every task.")] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Expected accuracy of a trained learner on new tasks, from their labelled samples alone.

    It is calibrated on tasks of classes that the learner has not seen: give the learner, which is
    then evaluated on them, or its accuracies on them.
    """
    from taskscape.embeddings import Embeddings
    from taskscape.forecast import Forecaster
    from taskscape.forecast.result import BECAUSE
    from taskscape.io.arrays import arrays_of_kind
    from taskscape.io.tables import table_with, write_csv
    from taskscape.pools import load_pool
    from taskscape.tasks.class_lists import write_classes
    from taskscape.themes.task_model import TaskModel

    table = table_with("a table of forecasts", *_COLUMNS, more=BECAUSE)
    opt.check_out(out, table)
    opt.refuse_given(forecast, tasks and "--tasks", split=split, n_tasks=n_tasks)
    opt.refuse_given(
        forecast, calibration and "--calibration", n_query=n_query, n_calibration=n_calibration,
        calibration_split=calibration_split,
    )  # fmt: skip
    for given, beside in ((calibration, "--calibration"), (forecaster, "--forecaster")):
        both = tasks and given and f"--tasks and {beside}"
        opt.refuse_given(forecast, both, n_way=n_way, n_shot=n_shot)
        opt.refuse_given(forecast, trained is None and both, seed=seed)
    beside = "--accuracy, already measured"
    opt.refuse_given(forecast, accuracy and beside, episodes=episodes)
    if forecaster is not None:
        opt.refuse_given(
            forecast, "--forecaster, which is calibrated already", train=train, trained=trained,
            accuracy=accuracy, calibration=calibration, calibration_split=calibration_split,
            n_calibration=n_calibration, n_query=n_query, episodes=episodes, confidence=confidence,
        )  # fmt: skip
    elif train is None:
        raise DataError("--train is missing: the learner's training tasks, embedded.")
    elif (trained is None) == (accuracy is None):
        raise DataError("give either --trained, to be evaluated, or --accuracy, already measured.")
    elif accuracy is not None and calibration is None:
        raise DataError("--accuracy needs --calibration, the tasks that it was measured on.")
    opt.check_out(save, arrays_of_kind("forecaster"), forecaster, out)
    fitted, pool = TaskModel.load(model), load_pool(source)
    new = opt.get_tasks(pool, tasks, split, n_tasks, n_way, n_shot, seed)
    if forecaster is not None:
        ready = Forecaster.load(forecaster, fitted)
    else:
        assert train is not None
        known = opt.get_tasks(
            pool, calibration, calibration_split, n_calibration, n_way, n_shot, seed + 1, n_query
        )
        name, measured = _measured(fitted, known, trained, accuracy, episodes, seed)
        ready = Forecaster(fitted, Embeddings.load(train), name, confidence=confidence)
        ready.fit(known, measured)
    if save is not None:
        ready.save(save)
    forecasts = ready.predict(new)
    names = [list(new.names(i)) for i in range(len(new))]
    plain = {**forecasts.to_dict(), "classes": names}
    if out is not None:
        rows: dict[str, Any] = {"task": range(len(new)), "classes": [*map(write_classes, names)]}
        with atomic_write(out, table) as file:
            write_csv(file, rows | forecasts.columns())
    opt.print_result(as_json, plain, _words(ready, forecasts, names), out, save)


def _measured(
    model: "TaskModel", tasks: "taskscape.TaskSet", path: Path | None,
    accuracy: Path | None, episodes: int, seed: int,
) -> tuple[str, Any]:  # fmt: skip
    """The name of the learner, and its accuracy on each calibration task, by episode."""
    import numpy as np

    from taskscape.meta import Trained, evaluate
    from taskscape.themes.prepare import prepared_pool

    if accuracy is not None:
        return accuracy.stem, _read_accuracy(accuracy)
    assert path is not None
    trained, pool = Trained.load(path), tasks.pool
    shape, prepared = tuple(trained.network.sample_shape), (model.preparation_.dims,)
    if shape == prepared:
        pool = prepared_pool(pool, model.preparation_, unit_length=True)
    elif shape != tuple(pool.sample_shape):
        raise DataError(
            f"{path} takes samples of shape {shape}; the data have {tuple(pool.sample_shape)}, and "
            f"{prepared} as the model prepares them. Give the model that it was trained with."
        )
    seen = replace(tasks, pool=pool)
    scores = evaluate(trained.learner, trained.state, seen, episodes=episodes, seed=seed)
    return type(trained.learner).__name__, scores.accuracy_by_episode.astype(np.float64)


def _read_accuracy(path: Path) -> Any:
    """Columns accuracy, or accuracy/1, accuracy/2, …: a row for each calibration task, in order."""
    import numpy as np

    from taskscape.io.tables import read_csv, read_parquet

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


def _words(ready: "Forecaster", forecasts: "Forecasts", names: list[list[str]]) -> str:
    """The forecasts in words, and for the first tasks the main reason."""
    output = ready.calibration is not None and ready.calibration.beats_mean
    because = "  mainly because of" if output else ""
    lines = [forecasts.summary(), ready.summary()]
    lines.append(f"{'task':>6}  expected  {100 * forecasts.confidence:.0f} % interval{because}")
    for i, classes in enumerate(names[:_SHOWN]):
        reason = ""
        if output:
            what, moved = max(forecasts.reasons.items(), key=lambda r: abs(r[1][i]))
            reason = f"{what} ({100 * moved[i]:+z.1f}): "
        lines.append(
            f"{i:>6}  {100 * forecasts.expected[i]:7.1f}  {100 * forecasts.low[i]:5.1f} to "
            f"{100 * forecasts.high[i]:5.1f}  {reason}{', '.join(classes)}"
        )
    if len(names) > _SHOWN:
        lines.append(f"  … and {len(names) - _SHOWN:,} more")
    return "\n".join(lines)
