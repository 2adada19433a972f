"""``taskscape train`` and ``taskscape evaluate``: meta-learners on tasks of a pool."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from taskscape.cli.interrupts import resumable
from taskscape.cli.options import (
    AsJson,
    LearnerName,
    NQuery,
    NShot,
    NTasks,
    NWay,
    Seed,
    Source,
    Split,
    TasksFile,
    checkpoint_beside,
)
from taskscape.errors import DataError
from taskscape.files import check_output
from taskscape.meta.learners import find_learner, label_of

__all__ = ["register"]

Preparation = Annotated[
    Path | None,
    typer.Option("--model", help="Prepare samples as this model of `taskscape fit` does."),
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
    split: Split = None,
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
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from OUT.checkpoint, if it is there.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a meta-learner on tasks and keep it, for `taskscape evaluate` and `forecast`.

    Tasks are drawn from the training classes, where the data have splits. Feature vectors go
    through a network of one hidden layer, pictures through four convolutions (slow without a GPU);
    settings start from those that suit features of unit length, which --model gives. The state is
    kept in OUT.checkpoint until the training is finished.
    """
    import numpy as np

    from taskscape.cli.work.data import get_tasks
    from taskscape.cli.work.learners import read_settings, split_if_there
    from taskscape.meta import TRAINED, TrainConfig, TrainingCheckpoint, learner_and_training
    from taskscape.meta import train as train_learner
    from taskscape.pools import load_pool
    from taskscape.recipes import network_for, prepared_pool
    from taskscape.storage import forget_checkpoint
    from taskscape.themes.estimator import TaskThemes
    from taskscape.themes.loop import check_no_checkpoint

    settings = {**find_learner(learner).settings, **read_settings(learner, changes or [])}
    scale = float(settings.pop("scale", 1.0))
    for fixed in {"updates", "batch_size"} & set(settings):
        raise DataError(f"--set {fixed}: use --epochs and --batch-size instead.")
    chosen, training = learner_and_training(learner, settings, "--set ")
    saved = checkpoint_beside(out)
    check_output(out, TRAINED, saved)
    if not resume:
        check_no_checkpoint(saved, "training")
    pool = load_pool(source)
    samples = (
        pool
        if model is None
        else prepared_pool(pool, TaskThemes.load(model).preparation_, unit_length=True)
    )
    drawn = get_tasks(
        pool, tasks, split or split_if_there(pool, "train"), n_tasks, n_way, n_shot, seed, n_query
    )
    check = None
    if n_validation > 0 and "val" in (pool.splits or ()):
        held_out = get_tasks(pool, None, "val", n_validation, n_way, n_shot, seed + 1, n_query)
        check = replace(held_out, pool=samples)
    shown, network = replace(drawn, pool=samples), network_for(samples, {"scale": scale})
    how = TrainConfig.one_pass(len(drawn), batch_size, epochs, **training)
    heads = max(part.max_way for part in (shown, check) if part is not None)
    checkpoint = TrainingCheckpoint(
        saved, chosen, network, shown, how, seed=seed, n_way=heads, validation=check
    )
    with resumable(saved):
        trained = train_learner(
            chosen, network, shown, how, seed=seed, n_way=heads, validation=check,
            checkpoint=checkpoint.write, resume=checkpoint.read() if resume else None,
        )  # fmt: skip
    trained.save(out)
    forget_checkpoint(saved)
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
    split: Split = None,
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
    from taskscape.cli.work.data import get_tasks
    from taskscape.cli.work.learners import (
        ACCURACIES,
        interval_of,
        rows_of,
        samples_for,
        split_if_there,
    )
    from taskscape.meta import Trained
    from taskscape.meta import evaluate as evaluate_learner
    from taskscape.pools import load_pool
    from taskscape.themes.estimator import TaskThemes

    ACCURACIES.check(out)
    learned, pool = Trained.load(trained), load_pool(source)
    fitted = None if model is None else TaskThemes.load(model)
    asked = get_tasks(
        pool, tasks, split or split_if_there(pool, "test"), n_tasks, n_way, n_shot, seed, n_query
    )
    seen = replace(asked, pool=samples_for(learned, pool, fitted, trained))
    scores = evaluate_learner(learned.learner, learned.state, seen, episodes=episodes, seed=seed)
    label = label_of(str(learned.to_dict()["learner"]))
    interval, why_not = interval_of(scores, asked)
    rows = rows_of(scores, asked)
    whole = {"learner": label, **scores.to_dict(), "interval": interval, "tasks": rows}
    if out is not None:
        ACCURACIES.write(out, rows, whole)
    if as_json:
        typer.echo(json.dumps(whole))
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
