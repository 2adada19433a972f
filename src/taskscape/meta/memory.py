"""Work that is done side by side as far as the device's memory allows."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax

from taskscape.errors import TaskscapeError

__all__ = ["fitting_size", "free_bytes", "halved_until_it_fits"]

T = TypeVar("T")
_SHARE = 0.8
"""Of the free memory; the rest is for what the compiler's account leaves out."""


def halved_until_it_fits(
    size: int, run: Callable[[int], T], what: str, remedy: str
) -> tuple[T, int]:
    """What ``run(size)`` gives, with the size halved as often as memory runs out; and that size."""
    while True:
        try:
            return jax.block_until_ready(run(size)), size  # type: ignore[no-untyped-call]
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            if size == 1:
                reason = str(error).splitlines()[0]
                raise TaskscapeError(
                    f"the device's memory is too small for {what}, even one at a time: {reason} "
                    f"{remedy}"
                ) from error
        size = (size + 1) // 2


def fitting_size(most: int, program: Callable[[int], jax.stages.Lowered], free: int | None) -> int:
    """The largest size tried whose compiled program needs no more than a share of free memory.

    ``program(size)`` is lowered; what it needs grows with the size, so the next size tried follows
    from what the last one needed. Without a figure for free memory it is ``most``.
    """
    size = most
    while free is not None and size > 1:
        need = _bytes_of(program(size))
        if need <= _SHARE * free:
            break
        size = max(1, min(size // 2, int(size * _SHARE * free / need)))
    return size


def free_bytes(device: Any) -> int | None:
    """Memory of the device that is not in use; None where it keeps no account, as on a CPU."""
    account: dict[str, int] = device.memory_stats() or {}
    if "bytes_limit" not in account:
        return None
    return account["bytes_limit"] - account.get("bytes_in_use", 0)


def _bytes_of(program: jax.stages.Lowered) -> int:
    analysis: Any = program.compile().memory_analysis()
    return 0 if analysis is None else analysis.temp_size_in_bytes + analysis.output_size_in_bytes
