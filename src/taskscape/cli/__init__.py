"""The command line: one thin command for each stage, and errors and warnings in one line each."""

import errno
import importlib
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from taskscape import __version__
from taskscape.cli.interrupts import heed_interrupts
from taskscape.cli.options import app
from taskscape.errors import TaskscapeError
from taskscape.io.files import DISK_FULL

__all__ = ["app", "main"]

_MODULES = ("run", "data", "fit", "compare", "select", "advise", "forecast", "doctor")
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
_REMEDIES = dict.fromkeys(DISK_FULL, "Free some space, or choose another place.")
_REMEDIES |= dict.fromkeys(_NOT_ALLOWED, "Choose another place, or change its permissions.")


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
    _prepare_terminal()
    try:
        with heed_interrupts(), plain_warnings():
            try:
                app()
            finally:
                sys.stdout.flush()
    except Exception as error:
        words = in_words(error)
        if words is None:
            raise
        _fail(words)


def _as_typed(message: str) -> str:
    """The message with what to type, where it names an option of load_pool that no command has."""
    named = re.search(r"\b(\w+_(?:columns?|key))=", message)
    if named is None:
        return message
    typed = f"`taskscape data save DATA --option {named[1]}=NAME --out mine`"
    return f"{message} On the command line: {typed}, then use mine as the data."


def in_words(error: BaseException) -> str | None:
    """What went wrong and what to do, in one line; None for what must not happen."""
    text = " ".join(str(error).split())
    if isinstance(error, TaskscapeError):
        return _as_typed(str(error))
    if isinstance(error, OSError):
        what = error.strerror or text or type(error).__name__
        named = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        remedy = _REMEDIES.get(error.errno or 0, "")
        return f"{named}{what[:1].lower()}{what[1:].rstrip('.')}. {remedy}".rstrip()
    if isinstance(error, MemoryError):
        return "there is not enough memory for this. Ask for fewer tasks, samples or themes."
    if isinstance(error, RuntimeError) and text.startswith("Unable to initialize backend"):
        return f"{text}. JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')!r} asks for it."
    return None


def _prepare_terminal() -> None:
    """Show what a terminal cannot show as a question mark; draw without a screen."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started the command
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    os.environ.pop("MPLBACKEND", None)  # pictures go into files; no screen is needed


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print what users are warned of without the place in the program that it comes from."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Any, category: type[Warning], *place: Any, **rest: Any) -> None:
            if issubclass(category, UserWarning):
                typer.echo(f"warning: {message}", err=True)
            else:
                usual(message, category, *place, **rest)

        warnings.showwarning = show
        yield


def _fail(message: str) -> None:
    """Print an error and end the process."""
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    typer.echo(message, err=True)
    try:
        sys.stdout.flush()
    except OSError:  # a closed pipe or a full disk: Python would complain of it once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if (mesh := sys.modules.get("taskscape.distributed.mesh")) is not None:
        mesh.leave_at_once_if_joined(1)
    sys.exit(1)
