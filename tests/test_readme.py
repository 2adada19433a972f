"""What the README says works as it stands: its Python, its commands, and the examples."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.S)
COMMANDS = [
    line.split("#")[0].strip()
    for line in README.split("## On the command line")[1].splitlines()
    if line.startswith("    taskscape ")
]


@pytest.mark.usefixtures("shared_cache")
@pytest.mark.parametrize("block", PYTHON, ids=["twenty-lines", "own-data"])
def test_python(block: str, tmp_path: Path):
    subprocess.run([sys.executable, "-c", block], cwd=tmp_path, check=True)


@pytest.mark.usefixtures("shared_cache")
def test_commands(tmp_path: Path):
    few = {"fit": ["--n-tasks", "600", "--max-tasks", "512"], "train": ["--n-tasks", "200"]}
    assert len(COMMANDS) == 9
    assert {*few, "embed", "evaluate"} < {command.split()[1] for command in COMMANDS}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in COMMANDS:
        words = shlex.split(command)
        words += few.get(words[1], [])  # as written they learn from thousands of tasks
        subprocess.run(words, cwd=tmp_path, check=True, env=os.environ | {"PATH": path})
    assert (tmp_path / "test.parquet").exists()


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_examples(script: Path, tmp_path: Path):
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, check=True)


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target
