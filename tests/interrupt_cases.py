"""Processes that hear Ctrl-C, whatever the tests themselves were started by."""

import signal
import subprocess
from typing import Any

__all__ = ["start_hearing"]


def start_hearing(command: list[str], **rest: Any) -> subprocess.Popen:
    """Start a process with its output piped; jobs in the background else ignore some signals."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    inherited = {number: signal.signal(number, handler) for number, handler in usual.items()}
    try:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **rest
        )
    finally:
        for number, handler in inherited.items():
            signal.signal(number, handler)
