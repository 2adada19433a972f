"""Ctrl-C ends a command at once, also in the middle of a long compiled computation.

So do SIGTERM, by which schedulers take a machine back, and SIGHUP, when a terminal is closed.
Python hears a signal between two of its own steps, so not while compiled code runs; and at the end
of the process, that code would be waited for. Commands get a moment to keep what they have; then
the process ends.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer

from taskscape.distributed.interrupts import wait_with

__all__ = ["heed_interrupts", "resumable"]

_MOMENTS = {signal.SIGINT: 1.5, signal.SIGTERM: 20.0}
"""Seconds that Python has to hear of a signal: a user waits, a scheduler usually gives 30."""
if hasattr(signal, "SIGHUP"):
    _MOMENTS[signal.SIGHUP] = 20.0
_INTERRUPTED = 128 + signal.SIGINT
_SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def heed_interrupts() -> Iterator[None]:
    """End the process on an interrupt, whatever it is doing.

    Where Python hears in time, ``KeyboardInterrupt`` is raised as always, and what handles it may
    take as long as it needs. Where something else listens to interrupts, or nothing does on
    purpose, all stays as it is.
    """
    handlers = {number: signal.getsignal(number) for number in _MOMENTS}
    ours = {number: handler for number, handler in handlers.items() if handler == _usual(number)}
    if not ours:
        yield
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if _is_importing(frame):
            _leave(128 + number)
        heard.append(number)
        if not wait_with(number):
            raise KeyboardInterrupt

    for number in ours:
        signal.signal(number, hear)
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    watch = threading.Thread(target=_watch, args=(receiver, heard, set(ours)), daemon=True)
    watch.start()
    code = _INTERRUPTED
    try:
        yield
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
        raise
    finally:
        if heard:  # the end of Python would wait for what still computes
            _leave(128 + heard[0] if code == _INTERRUPTED else code)
        signal.set_wakeup_fd(before)
        for number, handler in ours.items():
            signal.signal(number, handler)
        sender.close()
        watch.join()
        receiver.close()


@contextmanager
def resumable(saved: Path, speaks: bool = True) -> Iterator[None]:
    """Where the block is interrupted, say how the command goes on, and end it."""
    try:
        yield
    except KeyboardInterrupt:
        kept = "no state was saved yet."
        if saved.exists():
            kept = f"the last state is in {saved}. Run the same command with --resume to go on."
        if speaks:
            typer.echo(f"\ninterrupted; {kept}", err=True)
        raise typer.Exit(_INTERRUPTED) from None


def _usual(number: int) -> object:
    """What handles a signal where nobody has said otherwise."""
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL


def _is_importing(frame: FrameType | None) -> bool:
    """Whether an import is under way: the exception could show a traceback of a library, or be lost
    in it. Commands import what they need before they begin, so there is nothing to be kept.
    """
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _watch(receiver: socket.socket, heard: list[int], numbers: set[int]) -> None:
    """The interpreter writes each signal's number to the socket, whatever Python is doing."""
    asked = 0
    while sent := receiver.recv(64):
        ours = [number for number in sent if number in numbers]
        if not ours:
            continue
        asked += len(ours)
        end = time.monotonic() + min(_MOMENTS[signal.Signals(number)] for number in ours)
        while len(heard) < asked and time.monotonic() < end:
            time.sleep(0.02)
        if len(heard) < asked:
            print(
                "\ninterrupted in the middle of a computation. What was finished before is on "
                "disk; commands that have --resume go on from it.",
                file=sys.stderr,
            )
            _leave(128 + ours[0])


def _leave(code: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(_SHOW_CURSOR)  # a progress bar may have hidden it
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
