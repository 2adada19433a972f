"""``taskscape embed`` and ``taskscape score``: tasks through a fitted model."""

import json
from pathlib import Path
from typing import Annotated

import typer

from taskscape.cli.wishes import NShot, NTasks, NWay, Seed, Source, Split, TasksFile, get_tasks
from taskscape.embeddings import CATALOGUE, EMBEDDINGS, Catalogue
from taskscape.errors import DataError
from taskscape.files import check_output
from taskscape.pools import load_pool
from taskscape.themes.estimator import TaskThemes

Model = Annotated[Path, typer.Argument(help="A model written by `taskscape fit`.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(
        "embed",
        epilog="Example:  taskscape embed model glyphs --split test --n-way 5 --out test.parquet",
    )(embed)
    app.command(
        "score", epilog="Example:  taskscape score model glyphs --split val --n-tasks 2000"
    )(score)


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
) -> None:
    """Write the Dirichlet posterior λ of each task, with its classes and its bound.

    OUT ending in .parquet is a file of its own; a name without an ending is a catalogue, a folder
    that each call adds to.
    """
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
    drawn = get_tasks(pool, tasks, split, n_tasks, n_way, n_shot, seed)
    embedded = fitted.embed(drawn)
    if out.suffix == ".parquet":
        embedded.save(out)
        typer.echo(f"{len(drawn):,} tasks embedded: {out}")
    else:
        typer.echo(f"{len(drawn):,} tasks embedded: {Catalogue.append(out, embedded)!r}")


def score(
    model: Model,
    source: Source,
    tasks: TasksFile = None,
    split: Split = None,
    n_tasks: NTasks = 1000,
    n_way: NWay = "5-10",
    n_shot: NShot = "16",
    seed: Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print how well the model explains tasks, in nats per sample (higher is better)."""
    fitted = TaskThemes.load(model)
    drawn = get_tasks(load_pool(source), tasks, split, n_tasks, n_way, n_shot, seed)
    value = fitted.score(drawn)
    if as_json:
        typer.echo(json.dumps({"tasks": len(drawn), "nats_per_sample": value}))
    else:
        typer.echo(f"{value:.4f} nats per sample over {len(drawn):,} tasks")
