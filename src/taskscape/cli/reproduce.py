"""``taskscape reproduce``: the paper's experiments, in pieces that can stop and go on."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from taskscape.errors import DataError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        "reproduce",
        epilog="Examples:  taskscape reproduce fig3 --scale 0.02 --out reproduced  ·  "
        "taskscape reproduce fig2-mini-imagenet --minutes 30  ·  "
        "taskscape reproduce fig4 --only draw",
    )(reproduce)


def reproduce(
    figure: Annotated[str, typer.Argument(help="fig2-mini-imagenet, fig2-omniglot, fig3 or fig4.")],
    out: Annotated[
        Path, typer.Option(help="The folder of results; what is finished in it is not run again.")
    ] = Path("reproduced"),
    learners: Annotated[
        str | None, typer.Option(help="Some of the learners, with commas; default: all.")
    ] = None,
    versions: Annotated[
        str, typer.Option(help="The model to the letter of the paper, ours, or both.")
    ] = "literal,ours",
    only: Annotated[
        str | None, typer.Option(help="prepare, train or draw; default: one after another.")
    ] = None,
    scale: Annotated[
        float, typer.Option(help="Shrink every count, for a machine without a GPU; 1: full size.")
    ] = 1.0,
    minutes: Annotated[
        float | None, typer.Option(help="Start nothing new after this long; run again to go on.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same results.")] = 0,
) -> None:
    """Run one of the paper's experiments on the real data under TASKSCAPE_DATA.

    The paper to the letter and our version side by side, with the published numbers in the table.
    At full size this is hours on a CPU; every finished cell is a line in results.jsonl.
    """
    from taskscape.studies.paper import STAGES
    from taskscape.studies.paper import reproduce as run

    if minutes is not None and minutes <= 0:
        raise DataError(f"--minutes {minutes:g} must be positive.")
    finished = run(
        figure,
        out,
        learners=None if learners is None else _words(learners),
        versions=_words(versions),
        stages=STAGES if only is None else _words(only),
        scale=scale,
        minutes=minutes,
        seed=seed,
        command="taskscape " + shlex.join(sys.argv[1:]),
    )
    table = out / f"{figure}.md"
    if only is None or "draw" in only:
        typer.echo(table.read_text(encoding="utf-8"))
        typer.echo(f"written to {table}, {figure}.png and results.jsonl beside it")
    if not finished:
        typer.echo("the time was up; the same command goes on where this one stopped.")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
