"""Records what README shows: what a study prints, and its report: ``make recording``."""

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

WIDTH = 100
COMMAND = "taskscape run --preset quick --data glyphs --target Hexagrams --out look"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_PIECES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+")


def main(images: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        terminal(last_screen(printed_by(COMMAND, folder)), images / "terminal.svg")
        picture(Path(folder) / "look" / "report.html", images / "report.png")


def printed_by(line: str, folder: str) -> str:
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
        moves = piece.startswith("\x1b") and not piece.endswith("m")
        if piece == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif moves and piece.endswith("A"):
            row -= int(piece[2:-1] or 1)
        elif moves and piece.endswith("K"):
            lines[row] = ""
        elif not moves and piece != "\r":
            lines[row] += piece
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def terminal(text: str, path: Path) -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {COMMAND}", style="bold green"))
    console.print(Text.from_ansi(text))
    svg = console.export_svg(title="taskscape", unique_id="terminal")
    # the fonts that rich asks for would be fetched from elsewhere
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S), encoding="utf-8")


def picture(page: Path, path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        window = chromium.new_page(viewport={"width": 1180, "height": 1128})
        window.goto(page.as_uri())
        window.wait_for_selector("html[data-ready=yes]")
        window.screenshot(path=path)
        chromium.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
