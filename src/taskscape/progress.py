"""Progress bars that appear only when there is something to wait for.

A bar is drawn on a terminal, or a line in a notebook, after a short delay, so quick calls print
nothing; in pipes and tests it stays silent. ``TASKSCAPE_PROGRESS=0`` switches all bars off. What
has a display of its own hears of the progress instead, through :func:`reported_to`.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

T = TypeVar("T")
_DELAY_SECONDS = 1.0

Listener: TypeAlias = Callable[[str, int, int | None], None]
"""Hears what is being done, how many steps are done, and how many there are, if known."""
_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@runtime_checkable
class Advance(Protocol):
    """What a long job calls to say that it got further."""

    def __call__(self, steps: int = 1, /) -> None: ...


@contextmanager
def reported_to(listener: Listener) -> Iterator[None]:
    """Tell the listener of all progress inside the block, and draw no bars there.

    >>> with reported_to(lambda what, done, total: print(what, done, total)):
    ...     for _ in track([1, 2], "counting"):
    ...         pass
    counting 0 2
    counting 1 2
    counting 2 2
    """
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@contextmanager
def progress_bar(description: str, total: int | None = None) -> Iterator[Advance]:
    """Show a bar while the block runs, once it has run for a second.

    >>> with progress_bar("reading", total=3) as advance:
    ...     for _ in range(3):
    ...         advance()
    """
    with ExitStack() as shown:
        listener, done = _LISTENER.get(), 0
        if listener is None and os.environ.get("TASKSCAPE_PROGRESS", "1") != "0":
            listener = _notebook_line() or _terminal_bar(shown)

        def advance(steps: int = 1, /) -> None:
            nonlocal done
            done += steps
            if listener is not None:
                listener(description, done, total)

        advance(0)
        yield advance


def _terminal_bar(shown: ExitStack) -> Listener | None:
    """On a terminal, a bar that goes when the stack is closed; else None."""
    if not sys.stderr.isatty():
        return None
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.TextColumn("{task.description}"), progress.BarColumn(),
        progress.MofNCompleteColumn(), progress.TimeElapsedColumn(), progress.TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    task, began = bar.add_task("", total=None), time.monotonic()

    def show(what: str, done: int, total: int | None) -> None:
        bar.update(task, description=what, completed=done, total=total)
        if not bar.live.is_started and time.monotonic() - began > _DELAY_SECONDS:
            bar.start()
            shown.callback(bar.stop)

    return show


def _notebook_line() -> Listener | None:
    """In a notebook, a line below the cell that says how far it is; else None."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    line: Any = None
    began, last = time.monotonic(), 0.0

    def show(what: str, done: int, total: int | None) -> None:
        nonlocal last, line
        now = time.monotonic()
        if now - began < _DELAY_SECONDS or (now - last < _DELAY_SECONDS / 4 and done != total):
            return
        last, text = now, f"{what}: {done:,}" + ("" if total is None else f" of {total:,}")
        if line is None:
            line = display({"text/plain": text}, raw=True, display_id=True)
        else:
            line.update({"text/plain": text}, raw=True)

    return show


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


def duration(seconds: float | int) -> str:
    """A time in words.

    >>> duration(7.34), duration(7), duration(95), duration(7500), duration(float("nan"))
    ('7.3 s', '7 s', '1 min 35 s', '2 h 5 min', '–')
    """
    if not math.isfinite(seconds):
        return "–"
    if seconds < 10 and not isinstance(seconds, int):
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
