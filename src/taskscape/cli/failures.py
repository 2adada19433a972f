"""What the system refuses, and what Python warns of, in one line that a user can read."""

import errno
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import typer

from taskscape.io.files import DISK_FULL

_NO_ROOM = "Free some space, or choose another place."
_NOT_ALLOWED = "Choose another place, or change its permissions."
_REMEDIES = dict.fromkeys(DISK_FULL, _NO_ROOM) | {
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.EROFS: _NOT_ALLOWED,
}
_NO_BACKEND = "Unable to initialize backend"


def as_typed(message: str) -> str:
    """The message with what to type, where it names an option of load_pool that no command has."""
    named = re.search(r"\b(\w+_(?:columns?|key))=", message)
    if named is None:
        return message
    typed = f"`taskscape data save DATA --option {named[1]}=NAME --out mine`"
    return f"{message} On the command line: {typed}, then use mine as the data."


def in_words(error: BaseException) -> str | None:
    """What went wrong and what to do, in one line; None for what must not happen."""
    text = " ".join(str(error).split())
    if isinstance(error, OSError):
        what = error.strerror or text or type(error).__name__
        named = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        remedy = _REMEDIES.get(error.errno or 0, "")
        return f"{named}{what[:1].lower()}{what[1:].rstrip('.')}. {remedy}".rstrip()
    if isinstance(error, MemoryError):
        return "there is not enough memory for this. Ask for fewer tasks, samples or themes."
    if isinstance(error, RuntimeError) and text.startswith(_NO_BACKEND):
        return f"{text}. JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')!r} asks for it."
    return None


def prepare_terminal() -> None:
    """Show what a terminal cannot show as a question mark; draw without a screen."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started the command
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    os.environ.pop("MPLBACKEND", None)  # pictures go into files; a screen plays no part


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print what users are warned of without the place in the program that it comes from."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], filename: str, lineno: int,
            file: TextIO | None = None, line: str | None = None,
        ) -> None:  # fmt: skip
            if issubclass(category, UserWarning):
                typer.echo(f"warning: {message}", err=True)
            else:
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield


def fail(message: str) -> None:
    """Print an error and end the process."""
    from rich.console import Console

    Console(stderr=True, soft_wrap=True).print("[bold red]error:[/]", end=" ")
    typer.echo(message, err=True)
    try:
        sys.stdout.flush()
    except OSError:  # a closed pipe or a full disk: Python would complain of it once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if (mesh := sys.modules.get("taskscape.distributed.mesh")) is not None:
        mesh.leave_at_once_if_joined(1)
    sys.exit(1)
