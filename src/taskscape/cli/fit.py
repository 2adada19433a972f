"""``taskscape fit`` and ``embed``: learn what makes tasks alike, and embed tasks."""

import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from taskscape.cli import options as opt
from taskscape.cli.interrupts import resumable
from taskscape.errors import DataError
from taskscape.io.files import check_output
from taskscape.settings import assigned, changed, named, setting, settings_in

if TYPE_CHECKING:
    from taskscape.tasks import TaskSet
    from taskscape.themes import CoClustering


@dataclass(frozen=True)
class Search:
    """How the settings of the model are found."""

    choose_settings: bool = setting(
        False,
        "look for better ones for up to a minute, by how well tasks of held-out groups find their "
        "own",
    )


@dataclass(frozen=True)
class Work:
    """How a fit of the paper's co-clustering works."""

    checkpoint_every: int = setting(50, "steps between two checkpoints", at_least=1)
    distributed: bool = setting(
        False, "share the tasks among all devices, and processes of Slurm, MPI or Kubernetes"
    )
    coordinator: str = setting("", "HOST:PORT of process 0, where nothing else says it")
    processes: int | None = setting(None, "how many processes there are", at_least=1)
    process: int | None = setting(None, "which of them this is, from 0", at_least=0)


@opt.command(
    "fit glyphs --split train --out model",
    "fit glyphs --split train --set choose_settings=true --out model",
    "fit glyphs --split train --paper --n-tasks 20000 --set image_themes=16 --out model",
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
    paper: Annotated[
        bool, Option("--paper", help="Instead: the paper's co-clustering and its KL distance.")
    ] = False,
    set_values: opt.SetValues = None,
    resume: Annotated[bool, Option("--resume", help="With --paper: resume the fit.")] = False,
    as_json: opt.AsJson = False,
) -> None:
    """Learn what makes tasks alike, from their classes, and write the model.

    A model that is in OUT is replaced; anything else there is left as it is. With --paper, Ctrl-C
    and SIGTERM save a checkpoint; the same command with --resume resumes from it to the same
    result. --set takes the settings of the model, such as image_themes=64.
    """
    from taskscape.cli.display import print_themes, say_time
    from taskscape.io.arrays import arrays_of_kind
    from taskscape.pools import load_pool
    from taskscape.similarity import choose_settings
    from taskscape.themes.estimator import TaskThemes
    from taskscape.themes.prepare import parse_prepare
    from taskscape.themes.task_model import MODEL

    began = time.monotonic()
    if not out.name:
        raise DataError(
            f"--out {out} is a folder that is there already; name one to be made, such as model."
        )
    sizes = {"split": split, "n_tasks": n_tasks, "n_way": n_way, "n_shot": n_shot}
    opt.refuse_given(fit, tasks and "--tasks", **sizes)
    if resume and not paper:
        raise DataError("--resume is for --paper; leave it out.")
    values = assigned(named(set_values or ()))
    if "prepare" in values:
        values["prepare"] = parse_prepare(str(values["prepare"]), "prepare=")
    kind = Work if paper else Search
    ours = {name: values.pop(name) for name in settings_in(kind) if name in values}
    model: Any = TaskThemes.paper(random_state=seed) if paper else TaskThemes(random_state=seed)
    model = changed(model, values, also=settings_in(kind))
    how: Any = changed(kind(), ours)

    def draw() -> Any:
        return opt.get_tasks(load_pool(source), tasks, split, n_tasks, n_way, n_shot, seed)

    if paper:
        _fit_paper(model, how, draw, out, resume, as_json)
    else:
        check_output(out, arrays_of_kind(MODEL))
        model.check_settings()
        drawn = draw()
        if how.choose_settings:
            way = min(5, int(drawn.n_way.min()))
            model = choose_settings(drawn, model, n_way=way, seed=seed).model
        model.fit(drawn).save(out)
        print_themes(model, drawn.pool, out, as_json)
    say_time(began, quiet=as_json)


def _fit_paper(
    model: "CoClustering",
    how: Work,
    draw: Callable[[], "TaskSet"],
    out: Path,
    resume: bool,
    as_json: bool,
) -> None:
    """Fit the paper's model as the options of the command ask, and write it."""
    from taskscape.cli.display import fit_lines, print_fit
    from taskscape.distributed.mesh import first_process, join_processes
    from taskscape.io.arrays import CHECKPOINT, arrays_of_kind
    from taskscape.progress import reported_to
    from taskscape.themes.loop import check_no_checkpoint
    from taskscape.themes.task_model import MODEL, HealthWarning

    named = how.coordinator or None, how.processes, how.process
    distributed = how.distributed or named != (None, None, None)
    if distributed:
        join_processes(*named)
    speaks = first_process()
    model._config()  # wrong settings are said before the data are read
    saved = out.with_name(f"{out.name}.checkpoint")
    check_output(out, arrays_of_kind(MODEL))
    if resume:
        check_output(saved, CHECKPOINT)
    else:
        check_no_checkpoint(saved)
    drawn = draw()
    only_one = nullcontext() if speaks else reported_to(lambda what, done, total: None)
    with resumable(saved, speaks), only_one, warnings.catch_warnings():
        warnings.simplefilter("ignore", HealthWarning)  # the summary says it
        model.fit(
            drawn, callback=fit_lines(as_json or not speaks), checkpoint=saved,
            checkpoint_every=how.checkpoint_every, resume=resume, distributed=distributed,
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
    same command resumes with those that are missing; repeated, it adds nothing.
    """
    from taskscape.cli.display import say_time
    from taskscape.distributed.engine import use_engine
    from taskscape.embeddings import CATALOGUE, EMBEDDINGS
    from taskscape.pools import load_pool
    from taskscape.themes.task_model import TaskModel, embed_into

    began = time.monotonic()
    one_file = out.suffix == ".parquet"
    sizes = {"split": split, "n_tasks": n_tasks, "n_way": n_way, "n_shot": n_shot}
    opt.refuse_given(embed, tasks and "--tasks", seed=seed, **sizes)
    opt.refuse_given(embed, one_file and f"--out {out}, a single file", engine=engine)
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
