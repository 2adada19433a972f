"""``taskscape fit`` and ``embed``: learn task-themes from tasks, and embed tasks."""

import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from taskscape.cli import options as opt
from taskscape.cli.interrupts import resumable
from taskscape.errors import DataError
from taskscape.files import check_output


@opt.command("fit glyphs --split train --n-tasks 20000 --n-way 5-10 --n-shot 16 --out model")
def fit(
    source: opt.Source,
    out: Annotated[Path, Option(help="The folder to write the model to.")],
    tasks: opt.TasksFile = None,
    split: opt.Split = None,
    n_tasks: opt.NTasks = 20_000,
    n_way: opt.NWay = "5-10",
    n_shot: opt.NShot = "16",
    seed: opt.Seed = 0,
    task_themes: Annotated[int, Option(help="Number of task-themes, L.")] = 4,
    image_themes: Annotated[int, Option(help="Number of image-themes, K.")] = 8,
    delta: Annotated[float, Option(help="Concentration of the task mixture, δ.")] = 0.5,
    covariance: Annotated[str, Option(help="full, diag or tied.")] = "full",
    prepare: Annotated[
        str, Option(help="auto, none, or some of power=0.5,l2,centre,pca=32.")
    ] = "auto",
    method: Annotated[str, Option(help="online, or batch for full passes.")] = "online",
    update: Annotated[str, Option(help="statistics, or paper for its literal rule.")] = (
        "statistics"
    ),
    max_tasks: Annotated[int | None, Option(help="Stop after this many tasks.")] = None,
    max_passes: Annotated[int, Option(help="Most passes over the tasks.")] = 10,
    restarts: Annotated[int, Option(help="Fits from different starts.")] = 1,
    ensemble: Annotated[int, Option(help="How many of the best fits to keep.")] = 1,
    checkpoint: Annotated[
        Path | None, Option(help="File to save the state to; default: OUT.checkpoint.")
    ] = None,
    checkpoint_every: Annotated[int, Option(help="Steps between two checkpoints.")] = 50,
    resume: Annotated[bool, Option("--resume", help="Go on from the checkpoint.")] = False,
    distributed: Annotated[
        bool,
        Option(
            "--distributed",
            help="Share the tasks among all devices, and processes of Slurm, MPI or Kubernetes.",
        ),
    ] = False,
    coordinator: Annotated[
        str | None, Option(help="HOST:PORT of process 0, where nothing else says it.")
    ] = None,
    processes: Annotated[int | None, Option(help="How many processes there are.")] = None,
    process: Annotated[int | None, Option(help="Which of them this is, from 0.")] = None,
    tensorboard: Annotated[
        Path | None, Option(help="Also log to this folder for TensorBoard.")
    ] = None,
    as_json: opt.AsJson = False,
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
    if not out.name:
        raise DataError(
            f"--out {out} is a folder that is there already; name one to be made, such as model."
        )
    saved = checkpoint or out.with_name(f"{out.name}.checkpoint")
    check_output(out, arrays_of_kind("task-theme model"), saved)
    if resume:
        check_output(saved, CHECKPOINT)
    else:
        check_no_checkpoint(saved)
    display = FitDisplay(model, tensorboard if speaks else None, quiet=as_json or not speaks)
    pool = load_pool(source)
    drawn = opt.get_tasks(pool, tasks, split, n_tasks, n_way, n_shot, seed)
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


@opt.command("embed model glyphs --split test --n-way 5 --out test.parquet")
def embed(
    model: opt.Model,
    source: opt.Source,
    out: Annotated[Path, Option(help="A Parquet file, or a catalogue folder to add to.")],
    tasks: opt.TasksFile = None,
    split: opt.Split = None,
    n_tasks: opt.NTasks = 5000,
    n_way: opt.NWay = "5",
    n_shot: opt.NShot = "16",
    seed: opt.Seed = 0,
    engine: opt.Engine = "local",
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
    one_file = out.suffix == ".parquet"
    if out.suffix and not one_file and not out.is_dir():
        raise DataError(
            f"--out {out}: expected a name that ends in .parquet, for a file, or one without an "
            "ending, for a catalogue (a folder)."
        )
    check_output(out, EMBEDDINGS if one_file else CATALOGUE, tasks)
    fitted = TaskThemes.load(model)
    drawn = opt.get_tasks(
        load_pool(source), tasks, split, n_tasks, n_way, n_shot, seed, stream=not one_file
    )
    if one_file:
        fitted.embed(drawn).save(out)
        typer.echo(f"{len(drawn):,} tasks embedded: {out}")
    else:
        with use_engine(engine):
            typer.echo(f"{len(drawn):,} tasks embedded: {embed_into(out, fitted, drawn)!r}")
    say_time(began)
