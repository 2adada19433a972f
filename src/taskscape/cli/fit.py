"""``taskscape fit`` and ``embed``: learn task-themes from tasks, and embed tasks."""

import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from taskscape.cli.interrupts import resumable
from taskscape.cli.options import (
    AsJson,
    Engine,
    Model,
    NShot,
    NTasks,
    NWay,
    Seed,
    Source,
    Split,
    TasksFile,
    checkpoint_beside,
    get_tasks,
)
from taskscape.errors import DataError
from taskscape.files import check_output

__all__ = ["register"]

EPILOG = (
    "Example:  taskscape fit glyphs --split train --n-tasks 20000 --n-way 5-10 --n-shot 16 "
    "--out model"
)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("fit", epilog=EPILOG)(fit)
    app.command(
        "embed",
        epilog="Example:  taskscape embed model glyphs --split test --n-way 5 --out test.parquet",
    )(embed)


def fit(
    source: Source,
    out: Annotated[Path, typer.Option(help="The folder to write the model to.")],
    tasks: TasksFile = None,
    split: Split = None,
    n_tasks: NTasks = 20_000,
    n_way: NWay = "5-10",
    n_shot: NShot = "16",
    seed: Seed = 0,
    task_themes: Annotated[int, typer.Option(help="Number of task-themes, L.")] = 4,
    image_themes: Annotated[int, typer.Option(help="Number of image-themes, K.")] = 8,
    delta: Annotated[float, typer.Option(help="Concentration of the task mixture, δ.")] = 0.5,
    covariance: Annotated[str, typer.Option(help="full, diag or tied.")] = "full",
    prepare: Annotated[
        str, typer.Option(help="auto, none, or some of power=0.5,l2,centre,pca=32.")
    ] = "auto",
    method: Annotated[str, typer.Option(help="online, or batch for full passes.")] = "online",
    update: Annotated[str, typer.Option(help="statistics, or paper for its literal rule.")] = (
        "statistics"
    ),
    max_tasks: Annotated[int | None, typer.Option(help="Stop after this many tasks.")] = None,
    max_passes: Annotated[int, typer.Option(help="Most passes over the tasks.")] = 10,
    restarts: Annotated[int, typer.Option(help="Fits from different starts.")] = 1,
    ensemble: Annotated[int, typer.Option(help="How many of the best fits to keep.")] = 1,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File to save the state to; default: OUT.checkpoint.")
    ] = None,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between two checkpoints.")] = 50,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed",
            help="Share the tasks among all devices, and processes of Slurm, MPI or Kubernetes.",
        ),
    ] = False,
    coordinator: Annotated[
        str | None, typer.Option(help="HOST:PORT of process 0, where nothing else says it.")
    ] = None,
    processes: Annotated[int | None, typer.Option(help="How many processes there are.")] = None,
    process: Annotated[int | None, typer.Option(help="Which of them this is, from 0.")] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Also log to this folder for TensorBoard.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Learn task-themes from tasks and write the model.

    Ctrl-C and SIGTERM save a checkpoint; the same command with --resume goes on from it to the same
    result. A model that is in OUT is replaced; anything else there is left as it is.
    """
    from taskscape.cli.display import FitDisplay, print_fit, say_time
    from taskscape.distributed.mesh import first_process, join_processes
    from taskscape.pools import load_pool
    from taskscape.progress import heard_by
    from taskscape.storage import CHECKPOINT, arrays_of_kind, forget_checkpoint
    from taskscape.themes.estimator import HealthWarning, TaskThemes
    from taskscape.themes.loop import check_no_checkpoint
    from taskscape.themes.prepare import parse_prepare

    began = time.monotonic()
    distributed = distributed or (coordinator, processes, process) != (None, None, None)
    if distributed:
        join_processes(coordinator, processes, process)
    speaks = first_process()
    model = TaskThemes(
        task_themes, image_themes, delta=delta, covariance=covariance,  # type: ignore[arg-type]
        prepare=parse_prepare(prepare, "--prepare "),  # type: ignore[arg-type]
        method=method, update=update,  # type: ignore[arg-type]
        max_tasks=max_tasks, max_passes=max_passes, n_restarts=restarts, ensemble=ensemble,
        random_state=seed,
    )  # fmt: skip
    config = model._config()
    saved = checkpoint or checkpoint_beside(out)
    check_output(out, arrays_of_kind("task-theme model"), saved)
    if resume:
        check_output(saved, CHECKPOINT)
    else:
        check_no_checkpoint(saved)
    display = FitDisplay(model, tensorboard if speaks else None, quiet=as_json or not speaks)
    pool = load_pool(source)
    drawn = get_tasks(pool, tasks, split, n_tasks, n_way, n_shot, seed)
    display.judged_on = model._source(drawn, None, config)[2]
    only_one = nullcontext() if speaks else heard_by(lambda what, done, total: None)
    with resumable(saved, speaks), display, only_one, warnings.catch_warnings():
        warnings.simplefilter("ignore", HealthWarning)  # the summary says it
        model.fit(
            drawn, callback=display, checkpoint=saved, checkpoint_every=checkpoint_every,
            resume=resume, distributed=distributed,
        )  # fmt: skip
    if not speaks:
        return
    model.save(out)
    forget_checkpoint(saved)
    print_fit(model, drawn.pool.name, out, as_json)
    say_time(began, quiet=as_json)


def embed(
    model: Model,
    source: Source,
    out: Annotated[Path, typer.Option(help="A Parquet file, or a catalogue folder to add to.")],
    tasks: TasksFile = None,
    split: Split = None,
    n_tasks: NTasks = 5000,
    n_way: NWay = "5",
    n_shot: NShot = "16",
    seed: Seed = 0,
    engine: Engine = "local",
) -> None:
    """Write the Dirichlet posterior λ of each task, with its classes and its bound.

    OUT ending in .parquet is a file of its own; a name without an ending is a catalogue, a folder
    that each call adds to. A catalogue is written in files of 262,144 tasks; interrupted, the
    same command goes on with those that are missing.
    """
    from taskscape.cli.display import say_time
    from taskscape.distributed.engine import use_engine
    from taskscape.embeddings import CATALOGUE, EMBEDDINGS
    from taskscape.pools import load_pool
    from taskscape.themes.estimator import TaskThemes
    from taskscape.themes.into_catalogue import embed_into

    began = time.monotonic()
    if out.suffix == ".parquet":
        check_output(out, EMBEDDINGS, tasks)
    elif out.suffix and not out.is_dir():
        raise DataError(
            f"--out {out}: expected a name that ends in .parquet, for a file, or one without an "
            "ending, for a catalogue (a folder)."
        )
    else:
        check_output(out, CATALOGUE, tasks)
    fitted = TaskThemes.load(model)
    pool = load_pool(source)
    wish = (pool, tasks, split, n_tasks, n_way, n_shot, seed)
    if out.suffix == ".parquet":
        drawn = get_tasks(*wish)
        fitted.embed(drawn).save(out)
        typer.echo(f"{len(drawn):,} tasks embedded: {out}")
    else:
        stream = get_tasks(*wish, stream=True)
        with use_engine(engine):
            typer.echo(f"{len(stream):,} tasks embedded: {embed_into(out, fitted, stream)!r}")
    say_time(began)
