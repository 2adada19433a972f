"""Ctrl-C while a command still imports what it needs, which takes seconds."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType

__all__ = ["heed_while_importing", "leave_at_once"]


def heed_while_importing() -> None:
    """Let an interrupt end the process quietly, if this is the ``taskscape`` command.

    ``KeyboardInterrupt`` would show a traceback, or be lost in a library that is being imported.
    Programs that import taskscape keep their own handling.
    """
    with suppress(ValueError):  # not the main thread
        if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, leave_at_once)


def leave_at_once(number: int, frame: FrameType | None) -> None:
    """End the process: nothing has begun that could be lost."""
    del number, frame
    os._exit(130)


def _is_command() -> bool:
    script = (sys.argv or [""])[0]
    as_module = script == "-m" and "taskscape" in sys.orig_argv
    return as_module or Path(script).stem == "taskscape"
