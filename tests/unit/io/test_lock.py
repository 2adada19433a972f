"""Two runs never work in one folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from run_cases import go
from taskscape.errors import DataError
from taskscape.io.files import locked

HOLD = """
import sys, time
from pathlib import Path
from taskscape.io.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_run_in_a_folder_is_refused(tmp_path: Path) -> None:
    with (
        locked(tmp_path / ".lock"),
        pytest.raises(DataError, match=r"another run works in .*another --out"),
    ):
        go(tmp_path, resume=True)
    assert {path.name for path in tmp_path.iterdir()} <= {".lock"}


def test_a_killed_process_leaves_its_lock_free(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / ".lock")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(DataError, match="busy"), locked(tmp_path / ".lock", "busy"):
            pass
    finally:
        child.kill()
        child.communicate()
    with locked(tmp_path / ".lock", "busy"):
        pass


def test_a_block_that_fails_frees_its_lock(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), locked(tmp_path / ".lock"):
        raise KeyboardInterrupt
    with locked(tmp_path / ".lock", "busy"):
        pass
