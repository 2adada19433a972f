"""Ctrl-C ends a command at once, also in the middle of a long compiled computation.

Python hears an interrupt between two of its own steps, so not while compiled code runs; and at the
end of the process, that code would be waited for. Commands get a moment to keep what they have;
then the process ends.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["heed_interrupts"]

_MOMENT = 1.5
"""Seconds that Python has to hear of an interrupt."""
_EXIT_CODE = 130
_SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def heed_interrupts() -> Iterator[None]:
    """End the process on an interrupt, whatever it is doing.

    Where Python hears in time, ``KeyboardInterrupt`` is raised as always, and what handles it may
    take as long as it needs. Where something else listens to interrupts, or nothing does on
    purpose, all stays as it is.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.default_int_handler:
        yield
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if _is_importing(frame):
            _leave(_EXIT_CODE)
        heard.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, hear)
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    watch = threading.Thread(target=_watch, args=(receiver, heard), daemon=True)
    watch.start()
    code = _EXIT_CODE
    try:
        yield
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
        raise
    finally:
        if heard:  # the end of Python would wait for what still computes
            _leave(code)
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGINT, handler)
        sender.close()
        watch.join()
        receiver.close()


def _is_importing(frame: FrameType | None) -> bool:
    """Whether an import is under way: the exception could show a traceback of a library, or be lost
    in it. Commands import what they need before they begin, so there is nothing to be kept.
    """
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _watch(receiver: socket.socket, heard: list[int]) -> None:
    """The interpreter writes each signal's number to the socket, whatever Python is doing."""
    asked = 0
    while numbers := receiver.recv(64):
        asked += numbers.count(signal.SIGINT)
        end = time.monotonic() + _MOMENT
        while len(heard) < asked and time.monotonic() < end:
            time.sleep(0.02)
        if len(heard) < asked:
            print(
                "\ninterrupted in the middle of a computation. What was finished before is on "
                "disk; commands that have --resume go on from it.",
                file=sys.stderr,
            )
            _leave(_EXIT_CODE)


def _leave(code: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(_SHOW_CURSOR)  # a progress bar may have hidden it
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
