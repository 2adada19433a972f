"""Ledgers: files of finished cells of work, one line of JSON each, so that none is run twice."""

import json
import lzma
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taskscape.errors import DataError
from taskscape.io.files import full_disk_named, locked
from taskscape.io.values import versions_and_hardware

_BEGINNING = b'{"cell": {'


class Ledger:
    """Finished cells: each is identified by what it was, and is on disk as soon as it is added.

    A line holds the cell, its results, and the command, versions and hardware that made them.
    """

    def __init__(self, path: Path, command: str = "") -> None:
        self.path, self.about = path, {"command": command, **versions_and_hardware()}
        self.cells: dict[str, dict[str, Any]] = {}
        if path.exists():
            self._take_in(read_ledger(path))

    def _take_in(self, entries: list[dict[str, Any]]) -> None:
        self.cells |= {_name(entry["cell"]): entry for entry in entries}

    def get(self, cell: Mapping[str, Any]) -> dict[str, Any] | None:
        """The results of a cell, if it is finished."""
        return self.cells.get(_name(cell))

    def add(self, cell: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        """Note a finished cell, in place of a last line that was cut off."""
        entry = json.loads(json.dumps({"cell": dict(cell), **results, **self.about}))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = self.path.with_name(f".{self.path.name}.lock")  # others may add to it too
        with full_disk_named(self.path), locked(lock), self.path.open("a+b") as file:
            file.seek(0)
            whole = _parse(file.read(), self.path)[1]
            file.truncate(whole)
            file.seek(max(0, whole - 1))
            file.write(b"" if file.read() in (b"", b"\n") else b"\n")
            file.write(json.dumps(entry).encode() + b"\n")
        self.cells[_name(cell)] = entry


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """The finished cells of a ledger, which may be compressed (``.xz``).

    A last line that was cut off is left out, with a warning.
    """
    content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    entries, whole = _parse(content, path)
    if whole < len(content):
        warnings.warn(
            f"the last line of {path} is cut off, as when a run was killed while it wrote; it is "
            "left out, and what it held is run again.",
            stacklevel=2,
        )
    return entries


def _parse(content: bytes, path: Path) -> tuple[list[dict[str, Any]], int]:
    """The cells in lines of JSON, and the length up to a last line that is cut off."""
    entries: list[dict[str, Any]] = []
    lines = content.splitlines(keepends=True)
    whole = 0
    for number, line in enumerate(lines, start=1):
        entry = _entry(line)
        if entry is None and line.strip():
            if number == len(lines) and (
                line.startswith(_BEGINNING) or _BEGINNING.startswith(line)
            ):
                break
            start = line.decode(errors="replace").rstrip()
            raise DataError(
                f"line {number} of {path} is not a finished cell in JSON: "
                f"{start if len(start) <= 40 else f'{start[:40]}…'!r}. Fix or delete that line, or "
                "write to another file."
            )
        entries += [] if entry is None else [entry]
        whole += len(line)
    return entries, whole


def _entry(line: bytes) -> dict[str, Any] | None:
    """A finished cell; None for what is no such line."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("cell"), dict) else None


def _name(cell: Mapping[str, Any]) -> str:
    return json.dumps(cell, sort_keys=True)
