"""Interrupts that wait: processes that share a fit must all stop after the same step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_WAITING: list[list[int]] = []


@contextmanager
def interrupts_wait(wait: bool) -> Iterator[list[int]]:
    """Inside the block, signals are noted in the list instead of raised, if they are to wait."""
    noted: list[int] = []
    if wait:
        _WAITING.append(noted)
    try:
        yield noted
    finally:
        if wait:
            _WAITING.pop()


def wait_with(number: int) -> bool:
    """Note a signal where interrupts wait; False where they do not, and it should be raised."""
    if not _WAITING:
        return False
    _WAITING[-1].append(number)
    return True


@contextmanager
def still_heard() -> Iterator[None]:
    """Handlers of interrupts stay what they were after the block: JAX and Ray take them over."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets nobody else set them
        return
    heard = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)
