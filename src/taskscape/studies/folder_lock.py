"""One run at a time in a folder."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taskscape.errors import DataError

__all__ = ["held_alone", "only_run_in"]

_NAME = ".running"


@contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder; however this process ends, the folder is free again."""
    path = folder / _NAME
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not held_alone(file, wait=False):
                runner = os.read(file, 32).decode(errors="replace").strip()
                raise DataError(
                    f"another run (process {runner or 'not known'}) works in {folder}. Wait until "
                    "it has ended, or use another --out."
                )
            if not _is_at(file, path):  # the run before has just ended and removed it
                continue
            os.truncate(file, 0)
            os.write(file, f"{os.getpid()}\n".encode())
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return
        finally:
            os.close(file)


def held_alone(file: int, *, wait: bool) -> bool:
    """Lock an open file until it is closed; False where another process holds it.

    Where the system has no such locks, nothing is locked.
    """
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return True
    return True


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
