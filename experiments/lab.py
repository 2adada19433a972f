"""Where an experiment works: a ledger with a clock, and arrays and models beside it."""

import shutil
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt16

from taskscape.arguments import check_number
from taskscape.errors import DataError
from taskscape.io.files import atomic_write
from taskscape.io.ledger import Ledger, read_ledger
from taskscape.themes import CoClustering, TaskModel

__all__ = ["Lab", "OutOfTimeError", "Store", "accuracy_of", "count_right", "option", "packed"]


class OutOfTimeError(Exception):
    """The minutes are over; everything finished is on disk."""


def packed(path: Path) -> Path:
    """The compressed part of a ledger, which stands beside the lines that are added to it."""
    return path.with_name(f"{path.name}.xz")


class Lab(Ledger):
    """A ledger and a clock; the cells of a compressed ledger beside it are finished too."""

    def __init__(self, path: Path, command: str = "", minutes: float | None = None) -> None:
        super().__init__(path, command)
        if packed(path).exists():
            self._take_in(read_ledger(packed(path)))
        if minutes is not None:
            check_number(minutes, "minutes")
        self._end = None if minutes is None else time.monotonic() + 60 * minutes

    def check_time(self) -> None:
        """Stop here if the time is up; called before anything that takes long."""
        if self._end is not None and time.monotonic() > self._end:
            raise OutOfTimeError

    def results(
        self, cell: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The results of a cell: as they are in the ledger, or measured now and noted."""
        for missing in self.missing([cell]):
            self.add(missing, measure())
        entry = self.get(cell)
        assert entry is not None
        return entry

    def missing(self, cells: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Those of the cells that are not finished; stops here if the time for them is up."""
        rest = [dict(cell) for cell in cells if self.get(cell) is None]
        if rest:
            self.check_time()
        return rest


# -- arrays and models beside the ledger --------------------------------------------------------


class Store:
    """A lab with arrays and models beside the ledger, to resume with, also on another machine.

    Everything in it is kept apart by the fingerprint of the data and the seed that tasks are drawn
    with: results of other data are other cells, arrays and models.
    """

    def __init__(self, lab: Lab, data: str, seed: int = 0) -> None:
        self.lab, self.folder = lab, lab.path.parent
        self.check_time = lab.check_time
        self._of = {"data": data, "tasks_seed": seed}
        self._apart = f"{data[:12]}-{seed}"
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError(f"{self.folder} is a file; --out must be a folder.")
        self.folder.mkdir(parents=True, exist_ok=True)

    def arrays(
        self, name: str, make: Callable[[], Mapping[str, np.ndarray]]
    ) -> dict[str, np.ndarray]:
        """Arrays of that name: read if they are there and whole, else made and written."""
        if self.has_arrays(name):
            try:
                return self.read(name)
            except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
                warnings.warn(
                    f"{self._file(name)} is damaged ({error}); it is computed again.", stacklevel=2
                )
        self.check_time()
        self.keep(name, **make())
        return self.read(name)

    def keep(self, name: str, **arrays: np.ndarray) -> None:
        """Write arrays under a name."""
        with atomic_write(self._file(name)) as file, file.open("wb") as stream:
            np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]

    def read(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of that name."""
        with self._file(name).open("rb") as stream, np.load(stream) as file:
            return dict(file)

    def has_arrays(self, name: str) -> bool:
        """Whether arrays of that name are there."""
        return self._file(name).exists()

    def _file(self, name: str) -> Path:
        return self.folder / "arrays" / self._apart / f"{name}.npz"

    def model(self, name: str, make: Callable[[Path], CoClustering]) -> CoClustering:
        """A fitted model of that name: read if it is there, else fitted and written.

        ``make`` is given a file for checkpoints, from which an interrupted fit continues.
        """
        path = self.folder / "models" / self._apart / name
        if path.exists():
            try:
                return TaskModel.load(path)
            except DataError as error:
                warnings.warn(f"{error} It is fitted again.", stacklevel=2)
                damaged = path.with_name(f"{name}.damaged")
                shutil.rmtree(damaged, ignore_errors=True)
                path.rename(damaged)
        self.check_time()
        path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint = path.with_name(f"{name}.checkpoint")
        make(checkpoint).save(path)
        checkpoint.unlink(missing_ok=True)
        return TaskModel.load(path)

    def finished(self, cell: Mapping[str, Any]) -> bool:
        """Whether a cell is in the ledger."""
        return self.lab.get({**cell, **self._of}) is not None

    def add(self, cell: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        """Note the results of a cell."""
        self.lab.add({**cell, **self._of}, results)

    def results(self, **values: Any) -> list[dict[str, Any]]:
        """The finished cells that have all of these values."""
        return [
            entry
            for entry in self.lab.cells.values()
            if all(entry["cell"].get(k) == v for k, v in (values | self._of).items())
        ]


# -- accuracies ---------------------------------------------------------------------------------

_BLOCKS = 4


def count_right(
    accuracy: Float[np.ndarray, "tasks episodes"], queries: int
) -> UInt16[np.ndarray, "tasks blocks"]:
    """Right answers of each task, to be kept: episodes in four blocks, where they divide so.

    Blocks take a quarter of the room of twenty episodes, and still show the noise between them.
    """
    n_tasks, episodes = accuracy.shape
    blocks = _BLOCKS if episodes % _BLOCKS == 0 else episodes
    right = np.rint(queries * accuracy).reshape(n_tasks, blocks, -1).sum(axis=2)
    return right.astype(np.uint16)


def accuracy_of(
    right: UInt16[np.ndarray, "tasks blocks"], queries: int, episodes: int
) -> Float[np.ndarray, "tasks blocks"]:
    """The accuracies that :func:`count_right` counted, by block of episodes."""
    return right / (queries * episodes / right.shape[1])


# -- options ------------------------------------------------------------------------------------


def option(
    text: str,
    default: Any = MISSING,
    *,
    factory: Any = MISSING,
    choices: Sequence[str] | None = None,
    flag: str | None = None,
    commas: bool = False,
    nargs: str = "+",
) -> Any:
    """A field of a study's settings that is an option of the command line, with its help.

    ``flag`` is its name there, if it is another; ``commas`` are between several words of one
    argument; ``nargs`` is argparse's, of a tuple.
    """
    about = {"help": text, "choices": choices, "flag": flag, "commas": commas, "nargs": nargs}
    if factory is not MISSING:
        return field(default_factory=factory, metadata=about)
    return field(default=default, metadata=about)
