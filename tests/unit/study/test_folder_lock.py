"""Two runs never work in one folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from run_cases import go
from taskscape.errors import DataError
from taskscape.files import only_run_in

HOLD = """
import sys, time
from pathlib import Path
from taskscape.files import only_run_in
with only_run_in(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_run_is_told_who_works_there(tmp_path: Path) -> None:
    said = rf"^another run \(process {os.getpid()}\) works in {re.escape(str(tmp_path))}\. Wait "
    with only_run_in(tmp_path):
        with pytest.raises(DataError, match=said), only_run_in(tmp_path):
            pass
        with pytest.raises(DataError, match=said):
            go(tmp_path, resume=True)
    assert list(tmp_path.iterdir()) == []
    with only_run_in(tmp_path):
        pass


def test_a_killed_run_leaves_the_folder_free(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(DataError, match=f"process {child.pid}"), only_run_in(tmp_path):
            pass
    finally:
        child.kill()
        child.communicate()
    assert list(tmp_path.iterdir())  # it had no time to tidy up
    with only_run_in(tmp_path):
        pass


def test_a_run_that_fails_frees_the_folder(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), only_run_in(tmp_path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
