"""What was written survives a kill at any time, damage, and a disk without room."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import kill_cases
from experiments.lab import Lab, Store
from taskscape.errors import DataError
from taskscape.io.arrays import save_arrays, save_checkpoint
from taskscape.io.files import atomic_folder, atomic_write
from taskscape.io.tables import write_table
from taskscape.pools import ClassPool

TESTS = Path(kill_cases.__file__).parent


def test_nothing_finished_is_lost_when_writers_are_killed() -> None:
    words = [sys.executable, str(TESTS / "kill_cases.py"), "12"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(TESTS)])}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, check=True)
    assert json.loads(done.stdout) == {
        name: {"kills": 12, "lost": 0} for name in ("checkpoint", "folder", "ledger")
    }


@pytest.mark.parametrize("kind", [atomic_write, atomic_folder])
def test_a_full_disk_is_said_in_words(kind, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with (
        pytest.raises(DataError, match=r"No space left on device\. What was there before is as it"),
        kind(tmp_path / "result"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


WRITERS = {
    "checkpoint": lambda path, x: save_checkpoint(path, {"x": x}, {"what": "test"}),
    "arrays": lambda path, x: save_arrays(path, {"x": x}, {"what": "test"}),
    "pool": lambda path, x: ClassPool.from_classes({"a": x[:, None]}).save(path),
    "table": lambda path, x: write_anew(path, lambda file: write_table(file, {"x": x})),
}


def write_anew(path: Path, write: Callable[[Path], None]) -> None:
    with atomic_write(path) as file:
        write(file)


def test_a_ledger_says_that_the_disk_is_full_and_keeps_its_lines(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path = tmp_path / "results.jsonl"
    Lab(path).add({"number": 1}, {"accuracy": 0.5})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, hard))
    try:
        with pytest.raises(DataError, match=r"File too large\. What was there before is as it"):
            Lab(path).add({"number": 2}, {"accuracy": 0.6})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.warns(UserWarning, match="cut off"):
        assert [cell["accuracy"] for cell in Lab(path).cells.values()] == [0.5]


@pytest.mark.parametrize("kind", WRITERS)
def test_whatever_is_written_says_that_the_disk_is_full(kind: str, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    values, (soft, hard) = np.arange(9000.0), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(DataError, match=r"File too large\. What was there before is as it"):
            WRITERS[kind](tmp_path / "result", values)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_arrays_that_are_damaged_are_computed_again(tmp_path: Path) -> None:
    store = Store(Lab(tmp_path / "results.jsonl"), "0123456789abcdef")
    built = {"values": np.arange(1000)}
    store.arrays("some", lambda: built)
    (file,) = tmp_path.rglob("some.npz")
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.warns(UserWarning, match="is damaged .* it is computed again"):
        again = store.arrays("some", lambda: built)
    np.testing.assert_array_equal(again["values"], built["values"])
