"""``taskscape fit``, ``sizes``, ``embed`` and ``score``: learn task-themes, put tasks through."""

import json
import time
import warnings
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

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
    parse_numbers,
)
from taskscape.errors import DataError
from taskscape.files import PICTURE, check_output, json_with, written_in_one_piece

__all__ = ["register"]

_SIZES = json_with("a search for sizes", "n_held_out", "points", "best", "smallest")
EPILOG = (
    "Example:  taskscape fit glyphs --split train --n-tasks 20000 --n-way 5-10 --n-shot 16 "
    "--out model"
)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("fit", epilog=EPILOG)(fit)
    app.command(
        "sizes",
        epilog="Example:  taskscape sizes glyphs --split train --image-themes 4,8,16 "
        "--task-themes 2,4,8 --out sizes  ·  taskscape sizes glyphs --image-themes 16,32 "
        "--task-themes 8 --targets --out by-gain",
    )(sizes)
    app.command(
        "embed",
        epilog="Example:  taskscape embed model glyphs --split test --n-way 5 --out test.parquet",
    )(embed)
    app.command(
        "score", epilog="Example:  taskscape score model glyphs --split val --n-tasks 2000"
    )(score)


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
    from taskscape.cli.work.data import get_tasks
    from taskscape.cli.work.display import FitDisplay, print_fit, say_time
    from taskscape.mesh import first_process, join_processes
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


def sizes(
    source: Source,
    out: Annotated[Path, typer.Option(help="Folder for sizes.json and sizes.png.")],
    tasks: TasksFile = None,
    split: Split = None,
    n_tasks: NTasks = 5000,
    n_way: NWay = "5-10",
    n_shot: NShot = "16",
    seed: Seed = 0,
    image_themes: Annotated[str, typer.Option(help="Numbers of image-themes, K.")] = "4,8,16",
    task_themes: Annotated[str, typer.Option(help="Numbers of task-themes, L.")] = "2,4,8",
    max_passes: Annotated[int, typer.Option(help="Most passes over the tasks.")] = 5,
    targets: Annotated[
        bool,
        typer.Option(
            "--targets",
            help="Also say what choosing tasks by each size gains: every group of the training "
            "classes is a target once (minutes a size).",
        ),
    ] = False,
    engine: Engine = "here",
) -> None:
    """Compare numbers of themes by the bound of tasks held out; writes a table and a plot.

    Held out are classes; with fewer than 30 classes, tasks of the same classes. Beside the bound:
    how many tasks are found again by distance, and with --targets what choosing tasks gains.
    """
    from taskscape.cli.work.data import get_tasks
    from taskscape.engine import use_engine
    from taskscape.pools import load_pool
    from taskscape.studies.targets import check_own_targets, gains_by_size, size_gains_table
    from taskscape.themes.estimator import TaskThemes
    from taskscape.themes.size_search import GridPoint, search_sizes

    Ks = parse_numbers(image_themes, "--image-themes")
    Ls = parse_numbers(task_themes, "--task-themes")
    check_output(out / "sizes.json", _SIZES)
    check_output(out / "sizes.png", PICTURE)
    pool = load_pool(source)
    if targets and pool.groups is None:
        raise DataError(
            f"--targets takes each group of the data as a target once; {pool!r} has no groups. "
            "Leave it out, or give the classes groups."
        )
    if targets:
        check_own_targets(pool)
    drawn = get_tasks(pool, tasks, split, n_tasks, n_way, n_shot, seed)

    def show(point: GridPoint) -> None:
        typer.echo(
            f"K={point.image_themes} L={point.task_themes}: {point.elbo:.4f} nats per sample "
            f"({point.seconds:.0f} s)",
            err=True,
        )

    model = TaskThemes(random_state=seed, max_passes=max_passes)
    with use_engine(engine):
        search = search_sizes(drawn, Ks, Ls, model=model, callback=show)
    _write_sizes(search.to_dict(), out)
    search.plot(out / "sizes.png")
    typer.echo(f"{search.summary()} Written to {out}.")
    if targets:
        gains = gains_by_size(pool, [(K, L) for K in Ks for L in Ls])
        _write_sizes(search.to_dict() | {"gains": [asdict(g) for g in gains]}, out)
        typer.echo(f"\n{size_gains_table(gains)}")


def _write_sizes(values: dict[str, Any], out: Path) -> None:
    with written_in_one_piece(out / "sizes.json", _SIZES) as file:
        file.write_text(json.dumps(values, indent=2) + "\n")


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
    engine: Engine = "here",
) -> None:
    """Write the Dirichlet posterior λ of each task, with its classes and its bound.

    OUT ending in .parquet is a file of its own; a name without an ending is a catalogue, a folder
    that each call adds to. A catalogue is written in files of 262,144 tasks; interrupted, the
    same command goes on with those that are missing.
    """
    from taskscape.cli.work.data import get_tasks
    from taskscape.cli.work.display import say_time
    from taskscape.embeddings import CATALOGUE, EMBEDDINGS
    from taskscape.engine import use_engine
    from taskscape.pools import load_pool
    from taskscape.tasks import stream_tasks
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
        stream = get_tasks(*wish, draw=stream_tasks)
        with use_engine(engine):
            typer.echo(f"{len(stream):,} tasks embedded: {embed_into(out, fitted, stream)!r}")
    say_time(began)


def score(
    model: Model,
    source: Source,
    tasks: TasksFile = None,
    split: Split = None,
    n_tasks: NTasks = 1000,
    n_way: NWay = "5-10",
    n_shot: NShot = "16",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Print how well the model explains tasks, in nats per sample (higher is better)."""
    from taskscape.cli.work.data import get_tasks
    from taskscape.pools import load_pool
    from taskscape.themes.estimator import TaskThemes

    fitted = TaskThemes.load(model)
    drawn = get_tasks(load_pool(source), tasks, split, n_tasks, n_way, n_shot, seed)
    value = fitted.score(drawn)
    if as_json:
        typer.echo(json.dumps({"tasks": len(drawn), "nats_per_sample": value}))
    else:
        typer.echo(f"{value:.4f} nats per sample over {len(drawn):,} tasks")
