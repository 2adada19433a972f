"""A sample of benchmarks/attack.py: hostile input ends in a clear error or does no harm."""

import subprocess
import sys
from pathlib import Path

import taskscape

ROOT = Path(__file__).parents[2]


def test_hostile_input_ends_in_clear_errors():
    command = [sys.executable, "benchmarks/attack.py", "--cases", "150", "--seed", "7"]
    source = str(Path(taskscape.__file__).parents[1])
    done = subprocess.run(
        [*command, "--without-fits"],
        cwd=ROOT,
        env={"PYTHONPATH": source, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 traceback, 0 silently wrong, 0 hang" in done.stdout.splitlines()[-1]
