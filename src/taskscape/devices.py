"""What the machine offers: cores of the processor, free memory of it and of a device."""

import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_thread(api: str | None = None) -> AbstractContextManager[object]:
    """Keep BLAS and OpenMP, or one of them, to one thread.

    Their threads wait for each other many times in k-means or a decomposition, of which JAX makes
    some in every step of a fit, so that other work on one core makes these ten times slower; and
    where threads of our own run matrix products, they fight.
    """
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1, user_api=api)
    return limits


def free_bytes(device: Any) -> int | None:
    """Memory of the device that is not in use; None where it keeps no account, as on a CPU."""
    account: dict[str, int] = device.memory_stats() or {}
    if "bytes_limit" not in account:
        return None
    return account["bytes_limit"] - account.get("bytes_in_use", 0)


def free_memory() -> int | None:
    """Bytes of main memory that this process could still have; None where that is not known."""
    known = []
    with suppress(OSError, ValueError, IndexError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable:"))
        known.append(int(available.split()[1]) * 1024)
    with suppress(OSError, ValueError):  # what a container may take
        most, used = (
            int(Path(f"/sys/fs/cgroup/memory.{name}").read_text(encoding="ascii"))
            for name in ("max", "current")
        )
        known.append(max(0, most - used))
    return min(known, default=None)
