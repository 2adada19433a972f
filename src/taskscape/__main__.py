"""The command ``taskscape``, which ``python -m taskscape`` is too: quiet from its first moment."""

import os
import signal
from types import FrameType


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends it without a traceback."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, _leave)
    from taskscape.cli import main as command_line  # a quarter of a second, in which it is silent

    if usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command_line()


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
