"""What the system refuses, and what Python warns of, in one line that a user can read."""

import errno
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import typer

__all__ = ["fail", "in_words", "plain_warnings", "prepare_terminal"]

_REMEDIES = {
    errno.ENOSPC: "Free some space, or choose another place.",
    errno.EDQUOT: "Free some space, or choose another place.",
    errno.EFBIG: "Choose another place.",
    errno.EROFS: "Choose another place.",
    errno.EACCES: "Choose another place, or have its permissions changed.",
    errno.EPERM: "Choose another place, or have its permissions changed.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.ELOOP: "Mend the links, or choose another place.",
    errno.EISDIR: "Give a file.",
    errno.ENOTDIR: "Give a place below a folder.",
    errno.EMFILE: "Close other programs, or raise the limit of open files.",
}
_NO_ROOM = "failed to map segment"
"""What the system says where a library does not fit into the memory."""
_NO_BACKEND = "Unable to initialize backend"
_NO_HOME = "Could not determine home directory"


def in_words(error: BaseException) -> str | None:
    """What went wrong and what to do, in one line; None for what must not happen."""
    text = " ".join(str(error).split())
    if isinstance(error, OSError):
        return _of_the_system(error, text)
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and _NO_ROOM in text):
        return "there is not enough memory for this. Ask for fewer tasks, samples or themes."
    if isinstance(error, UnicodeEncodeError):
        return (
            f"{error.object[:80]!a} has characters that {error.encoding} cannot write. Rename "
            "the file or folder, or the class."
        )
    if isinstance(error, RuntimeError) and text.startswith(_NO_BACKEND):
        return f"{text}. JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')!r} asks for it."
    if isinstance(error, RuntimeError) and text.startswith((_NO_HOME, "Symlink loop")):
        return f"{text.rstrip('.')}. Write the whole path out."
    return None


def _of_the_system(error: OSError, text: str) -> str:
    what = error.strerror or text or type(error).__name__
    if error.errno == errno.ENOENT and not _has_folder():
        return "the folder that you are in is gone. Change to another one."
    named = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    remedy = _REMEDIES.get(error.errno or 0, "")
    return f"{named}{what[:1].lower()}{what[1:].rstrip('.')}. {remedy}".rstrip()


def _has_folder() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


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

    with suppress(OSError):  # nowhere to say it
        Console(stderr=True, soft_wrap=True).print("[bold red]error:[/]", end=" ")
        typer.echo(message, err=True)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # it is full: what is left for it goes nowhere, and Python says no more
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if (mesh := sys.modules.get("taskscape.distributed.mesh")) is not None:
        mesh.leave_at_once_if_joined(1)
    sys.exit(1)
