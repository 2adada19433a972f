"""``taskscape tasks``: draw or enumerate tasks and write them to a manifest."""

from pathlib import Path
from typing import Annotated

import typer

from taskscape.cli.ranges import parse_range, parse_shots
from taskscape.errors import DataError
from taskscape.files import check_output
from taskscape.pools import load_pool
from taskscape.tasks import TASKS, TaskSet, enumerate_tasks, sample_tasks, save_tasks

_MOST_TO_WRITE = 50_000_000


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        "tasks",
        epilog="Example:  taskscape tasks glyphs --split train --n-tasks 20000 --n-way 5-10 "
        "--n-shot 16 --seed 0 --out train.parquet",
    )(tasks)


def tasks(
    source: Annotated[str, typer.Argument(help="A known name, or the path of your own data.")],
    out: Annotated[Path, typer.Option(help="The Parquet file to write.")],
    n_tasks: Annotated[int, typer.Option(help="How many tasks.")] = 1000,
    n_way: Annotated[str, typer.Option(help="Classes per task: 5, or a range 5-10.")] = "5",
    n_shot: Annotated[str, typer.Option(help="Samples per class: 5, 1-5, or all.")] = "5",
    n_query: Annotated[int, typer.Option(help="Further samples per class, as queries.")] = 0,
    split: Annotated[str | None, typer.Option(help="train, val, test, or train+val.")] = None,
    within_group: Annotated[
        bool, typer.Option("--within-group", help="All classes of a task from one group.")
    ] = False,
    unique: Annotated[
        bool, typer.Option("--unique", help="Each set of classes at most once.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Every combination of classes instead of a sample.")
    ] = False,
    seed: Annotated[int, typer.Option(help="The same seed gives the same tasks.")] = 0,
) -> None:
    """Draw tasks, or list all of them, and write a manifest that can be published and re-used."""
    way, shot = parse_range(n_way, "--n-way"), parse_shots(n_shot, "--n-shot")
    check_output(out, TASKS)
    pool = load_pool(source)
    if every:
        if not isinstance(way, int):
            raise DataError(f"--all lists tasks of one size; --n-way {n_way} is a range.")
        stream = enumerate_tasks(
            pool, n_way=way, n_shot=shot, n_query=n_query, split=split,
            within_group=within_group, seed=seed,
        )  # fmt: skip
        if len(stream) > _MOST_TO_WRITE:
            raise DataError(
                f"--all would write {len(stream):,} tasks; the most is {_MOST_TO_WRITE:,}. "
                "Leave --all out and give --n-tasks."
            )
        made: TaskSet = stream.collect()
    else:
        made = sample_tasks(
            pool, n_tasks, n_way=way, n_shot=shot, n_query=n_query, split=split,
            within_group=within_group, unique=unique, seed=seed,
        )  # fmt: skip
    save_tasks(made, out)
    typer.echo(f"{made!r}")
    typer.echo(f"written to {out}")
