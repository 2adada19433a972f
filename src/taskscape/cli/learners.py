"""``taskscape train`` and ``taskscape evaluate``: meta-learners on tasks of a pool."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from taskscape.cli.options import (
    AsJson,
    LearnerName,
    NQuery,
    NShot,
    NTasks,
    NWay,
    Seed,
    Source,
    TasksFile,
    get_tasks,
)
from taskscape.cli.tables import Tables
from taskscape.errors import DataError
from taskscape.files import check_output, json_with
from taskscape.meta import (
    TRAINED,
    Evaluation,
    TrainConfig,
    Trained,
    find_learner,
    label_of,
    learner_and_training,
)
from taskscape.meta import evaluate as evaluate_learner
from taskscape.meta import train as train_learner
from taskscape.pools import ClassPool, load_pool
from taskscape.statistics import class_interval
from taskscape.studies.recipes import network_for, prepared_pool
from taskscape.tasks import TaskSet
from taskscape.themes.estimator import TaskThemes

__all__ = ["register", "samples_for"]

_TABLES = Tables(
    "accuracies",
    ("task", "classes", "log_likelihood", "calibration_error"),
    json_with("accuracies", "learner", "accuracy", "interval", "tasks"),
    more="accuracy",
)
Preparation = Annotated[
    Path | None,
    typer.Option("--model", help="Prepare samples as this model of `taskscape fit` does."),
]
Classes = Annotated[
    str | None,
    typer.Option("--split", help="Else draw from: train, val, test, train+val."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(
        "train",
        epilog="Example:  taskscape train glyphs --model model --learner maml --out maml  ·  "
        "taskscape train features.npz --learner protonet --set scale=8 --out protonet",
    )(train)
    app.command(
        "evaluate",
        epilog="Example:  taskscape evaluate maml glyphs --model model --out accuracy.csv",
    )(evaluate)


def train(
    source: Source,
    out: Annotated[Path, typer.Option(help="The folder to write the trained learner to.")],
    learner: LearnerName = "protonet",
    model: Preparation = None,
    tasks: TasksFile = None,
    split: Classes = None,
    n_tasks: NTasks = 10_000,
    n_way: NWay = "5",
    n_shot: NShot = "5",
    n_query: NQuery = 15,
    n_validation: Annotated[
        int,
        typer.Option(help="Tasks of val classes that choose the best state; 0: none."),
    ] = 200,
    epochs: Annotated[int, typer.Option(help="How often each task is shown.")] = 1,
    batch_size: Annotated[int, typer.Option(help="Tasks of one update.")] = 4,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the learner or its training: name=value."),
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Train a meta-learner on tasks and keep it, for `taskscape evaluate` and `forecast`.

    Tasks are drawn from the training classes, where the data have splits. Feature vectors go
    through a network of one hidden layer, pictures through four convolutions (slow without a GPU);
    settings start from those that suit features of unit length, which --model gives.
    """
    settings = {**find_learner(learner).settings, **_settings(learner, changes or [])}
    scale = float(settings.pop("scale", 1.0))
    for fixed in {"updates", "batch_size"} & set(settings):
        raise DataError(f"--set {fixed}: use --epochs and --batch-size instead.")
    chosen, training = learner_and_training(learner, settings, "--set ")
    check_output(out, TRAINED)
    pool = load_pool(source)
    samples = (
        pool
        if model is None
        else prepared_pool(pool, TaskThemes.load(model).preparation_, unit_length=True)
    )
    drawn = get_tasks(
        pool, tasks, split or _of(pool, "train"), n_tasks, n_way, n_shot, seed, n_query
    )
    check = None
    if n_validation > 0 and "val" in (pool.splits or ()):
        held_out = get_tasks(pool, None, "val", n_validation, n_way, n_shot, seed + 1, n_query)
        check = replace(held_out, pool=samples)
    trained = train_learner(
        chosen,
        network_for(samples, {"scale": scale}),
        replace(drawn, pool=samples),
        TrainConfig.one_pass(len(drawn), batch_size, epochs, **training),
        seed=seed,
        validation=check,
    )
    trained.save(out)
    if as_json:
        scores = trained.scores[np.isfinite(trained.scores)].tolist()
        about = {"out": str(out), **trained.to_dict(), "validation_accuracy": scores}
        typer.echo(json.dumps(about, indent=2))
        return
    typer.echo(trained.summary())
    typer.echo(f"learner: {out}")


