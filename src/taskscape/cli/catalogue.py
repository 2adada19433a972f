"""``taskscape catalogue``: look at, check and compact a catalogue of embedded tasks."""

from pathlib import Path
from typing import Annotated

import typer

from taskscape.cli.options import Engine

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        "catalogue",
        epilog="Example:  taskscape catalogue train --compact --check",
    )(catalogue)


def catalogue(
    folder: Annotated[Path, typer.Argument(help="A catalogue, written by `taskscape embed`.")],
    check: Annotated[
        bool, typer.Option("--check", help="Read every file and compare it with its checksum.")
    ] = False,
    compact: Annotated[
        bool, typer.Option("--compact", help="Sort near tasks together, for faster search.")
    ] = False,
    shard_size: Annotated[int, typer.Option(help="For --compact: tasks of a file.")] = 1 << 20,
    engine: Engine = "here",
) -> None:
    """Say what a catalogue holds; compact it, or see that it is whole.

    --compact needs room on disk for two more copies of the tasks. Killed, it changes nothing.
    """
    from taskscape.embeddings import Catalogue
    from taskscape.engine import use_engine

    opened = Catalogue(folder)
    if compact:
        with use_engine(engine):
            opened = opened.compact(shard_size=shard_size)
    if check:
        opened.check()
    size = sum(part.stat().st_size for part in opened.parts())
    sorted_ones = sum(s.tasks for s in opened.shards if s.statistics and s.statistics.near)
    typer.echo(f"{opened!r}, {len(opened.parts()):,} files, {size / 1e6:,.1f} MB")
    share = f"{sorted_ones / len(opened):.0%} of its tasks are" if len(opened) else "nothing is"
    typer.echo(f"{share} sorted for search{'; all files are whole' if check else ''}.")
