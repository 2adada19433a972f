"""Progress bars that appear only when there is something to wait for.

A bar is drawn on a terminal after a short delay, so quick calls print nothing; in pipes, tests and
notebooks without a terminal it stays silent. ``TASKSCAPE_PROGRESS=0`` switches all bars off.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Protocol, TypeVar

__all__ = ["Advance", "progress_bar", "track"]

T = TypeVar("T")
_DELAY_SECONDS = 1.0


class Advance(Protocol):
    """What a long job calls to say that it got further."""

    def __call__(self, steps: int = 1, /) -> None: ...


def _wanted() -> bool:
    return os.environ.get("TASKSCAPE_PROGRESS", "1") != "0" and sys.stderr.isatty()


@contextmanager
def progress_bar(description: str, total: int | None = None) -> Iterator[Advance]:
    """Show a bar while the block runs, once it has run for a second.

    >>> with progress_bar("reading", total=3) as advance:
    ...     for _ in range(3):
    ...         advance()
    """
    if not _wanted():
        yield lambda steps=1: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(description, total=total)
    began, started = time.monotonic(), False

    def advance(steps: int = 1, /) -> None:
        nonlocal started
        bar.advance(task, steps)
        if not started and time.monotonic() - began > _DELAY_SECONDS:
            bar.start()
            started = True

    try:
        yield advance
    finally:
        if started:
            bar.stop()


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Yield the items, with a bar that counts them.

    >>> list(track([1, 2], "counting"))
    [1, 2]
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    with progress_bar(description, total) as advance:
        for item in items:
            yield item
            advance()
