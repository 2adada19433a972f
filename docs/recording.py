"""Draws the terminal of README: commands, and what they say when this runs: ``make recording``."""

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 100
HIDDEN = "taskscape data save symbols --out symbols"
"""What is run before, and not shown: the first use of the embedded data draws it."""
SHOWN = (
    "taskscape tasks glyphs --split train --within-group --n-tasks 2000 --out train.parquet",
    "taskscape advise --data glyphs --target Hexagrams --out advice",
)


def main(path: Path) -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        for line in SHOWN:
            console.print(Text(f"$ {line}", style="bold"))
            console.print(Text.from_ansi(said_by(line, folder)), soft_wrap=False)
    svg = console.export_svg(title="taskscape", unique_id="terminal")
    # the fonts that rich asks for would be fetched from elsewhere
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S), encoding="utf-8")


def said_by(line: str, folder: str) -> str:
    """What a command prints on a terminal that shows colours."""
    program = Path(sys.executable).with_name("taskscape")
    done = subprocess.run(
        [program, *shlex.split(line)[1:]], cwd=folder, text=True, check=True,
        env=os.environ | {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.stdout.rstrip()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
