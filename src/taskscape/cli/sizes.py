"""``taskscape sizes``: how many themes?"""

import json
from pathlib import Path
from typing import Annotated

import typer

from taskscape.cli.options import (
    Engine,
    NShot,
    NTasks,
    NWay,
    Seed,
    Source,
    Split,
    TasksFile,
    parse_numbers,
)
from taskscape.files import PICTURE, check_output, json_with, written_in_one_piece

__all__ = ["register"]

_JSON = json_with("a search for sizes", "n_held_out", "points", "best", "smallest")


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        "sizes",
        epilog="Example:  taskscape sizes glyphs --split train --image-themes 4,8,16 "
        "--task-themes 2,4,8 --out sizes",
    )(sizes)


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
    engine: Engine = "here",
) -> None:
    """Compare numbers of themes by the bound of tasks held out; writes a table and a plot.

    Held out are classes; with fewer than 30 classes, tasks of the same classes.
    """
    from taskscape.cli.work.data import get_tasks
    from taskscape.engine import use_engine
    from taskscape.pools import load_pool
    from taskscape.themes.estimator import TaskThemes
    from taskscape.themes.size_search import GridPoint, search_sizes

    Ks = parse_numbers(image_themes, "--image-themes")
    Ls = parse_numbers(task_themes, "--task-themes")
    check_output(out / "sizes.json", _JSON)
    check_output(out / "sizes.png", PICTURE)
    drawn = get_tasks(load_pool(source), tasks, split, n_tasks, n_way, n_shot, seed)

    def show(point: GridPoint) -> None:
        typer.echo(
            f"K={point.image_themes} L={point.task_themes}: {point.elbo:.4f} nats per sample "
            f"({point.seconds:.0f} s)",
            err=True,
        )

    model = TaskThemes(random_state=seed, max_passes=max_passes)
    with use_engine(engine):
        search = search_sizes(drawn, Ks, Ls, model=model, callback=show)
    with written_in_one_piece(out / "sizes.json", _JSON) as file:
        file.write_text(json.dumps(search.to_dict(), indent=2) + "\n")
    search.plot(out / "sizes.png")
    typer.echo(f"{search.summary()} Written to {out}.")
