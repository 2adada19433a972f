"""``taskscape diagram``: accuracy against distance, from a CSV of any origin."""

import json
from pathlib import Path
from typing import Annotated

import typer

from taskscape.diagram import DIAGRAM_FILE, correlation_diagram, read_diagram_csv
from taskscape.diagram.plot import FORMATS
from taskscape.errors import DataError
from taskscape.files import PICTURE, check_output

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        "diagram",
        epilog="Example:  taskscape diagram results.csv --out diagram.png --out diagram.json",
    )(diagram)


def diagram(
    table: Annotated[Path, typer.Argument(help="A CSV with a row for every test task.")],
    distance: Annotated[str, typer.Option(help="The column of distances.")] = "distance",
    accuracy: Annotated[
        list[str] | None,
        typer.Option(help="A column of accuracies; may be repeated. Default: all that is left."),
    ] = None,
    difficulty: Annotated[
        list[str] | None,
        typer.Option(help="A column of difficulties; default: those called difficulty…"),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="The column of classes: JSON lists of names, or ids.")
    ] = None,
    n_bins: Annotated[int, typer.Option(help="How many bins.")] = 10,
    bins: Annotated[str, typer.Option(help="paper: of equal width; quantile: equal counts.")] = (
        "paper"
    ),
    interval: Annotated[str, typer.Option(help="jackknife or bootstrap, over classes.")] = (
        "jackknife"
    ),
    seed: Annotated[int, typer.Option(help="The same seed gives the same intervals.")] = 0,
    title: Annotated[str | None, typer.Option(help="A title for the picture.")] = None,
    out: Annotated[
        list[Path] | None, typer.Option(help="Write .png, .svg, .pdf or .json; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")] = False,
) -> None:
    """Does distance to the training tasks explain accuracy? Numbers, and a picture."""
    for path in out or []:
        if path.suffix.lower() not in (*FORMATS, ".json"):
            raise DataError(f"--out {path}: expected .json, {', '.join(FORMATS)}.")
        check_output(path, DIAGRAM_FILE if path.suffix.lower() == ".json" else PICTURE)
    data = read_diagram_csv(
        table, distance=distance, accuracy=accuracy, difficulty=difficulty, classes=classes
    )
    made = correlation_diagram(
        data.distance,
        data.accuracy,
        classes=data.classes,
        difficulty=data.difficulty,
        n_bins=n_bins,
        bins=bins,
        interval=interval,
        seed=seed,
    )
    for path in out or []:
        if path.suffix.lower() == ".json":
            made.save(path)
        else:
            made.plot(path, title=title)
    if as_json:
        typer.echo(json.dumps(made.to_dict(), ensure_ascii=False))
        return
    typer.echo(made.summary())
    for path in out or []:
        typer.echo(f"written to {path}")
