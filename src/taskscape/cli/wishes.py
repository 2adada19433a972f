"""Which tasks a command works on: a manifest, or tasks drawn on the spot."""

from pathlib import Path
from typing import Annotated

import typer

from taskscape.cli.ranges import parse_range, parse_shots
from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet, load_tasks, sample_tasks

__all__ = ["NQuery", "NShot", "NTasks", "NWay", "Seed", "Source", "Split", "TasksFile", "get_tasks"]

Source = Annotated[str, typer.Argument(help="A known name, or the path of your own data.")]
TasksFile = Annotated[
    Path | None, typer.Option("--tasks", help="Tasks written by `taskscape tasks`.")
]
Split = Annotated[str | None, typer.Option(help="Else draw from: train, val, test, train+val.")]
NTasks = Annotated[int, typer.Option(help="How many tasks to draw.")]
NWay = Annotated[str, typer.Option(help="Classes per task: 5, or a range 5-10.")]
NShot = Annotated[str, typer.Option(help="Samples per class: 16, 1-5, or all.")]
NQuery = Annotated[int, typer.Option(help="Further samples per class, as queries.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.")]


def get_tasks(
    pool: ClassPool,
    tasks: Path | None,
    split: str | None,
    n_tasks: int,
    n_way: str,
    n_shot: str,
    seed: int,
) -> TaskSet:
    """The tasks of a manifest, or drawn by the other wishes."""
    if tasks is not None:
        return load_tasks(tasks, pool)
    return sample_tasks(
        pool,
        n_tasks,
        split=split,
        n_way=parse_range(n_way, "--n-way"),
        n_shot=parse_shots(n_shot, "--n-shot"),
        seed=seed,
    )
