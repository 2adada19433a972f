"""Interrupts that wait: processes that share a fit must all stop after the same step."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["interrupts_wait", "wait_with"]

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
