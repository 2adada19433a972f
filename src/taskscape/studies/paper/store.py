"""Where a reproduction keeps what it has: a ledger of cells, arrays, fitted models."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from taskscape.errors import DataError
from taskscape.files import written_in_one_piece
from taskscape.studies.ledger import Ledger, surroundings
from taskscape.themes.estimator import TaskThemes

__all__ = ["OutOfTimeError", "Store"]


class OutOfTimeError(Exception):
    """The minutes are over; everything finished is on disk."""


class Store:
    """A folder that a reproduction can stop and go on in, also on another machine.

    Everything in it is kept apart by the fingerprint of the data and the seed that tasks are drawn
    with: results of other data are other cells, arrays and models.
    """

    def __init__(
        self, folder: Path, command: str, minutes: float | None, data: str, seed: int = 0
    ) -> None:
        self.folder = folder
        self._of = {"data": data, "tasks_seed": seed}
        self._apart = f"{data[:12]}-{seed}"
        if folder.exists() and not folder.is_dir():
            raise DataError(f"{folder} is a file; --out must be a folder.")
        folder.mkdir(parents=True, exist_ok=True)
        self._ledger = Ledger(folder / "results.jsonl", {"command": command, **surroundings()})
        self._end = None if minutes is None else time.monotonic() + 60 * minutes

    def check_time(self) -> None:
        """Stop here if the time is up; called before anything that takes long."""
        if self._end is not None and time.monotonic() > self._end:
            raise OutOfTimeError

    def arrays(
        self, name: str, make: Callable[[], Mapping[str, np.ndarray]]
    ) -> dict[str, np.ndarray]:
        """Arrays of that name: read if they are there, else made and written."""
        if not self.has_arrays(name):
            self.check_time()
            self.keep(name, **make())
        return self.read(name)

    def keep(self, name: str, **arrays: np.ndarray) -> None:
        """Write arrays under a name."""
        with written_in_one_piece(self._file(name)) as file, file.open("wb") as stream:
            np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]

    def read(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of that name."""
        with np.load(self._file(name)) as file:
            return dict(file)

    def has_arrays(self, name: str) -> bool:
        """Whether arrays of that name are there."""
        return self._file(name).exists()

    def _file(self, name: str) -> Path:
        return self.folder / "arrays" / self._apart / f"{name}.npz"

    def model(self, name: str, make: Callable[[Path], TaskThemes]) -> TaskThemes:
        """A fitted model of that name: read if it is there, else fitted and written.

        ``make`` is given a file for checkpoints, from which an interrupted fit goes on.
        """
        path = self.folder / "models" / self._apart / name
        if not path.exists():
            self.check_time()
            path.parent.mkdir(parents=True, exist_ok=True)
            make(path.with_name(f"{name}.checkpoint")).save(path)
        return TaskThemes.load(path)

    def finished(self, cell: Mapping[str, Any]) -> bool:
        """Whether a cell is in the ledger."""
        return self._ledger.get({**cell, **self._of}) is not None

    def add(self, cell: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Note what was found for a cell."""
        self._ledger.add({**cell, **self._of}, found)

    def results(self, **wanted: Any) -> list[dict[str, Any]]:
        """The finished cells that have all of these values."""
        return [
            entry
            for entry in self._ledger.cells.values()
            if all(entry["cell"].get(k) == v for k, v in (wanted | self._of).items())
        ]
