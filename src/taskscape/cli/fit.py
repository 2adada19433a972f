"""``taskscape fit`` and ``embed``: learn what makes tasks alike, and embed tasks."""

import time
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from taskscape.cli import options as opt
from taskscape.cli.interrupts import resumable
from taskscape.errors import DataError
from taskscape.io.files import check_output

if TYPE_CHECKING:
    from taskscape.themes import CoClustering


@opt.command(
    "fit glyphs --split train --out model",
    "fit glyphs --split train --settings auto --out model",
    "fit glyphs --split train --paper --n-tasks 20000 --task-themes 4 --image-themes 8 --out model",
)
def fit(
    source: opt.Source,
    out: Annotated[Path, Option(help="The folder to write the model to.")],
    tasks: opt.TasksFile = None,
    split: opt.Split = None,
    n_tasks: opt.NTasks = 20_000,
    n_way: opt.NWay = "5",
    n_shot: opt.NShot = "16",
    seed: opt.Seed = 0,
    image_themes: Annotated[
        int | None, Option(help="Number of image-themes; default: 256, with --paper 8.")
    ] = None,
    prepare: Annotated[
        str, Option(help="auto, none, or some of edges=5,power=0.5,l2,centre,pca=32.")
    ] = "auto",
    settings: Annotated[
        str,
        Option(
            help="default, or auto: look for better ones for up to a minute, by how well tasks of "
            "held-out groups find their own."
        ),
    ] = "default",
    paper: Annotated[
        bool,
        Option(
            "--paper",
            help="Instead: the paper's co-clustering, which all options below are for. Distances "
            "are then KL between posteriors over its task-themes.",
        ),
    ] = False,
    task_themes: Annotated[int, Option(help="Number of task-themes, L.")] = 4,
    delta: Annotated[float, Option(help="Concentration of the task mixture, δ.")] = 0.5,
    covariance: Annotated[str, Option(help="full, diag or tied.")] = "full",
    method: Annotated[str, Option(help="online, or batch for full passes.")] = "online",
    update: Annotated[str, Option(help="statistics, or paper for its literal rule.")] = (
        "statistics"
    ),
    max_tasks: Annotated[int | None, Option(help="Stop after this many tasks.")] = None,
    max_passes: Annotated[int, Option(help="Most passes over the tasks.")] = 10,
    restarts: Annotated[int, Option(help="Fits from different starts.")] = 1,
    ensemble: Annotated[
        int, Option(help="Fits to keep, the best of at least as many restarts.")
    ] = 1,
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
    """Learn what makes tasks alike, from their classes, and write the model.

    A model that is in OUT is replaced; anything else there is left as it is. With --paper, Ctrl-C
    and SIGTERM save a checkpoint; the same command with --resume goes on from it to the same
    result.
    """
    from taskscape.arguments import check_choice
    from taskscape.cli.display import print_themes, say_time
    from taskscape.io.arrays import arrays_of_kind
    from taskscape.pools import load_pool
    from taskscape.similarity import choose_settings
    from taskscape.themes.estimator import TaskThemes
    from taskscape.themes.prepare import parse_prepare
    from taskscape.themes.task_model import MODEL

    began, asked = time.monotonic(), locals()
    if not out.name:
        raise DataError(
            f"--out {out} is a folder that is there already; name one to be made, such as model."
        )
    if tasks is not None:
        sizes = {"split": split, "n_tasks": n_tasks, "n_way": n_way, "n_shot": n_shot}
        opt.refuse_given(fit, "--tasks", **sizes)
    steps: Any = parse_prepare(prepare, "--prepare ")
    check_choice(settings, "--settings", ("default", "auto"))
    if paper:
        opt.refuse_given(fit, "--paper", settings=settings)
        model = TaskThemes.paper(
            task_themes, image_themes or 8, delta=delta, prepare=steps, max_tasks=max_tasks,
            covariance=covariance, method=method, update=update,
            max_passes=max_passes, n_restarts=restarts, ensemble=ensemble, random_state=seed,
        )  # fmt: skip
        _fit_paper(model, asked)
    else:
        names = list(signature(fit).parameters)
        for name in names[names.index("paper") + 1 : names.index("as_json")]:
            if asked[name] != signature(fit).parameters[name].default:
                raise DataError(f"--{name.replace('_', '-')} is for --paper; leave it out.")
        check_output(out, arrays_of_kind(MODEL))
        themes = TaskThemes(image_themes or 256, prepare=steps, random_state=seed)
        pool = load_pool(source)
        drawn = opt.get_tasks(pool, tasks, split, n_tasks, n_way, n_shot, seed)
        if settings == "auto":
            way = min(5, int(drawn.n_way.min()))
            themes = choose_settings(drawn, themes, n_way=way, seed=seed).model
        themes.fit(drawn).save(out)
        print_themes(themes, pool, out, as_json)
    say_time(began, quiet=as_json)


def _fit_paper(model: "CoClustering", asked: Mapping[str, Any]) -> None:
    """Fit the paper's model as the options of the command ask, and write it."""
    from taskscape.cli.display import FitDisplay, print_fit
    from taskscape.distributed.mesh import first_process, join_processes
    from taskscape.io.arrays import CHECKPOINT, arrays_of_kind
    from taskscape.pools import load_pool
    from taskscape.progress import heard_by
    from taskscape.themes.loop import check_no_checkpoint
    from taskscape.themes.task_model import MODEL, HealthWarning

    out, resume, as_json = asked["out"], asked["resume"], asked["as_json"]
    processes = [asked[name] for name in ("coordinator", "processes", "process")]
    distributed = asked["distributed"] or processes != [None, None, None]
    if distributed:
        join_processes(*processes)
    speaks = first_process()
    config = model._config()
    saved = asked["checkpoint"] or out.with_name(f"{out.name}.checkpoint")
    check_output(out, arrays_of_kind(MODEL), saved)
    if resume:
        check_output(saved, CHECKPOINT)
    else:
        check_no_checkpoint(saved)
    logged = asked["tensorboard"] if speaks else None
    display = FitDisplay(model, logged, quiet=as_json or not speaks)
    sizes = [asked[name] for name in ("tasks", "split", "n_tasks", "n_way", "n_shot", "seed")]
    drawn = opt.get_tasks(load_pool(asked["source"]), *sizes)
    display.judged_on = model._source(drawn, None, config)[2]
    only_one = nullcontext() if speaks else heard_by(lambda what, done, total: None)
    with resumable(saved, speaks), display, only_one, warnings.catch_warnings():
        warnings.simplefilter("ignore", HealthWarning)  # the summary says it
        model.fit(
            drawn, callback=display, checkpoint=saved, checkpoint_every=asked["checkpoint_every"],
            resume=resume, distributed=distributed,
        )  # fmt: skip
    if speaks:
        model.save(out)
        saved.unlink(missing_ok=True)
        print_fit(model, drawn.pool.name, out, as_json)


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
    """Write the posterior of each task, with its classes and how well the model explains it.

    OUT ending in .parquet is a file of its own; a name without an ending is a catalogue, a folder
    that each call adds to. A catalogue is written in files of 262,144 tasks; interrupted, the
    same command goes on with those that are missing; repeated, it adds nothing.
    """
    from taskscape.cli.display import say_time
    from taskscape.distributed.engine import use_engine
    from taskscape.embeddings import CATALOGUE, EMBEDDINGS
    from taskscape.pools import load_pool
    from taskscape.themes.into_catalogue import embed_into
    from taskscape.themes.task_model import TaskModel

    began = time.monotonic()
    one_file = out.suffix == ".parquet"
    if tasks is not None:
        sizes = {"split": split, "n_tasks": n_tasks, "n_way": n_way, "n_shot": n_shot}
        opt.refuse_given(embed, "--tasks", seed=seed, **sizes)
    if one_file:
        opt.refuse_given(embed, f"--out {out}, a single file", engine=engine)
    if out.suffix and not one_file and not out.is_dir():
        raise DataError(
            f"--out {out}: expected a name that ends in .parquet, for a file, or one without an "
            "ending, for a catalogue (a folder)."
        )
    check_output(out, EMBEDDINGS if one_file else CATALOGUE, tasks)
    fitted = TaskModel.load(model)
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
