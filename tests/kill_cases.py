"""A script that kills writers at random times and looks whether what they had finished is there.

Every writer is a fork of this process, which has computed nothing: no time goes into imports.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.lab import Lab
from taskscape.io.arrays import load_arrays, load_checkpoint, save_arrays, save_checkpoint

Write = Callable[[Path, int], None]
Read = Callable[[Path], int]
_ROOM = 200_000
"""Numbers in an array: enough for a kill to fall into the middle of a file."""
MOVED_ASIDE: list[Path] = []
"""Folders that had no name after a kill, and were put back by hand."""


def write_checkpoint(path: Path, i: int) -> None:
    save_checkpoint(path, {"values": np.full(_ROOM, i)}, {"what": "checkpoint"})


def read_checkpoint(path: Path) -> int:
    return int(load_checkpoint(path)[0]["values"][0])


def write_folder(path: Path, i: int) -> None:
    save_arrays(path, {"values": np.full(_ROOM, i)}, {"what": "model"})


def read_folder(path: Path) -> int:
    if not path.exists():  # killed while the new one took its name: the old one is beside it
        asides = path.parent.glob(f".{path.name}-unfinished-*-old")
        old = max(asides, key=lambda aside: aside.stat().st_ctime_ns)
        MOVED_ASIDE.append(old)
        old.rename(path)
    return int(load_arrays(path, "model")[0]["values"][0])


def write_line(path: Path, i: int) -> None:
    Lab(path).add({"number": i}, {"values": "x" * 10_000})


def read_lines(path: Path) -> int:
    cells = Lab(path).cells.values()
    assert sorted(cell["cell"]["number"] for cell in cells) == list(range(len(cells)))
    return len(cells) - 1


WRITERS: dict[str, tuple[Write, Read]] = {
    "checkpoint": (write_checkpoint, read_checkpoint),
    "folder": (write_folder, read_folder),
    "ledger": (write_line, read_lines),
}


def finished_before_the_kill(write: Write, path: Path, begin: int, seconds: float) -> int:
    """The last number that a writer had finished with when it was killed."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        for i in range(begin, begin + 10_000):
            write(path, i)
            os.write(send, b".")
    os.close(send)
    os.read(receive, 1)  # the first one is finished
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    finished = 1
    while more := os.read(receive, 4096):
        finished += len(more)
    os.close(receive)
    return begin + finished - 1


def main(kills: int) -> None:
    """Print, for each kind of writer, the kills and what was lost."""
    warnings.simplefilter("ignore")  # of a line that is cut off
    rng, outcome = random.Random(0), {}
    for name, (write, read) in WRITERS.items():
        with tempfile.TemporaryDirectory() as folder:
            path, begin, lost = Path(folder) / name, 0, 0
            for _ in range(kills):
                finished = finished_before_the_kill(write, path, begin, rng.uniform(0, 0.03))
                there = read(path)
                lost += there < finished
                begin = there + 1
            outcome[name] = {"kills": kills, "lost": lost}
    print(json.dumps(outcome))
    print(f"{len(MOVED_ASIDE)} folders were put back by hand", file=sys.stderr)


if __name__ == "__main__":
    main(int(sys.argv[1]))