def evaluate(
    trained: Annotated[Path, typer.Argument(help="A learner, by `taskscape train` or `run`.")],
    source: Source,
    model: Preparation = None,
    tasks: TasksFile = None,
    split: Classes = None,
    n_tasks: NTasks = 1000,
    n_way: NWay = "5",
    n_shot: NShot = "5",
    n_query: NQuery = 15,
    episodes: Annotated[
        int, typer.Option(help="Evaluations of each task, with other samples each time.")
    ] = 1,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Write a .csv, .parquet or .json file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Accuracy of a trained learner on tasks, with its interval over classes.

    Tasks are drawn from the test classes, where the data have splits.
    """
    _TABLES.check(out)
    learned, pool = Trained.load(trained), load_pool(source)
    fitted = None if model is None else TaskThemes.load(model)
    asked = get_tasks(
        pool, tasks, split or _of(pool, "test"), n_tasks, n_way, n_shot, seed, n_query
    )
    seen = replace(asked, pool=samples_for(learned, pool, fitted, trained))
    scores = evaluate_learner(learned.learner, learned.state, seen, episodes=episodes, seed=seed)
    label = label_of(str(learned.to_dict()["learner"]))
    interval, why_not = _interval(scores, asked)
    rows = _rows(scores, asked)
    whole = {"learner": label, **scores.to_dict(), "interval": interval, "tasks": rows}
    if out is not None:
        _TABLES.write(out, rows, whole)
    if as_json:
        typer.echo(json.dumps(whole, ensure_ascii=False))
        return
    typer.echo(f"{label}: {scores.summary()}")
    if interval is None:
        typer.echo(f"no interval of the accuracy: {why_not}")
    else:
        low, high = interval
        typer.echo(
            f"95 % interval of the accuracy, over classes: {100 * low:.2f} to {100 * high:.2f} %"
        )
    if out is not None:
        typer.echo(f"written to {out}")


def samples_for(
    trained: Trained, pool: ClassPool, model: TaskThemes | None, path: Path
) -> ClassPool:
    """The samples as the learner takes them: prepared by the model, or as they are."""
    shape, dims = tuple(trained.network.sample_shape), None
    if model is not None:
        dims = model.preparation_.dims
        if shape == (dims,):
            return prepared_pool(pool, model.preparation_, unit_length=True)
    if shape == tuple(pool.sample_shape):
        return pool
    prepared = "" if dims is None else f", and ({dims},) as the model prepares them"
    remedy = " Give the --model that it was trained with." if dims is None else ""
    raise DataError(
        f"{path} takes samples of shape {shape}; the data have {tuple(pool.sample_shape)}"
        f"{prepared}.{remedy}"
    )


def _of(pool: ClassPool, split: str) -> str | None:
    return split if split in (pool.splits or ()) else None


def _settings(learner: str, changes: list[str]) -> dict[str, Any]:
    """Read ``name=value``, each as the kind of value that the setting usually has."""
    usual = {f.name: f.default for f in fields(TrainConfig)}
    usual |= {"scale": 1.0, **find_learner(learner).defaults}
    read: dict[str, Any] = {}
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals or name not in usual:
            raise DataError(f"--set {change}: use name=value, with one of {', '.join(usual)}.")
        try:
            value = text if isinstance(usual[name], str) else json.loads(text)
        except ValueError:
            raise DataError(f"--set {change}: {text!r} is not a number, true or false.") from None
        read[name] = value
    return read


def _interval(scores: Evaluation, tasks: TaskSet) -> tuple[tuple[float, float] | None, str]:
    """The interval of the mean accuracy, or why there is none."""
    try:
        around = class_interval(scores.accuracy, tasks.classes)
        return (around.low, around.high), ""
    except DataError as error:
        return None, str(error)


def _rows(scores: Evaluation, tasks: TaskSet) -> list[dict[str, Any]]:
    """A row for each task; one column of accuracy for each episode, which `forecast` can read."""
    n = scores.accuracy_by_episode.shape[1]
    names = ["accuracy"] if n == 1 else [f"accuracy/{e + 1}" for e in range(n)]
    return [
        {
            "task": i,
            "classes": list(tasks.names(i)),
            "log_likelihood": float(scores.log_likelihood[i]),
            "calibration_error": float(scores.calibration_error[i]),
            **dict(zip(names, scores.accuracy_by_episode[i].tolist(), strict=True)),
        }
        for i in range(len(tasks))
    ]
