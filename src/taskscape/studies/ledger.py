"""Finished cells of a study as lines of JSON, so that a study can stop and go on."""

import json
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from taskscape.errors import DataError

__all__ = ["Ledger", "surroundings"]


class Ledger:
    """A file of finished cells; each is known by what it was, and is not run again."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path, self.about = path, dict(about)
        self.cells: dict[str, dict[str, Any]] = {}
        if path.exists():
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                try:
                    entry = json.loads(line)
                    self.cells[_name(entry["cell"])] = entry
                except (ValueError, KeyError, TypeError):
                    raise DataError(
                        f"line {number} of {path} is not a finished cell of a study; the file is "
                        "left as it is. Use another folder, or mend the line."
                    ) from None

    def get(self, cell: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was found for a cell, if it is finished."""
        return self.cells.get(_name(cell))

    def add(self, cell: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Note a finished cell, at once on disk."""
        entry = {"cell": dict(cell), **found, **self.about}
        self.cells[_name(cell)] = json.loads(json.dumps(entry))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


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
