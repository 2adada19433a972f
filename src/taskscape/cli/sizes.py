"""``taskscape sizes``: how many themes?"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from taskscape.errors import DataError
from taskscape.files import PICTURE, check_output, json_with, written_in_one_piece

if TYPE_CHECKING:
    from taskscape.studies.targets import SizeGain

__all__ = ["register"]

_JSON = json_with("a search for sizes", "n_held_out", "points", "best", "smallest")


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        "sizes",
        epilog="Example:  taskscape sizes glyphs --split train --image-themes 4,8,16 "
        "--task-themes 2,4,8 --out sizes  ·  taskscape sizes glyphs --image-themes 16,32 "
        "--task-themes 8 --targets --out by-gain",
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
    from taskscape.studies.targets import gains_by_size
    from taskscape.themes.estimator import TaskThemes
    from taskscape.themes.size_search import GridPoint, search_sizes

    Ks = parse_numbers(image_themes, "--image-themes")
    Ls = parse_numbers(task_themes, "--task-themes")
    check_output(out / "sizes.json", _JSON)
    check_output(out / "sizes.png", PICTURE)
    pool = load_pool(source)
    if targets and pool.groups is None:
        raise DataError(
            f"--targets takes each group of the data as a target once; {pool!r} has no groups. "
            "Leave it out, or give the classes groups."
        )
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
    _write(search.to_dict(), out)
    search.plot(out / "sizes.png")
    typer.echo(f"{search.summary()} Written to {out}.")
    if targets:
        gains = gains_by_size(pool, [(K, L) for K in Ks for L in Ls])
        _write(search.to_dict() | {"gains": [asdict(g) for g in gains]}, out)
        typer.echo(f"\n{_table(gains)}")


def _write(values: dict[str, Any], out: Path) -> None:
    with written_in_one_piece(out / "sizes.json", _JSON) as file:
        file.write_text(json.dumps(values, indent=2) + "\n")


def _table(gains: "list[SizeGain]") -> str:
    """Gains by size, the best first."""
    lines = ["image-themes  task-themes  points over random choice  worst target"]
    for g in sorted(gains, key=lambda g: -g.gain.value):
        lines.append(
            f"{g.image_themes:12d}  {g.task_themes:11d}  {g.gain.in_points():>25}  "
            f"{100 * g.worst:+12.1f}"
        )
    return "\n".join(
        [*lines, f"ProtoNet, 100 tasks chosen for each of {gains[0].n_targets} groups."]
    )
