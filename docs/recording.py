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
COMMANDS = ("taskscape run --preset quick --data glyphs --target Hexagrams --out look",)
_PIECES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+")


def main(path: Path) -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        for line in COMMANDS:
            console.print(Text(f"$ {line}", style="bold green"))
            console.print(Text.from_ansi(last_screen(said_by(line, folder))), "")
    svg = console.export_svg(title="taskscape", unique_id="terminal")
    # the fonts that rich asks for would be fetched from elsewhere
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S), encoding="utf-8")


def said_by(line: str, folder: str) -> str:
    """What a command prints on a terminal with colours."""
    program = [sys.executable, "-m", *shlex.split(line)]
    env = os.environ | {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1"}
    done = subprocess.run(
        program, cwd=folder, env=env, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return done.stdout.decode()


def last_screen(printed: str) -> str:
    """What stands on the terminal at the end: lines that were drawn again stand once."""
    lines, row = [""], 0
    for piece in _PIECES.findall(printed):
        if piece == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif piece.endswith("A") and piece.startswith("\x1b"):
            row -= int(piece[2:-1] or 1)
        elif piece.endswith("K") and piece.startswith("\x1b"):
            lines[row] = ""
        elif piece != "\r" and "?" not in piece[:3]:
            lines[row] += piece
    return "\n".join(line.rstrip() for line in lines).strip("\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
