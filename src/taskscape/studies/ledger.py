"""Finished cells of a study as lines of JSON, so that a study can stop and go on."""

import json
import os
import platform
import warnings
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from taskscape.errors import DataError
from taskscape.studies.folder_lock import held_alone

__all__ = ["Ledger", "read_ledger", "surroundings"]


_BEGINNING = b'{"cell": {'


class Ledger:
    """A file of finished cells; each is known by what it was, and is not run again."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path, self.about = path, dict(about)
        entries = read_ledger(path) if path.exists() else []
        self.cells: dict[str, dict[str, Any]] = {_name(e["cell"]): e for e in entries}

    def get(self, cell: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was found for a cell, if it is finished."""
        return self.cells.get(_name(cell))

    def add(self, cell: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Note a finished cell, at once on disk, in place of a last line that was cut off."""
        line = json.dumps({"cell": dict(cell), **found, **self.about})
        self.cells[_name(cell)] = json.loads(line)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            held_alone(file.fileno(), wait=True)  # others may add to it too
            file.seek(0)
            content = file.read()
            good = content[: _parse(content, self.path)[1]]
            file.truncate(len(good))
            ended = good.endswith(b"\n") or not good
            file.write(b"" if ended else b"\n")
            file.write(line.encode() + b"\n")


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """The finished cells of a file; a last line that was cut off is left out, with a warning."""
    content = path.read_bytes()
    entries, good = _parse(content, path)
    if good < len(content):
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
    good = 0
    for number, line in enumerate(lines, start=1):
        entry = _entry(line)
        if entry is None and line.strip():
            if number == len(lines) and _is_cut_off(line):
                break
            raise DataError(
                f"line {number} of {path} is not a finished cell in JSON: {_start(line)}. Mend or "
                "delete that line, or write to another file."
            )
        entries += [] if entry is None else [entry]
        good += len(line)
    return entries, good


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(entry, dict) and isinstance(entry.get("cell"), dict)
    return entry if whole else None


def _is_cut_off(line: bytes) -> bool:
    """Whether this is the beginning of a line of ours, and not something of somebody else's."""
    return line.startswith(_BEGINNING) or _BEGINNING.startswith(line)


def _start(line: bytes) -> str:
    text = line.decode(errors="replace").rstrip()
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def _name(cell: Mapping[str, Any]) -> str:
    return json.dumps(cell, sort_keys=True)


def surroundings() -> dict[str, Any]:
    """Versions and hardware, for results that are kept."""
    import jax

    device = jax.devices()[0]
    packages = ("jax", "equinox", "optax", "numpy")
    return {
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in packages},
        },
        "hardware": {
            "device": device.device_kind,
            "platform": device.platform,
            "cores": os.cpu_count(),
            "machine": platform.machine(),
        },
    }
