"""Ctrl-C, SIGTERM (schedulers) and SIGHUP (a closed terminal) let a command save its state and end.

Python hears a signal between two of its own steps, so after the compiled computation that runs.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer

from taskscape.distributed.engine import wait_with

_SIGNALS = [signal.SIGINT, signal.SIGTERM]
if hasattr(signal, "SIGHUP"):
    _SIGNALS.append(signal.SIGHUP)
_INTERRUPTED = 128 + signal.SIGINT
_SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def heed_interrupts() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` on the first signal; a second Ctrl-C ends the process at once.

    Signals that something else handles, or that are ignored on purpose, stay as they are.
    """
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    usual = (signal.default_int_handler, signal.SIG_DFL)
    ours = {number: handler for number, handler in handlers.items() if handler in usual}
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if _is_importing(frame) or (number == signal.SIGINT and number in heard):
            _leave(128 + number)
        heard.append(number)
        if not wait_with(number):
            raise KeyboardInterrupt

    for number in ours:
        signal.signal(number, hear)
    code = _INTERRUPTED
    try:
        yield
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
        raise
    finally:
        if heard:  # the end of Python would wait for threads that still compute
            _leave(128 + heard[0] if code == _INTERRUPTED else code)
        for number, handler in ours.items():
            signal.signal(number, handler)


@contextmanager
def resumable(saved: Path, speaks: bool = True) -> Iterator[None]:
    """Where the block is interrupted, say how to resume the command, and end it."""
    try:
        yield
    except KeyboardInterrupt:
        kept = "no state was saved yet."
        if saved.exists():
            kept = f"the last state is in {saved}. Run the same command with --resume to continue."
        if speaks:
            typer.echo(f"\ninterrupted; {kept}", err=True)
        raise typer.Exit(_INTERRUPTED) from None


def _is_importing(frame: FrameType | None) -> bool:
    """Whether an import is under way: an exception in it can abort a compiled library.

    Commands import what they need before they begin, so there is nothing to save.
    """
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def _leave(code: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(_SHOW_CURSOR)  # a progress bar may have hidden it
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
