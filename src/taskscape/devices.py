"""What the machine offers: cores of the processor, and free memory of a device."""

import os
from typing import Any

__all__ = ["cores", "free_bytes"]


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_bytes(device: Any) -> int | None:
    """Memory of the device that is not in use; None where it keeps no account, as on a CPU."""
    account: dict[str, int] = device.memory_stats() or {}
    if "bytes_limit" not in account:
        return None
    return account["bytes_limit"] - account.get("bytes_in_use", 0)
