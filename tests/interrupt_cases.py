"""Processes that hear Ctrl-C, whatever the tests themselves were started by."""

import signal
import subprocess
from typing import Any

__all__ = ["start_hearing"]


def start_hearing(command: list[str], **rest: Any) -> subprocess.Popen:
    """Start a process with its output piped; jobs in the background else ignore interrupts."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **rest
        )
    finally:
        signal.signal(signal.SIGINT, inherited)
