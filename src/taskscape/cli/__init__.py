"""The command line: one thin command for each stage."""

import importlib
import sys
from typing import Annotated

import typer

from taskscape import __version__
from taskscape.cli.failures import as_typed, fail, in_words, plain_warnings, prepare_terminal
from taskscape.cli.interrupts import heed_interrupts
from taskscape.cli.options import app
from taskscape.errors import TaskscapeError

__all__ = ["app", "main"]

_MODULES = ("run", "data", "fit", "compare", "select", "advise", "forecast", "doctor")


def _print_version(asked: bool | None) -> None:
    if asked:
        typer.echo(f"taskscape {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = None,
) -> None:
    """How similar are classification tasks? Embed, compare and select few-shot tasks."""


for _module in _MODULES:
    importlib.import_module(f"taskscape.cli.{_module}")  # adds its commands to the app


def main() -> None:
    """Run the command line; errors that a user can resolve are printed without a traceback."""
    prepare_terminal()
    try:
        with heed_interrupts(), plain_warnings():
            try:
                app()
            finally:
                sys.stdout.flush()
    except TaskscapeError as error:
        fail(as_typed(str(error)))
    except Exception as error:
        words = in_words(error)
        if words is None:
            raise
        fail(words)
