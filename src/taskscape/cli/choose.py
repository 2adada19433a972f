"""``taskscape choose``: how many themes?"""

import json
from pathlib import Path
from typing import Annotated

import typer

from taskscape.cli.options import NShot, NTasks, NWay, Seed, Source, Split, TasksFile, get_tasks
from taskscape.errors import DataError
from taskscape.files import PICTURE, check_output, json_with, written_in_one_piece
from taskscape.pools import load_pool
from taskscape.themes.size_search import GridPoint, choose_themes

_JSON = json_with("a choice of themes", "n_held_out", "points", "best", "smallest")


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        "choose",
        epilog="Example:  taskscape choose glyphs --split train --image-themes 4,8,16 "
        "--task-themes 2,4,8 --out choice",
    )(choose)


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise DataError(
            f"{option} {text!r}: use numbers joined by commas, such as 4,8,16."
        ) from None


def choose(
    source: Source,
    out: Annotated[Path, typer.Option(help="Folder for choice.json and choice.png.")],
    tasks: TasksFile = None,
    split: Split = None,
    n_tasks: NTasks = 5000,
    n_way: NWay = "5-10",
    n_shot: NShot = "16",
    seed: Seed = 0,
    image_themes: Annotated[str, typer.Option(help="Numbers of image-themes, K.")] = "4,8,16",
    task_themes: Annotated[str, typer.Option(help="Numbers of task-themes, L.")] = "2,4,8",
    max_passes: Annotated[int, typer.Option(help="Most passes over the tasks.")] = 5,
) -> None:
    """Compare numbers of themes by the bound of tasks held out; writes a table and a plot.

    Held out are classes; with fewer than 30 classes, tasks of the same classes.
    """
    Ks, Ls = _numbers(image_themes, "--image-themes"), _numbers(task_themes, "--task-themes")
    check_output(out / "choice.json", _JSON)
    check_output(out / "choice.png", PICTURE)
    drawn = get_tasks(load_pool(source), tasks, split, n_tasks, n_way, n_shot, seed)

    def told(point: GridPoint) -> None:
        typer.echo(
            f"K={point.image_themes} L={point.task_themes}: {point.elbo:.4f} nats per sample "
            f"({point.seconds:.0f} s)",
            err=True,
        )

    choice = choose_themes(drawn, Ks, Ls, callback=told, random_state=seed, max_passes=max_passes)
    with written_in_one_piece(out / "choice.json", _JSON) as made:
        made.write_text(json.dumps(choice.to_json(), indent=2) + "\n")
    choice.plot(out / "choice.png")
    typer.echo(choice.table())
    best, small = choice.best, choice.smallest
    typer.echo(
        f"best: K={best.image_themes}, L={best.task_themes}; smallest within two standard errors: "
        f"K={small.image_themes}, L={small.task_themes}. Written to {out}."
    )
