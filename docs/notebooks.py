"""Runs notebooks as Jupyter does, and keeps what they show: ``make gallery``."""

import os
import re
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

SECONDS = 600


def missing_packages(notebook: NotebookNode) -> list[str]:
    """What a notebook imports and is not installed."""
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    needed = set(re.findall(r"^(?:import|from) (\w+)", code, re.M))
    return sorted(name for name in needed if find_spec(name) is None)


def run_notebook(notebook: NotebookNode) -> NotebookNode:
    """The notebook with what it shows now; an error of a cell is an error here."""
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook, timeout=SECONDS, kernel_name="python3", record_timing=False,
            coalesce_streams=True,  # not a piece for each moment at which something is printed
            resources={"metadata": {"path": folder}},
        ).execute(env=os.environ | {"TASKSCAPE_PROGRESS": "0"})  # fmt: skip
    notebook.metadata["language_info"] = {"name": "python"}  # not the version that ran it
    return notebook


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        notebook = nbformat.read(path, as_version=4)
        if missing := missing_packages(notebook):
            print(f"{path} is left as it is: {', '.join(missing)} not installed")
        else:
            nbformat.write(run_notebook(notebook), path)
            print(path)
