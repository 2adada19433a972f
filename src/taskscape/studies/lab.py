"""Where a study works: a ledger of finished cells, kept arrays and models, a clock, a lock."""

import json
import os
import platform
import shutil
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, field
from pathlib import Path
from typing import Any

import numpy as np

from taskscape.arguments import check_number
from taskscape.errors import DataError
from taskscape.files import check_seal, lock_open_file, sealed, written_in_one_piece
from taskscape.storage import forget_checkpoint, versions
from taskscape.themes.estimator import TaskThemes

__all__ = [
    "Lab",
    "OutOfTimeError",
    "Store",
    "only_run_in",
    "option",
    "read_ledger",
    "versions_and_hardware",
]

_BEGINNING = b'{"cell": {'
_FORMAT = 2
"""Of a ledger's lines; those of the first format do not say which they are of."""
_SHORT_SUM = 16
"""Digits of a checksum that some ledgers have; it is not compared any more."""
_LOCK = ".running"


class OutOfTimeError(Exception):
    """The minutes are over; everything finished is on disk."""


# -- the lab and its ledger ---------------------------------------------------------------------


class Lab:
    """A ledger and a clock.

    The ledger is a file of finished cells; each is known by what it was, is not run again, and has
    the command, versions and hardware in its line.
    """

    def __init__(self, path: Path, command: str = "", minutes: float | None = None) -> None:
        self.path, self.about = path, {"command": command, **versions_and_hardware()}
        if minutes is not None:
            check_number(minutes, "minutes")
        self._end = None if minutes is None else time.monotonic() + 60 * minutes
        self.cells: dict[str, dict[str, Any]] = {}
        self._bytes = self._lines = 0
        content = path.read_bytes() if path.exists() else b""
        if self._take_in(content) < len(content):
            _warn_of_cut_off_line(path)

    def get(self, cell: Mapping[str, Any]) -> dict[str, Any] | None:
        """The results of a cell, if it is finished."""
        return self.cells.get(_name(cell))

    def add(self, cell: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        """Note a finished cell, at once on disk, in place of a last line that was cut off."""
        values = {"cell": dict(cell), "format": _FORMAT, **results, **self.about}
        entry = json.loads(json.dumps(values))
        line = json.dumps(sealed(entry))  # another number in it would else go unnoticed
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            lock_open_file(file.fileno())  # other processes may add to it too
            if os.fstat(file.fileno()).st_size < self._bytes:  # another file by now
                self._bytes = self._lines = 0
            start = file.seek(self._bytes)
            rest = file.read()
            whole = rest[: self._take_in(rest)]
            file.truncate(start + len(whole))
            ended = whole.endswith(b"\n") or not whole
            file.write(b"" if ended else b"\n")
            file.write(line.encode() + b"\n")
            self._bytes, self._lines = file.tell(), self._lines + (1 if ended else 2)
        self.cells[_name(cell)] = entry

    def check_time(self) -> None:
        """Stop here if the time is up; called before anything that takes long."""
        if self._end is not None and time.monotonic() > self._end:
            raise OutOfTimeError

    def results(
        self, cell: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The results of a cell: as they are in the ledger, or measured now and noted."""
        if self.get(cell) is None:
            self.check_time()
            self.add(cell, measure())
        return self.cells[_name(cell)]

    def missing(self, cells: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of the cells that are not finished; stops here if the time for them is up."""
        rest = [cell for cell in cells if self.get(cell) is None]
        if rest:
            self.check_time()
        return rest

    def _take_in(self, content: bytes) -> int:
        """Read what follows the lines read so far; the length without a line that is cut off."""
        entries, whole = _parse(content, self.path, self._lines)
        self.cells |= {_name(e["cell"]): e for e in entries}
        ended = content.rfind(b"\n", 0, whole) + 1  # a line without its end is read again
        self._bytes += ended
        self._lines += content.count(b"\n", 0, ended)
        return whole


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """The finished cells of a file; a last line that was cut off is left out, with a warning."""
    content = path.read_bytes()
    entries, whole = _parse(content, path)
    if whole < len(content):
        _warn_of_cut_off_line(path)
    return entries


def _warn_of_cut_off_line(path: Path) -> None:
    warnings.warn(
        f"the last line of {path} is cut off, as when a run was killed while it wrote; it is "
        "left out, and what it held is run again.",
        stacklevel=3,
    )


def _parse(content: bytes, path: Path, before: int = 0) -> tuple[list[dict[str, Any]], int]:
    """The cells in lines of JSON, and the length up to a last line that is cut off."""
    entries: list[dict[str, Any]] = []
    lines = content.splitlines(keepends=True)
    whole = 0
    for number, line in enumerate(lines, start=1):
        entry = _entry(line, path)
        if entry is None and line.strip():
            if number == len(lines) and _is_cut_off(line):
                break
            raise DataError(
                f"line {before + number} of {path} is not a finished cell in JSON: {_start(line)}. "
                "Mend or delete that line, or write to another file."
            )
        entries += [] if entry is None else [entry]
        whole += len(line)
    return entries, whole


def _entry(line: bytes, path: Path) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
        if not (isinstance(entry, dict) and isinstance(entry.get("cell"), dict)):
            return None
        if len(str(entry.get("checksum"))) == _SHORT_SUM:
            del entry["checksum"]
        entry = check_seal(entry, path, "Mend it.")
    except ValueError:  # no JSON, or changed since it was written
        return None
    return entry if "format" in entry else entry | {"cell": _as_named_today(entry["cell"])}


def _as_named_today(value: Any) -> Any:
    """A cell of the first format: what it calls glyphs are the letters, as it knew no symbols."""
    if isinstance(value, dict):
        return {key: _as_named_today(item) for key, item in value.items()}
    if isinstance(value, str) and (value == "glyphs" or value.startswith("glyphs (")):
        return value.replace("glyphs", "letters", 1)
    return value


def _is_cut_off(line: bytes) -> bool:
    """Whether this is the beginning of a line of ours, and not something of somebody else's."""
    return line.startswith(_BEGINNING) or _BEGINNING.startswith(line)


def _start(line: bytes) -> str:
    text = line.decode(errors="replace").rstrip()
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def _name(cell: Mapping[str, Any]) -> str:
    return json.dumps(cell, sort_keys=True)


def versions_and_hardware() -> dict[str, Any]:
    """Versions and hardware, for results that are kept."""
    import jax

    device = jax.devices()[0]
    return {
        "versions": versions("jax", "equinox", "optax", "numpy"),
        "hardware": {
            "device": device.device_kind,
            "platform": device.platform,
            "cores": os.cpu_count(),
            "machine": platform.machine(),
        },
    }


# -- arrays and models beside the ledger --------------------------------------------------------


class Store:
    """A lab with arrays and models beside the ledger, to go on with, also on another machine.

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
                    f"{self._file(name)} is damaged ({error}); it is made anew.", stacklevel=2
                )
        self.check_time()
        self.keep(name, **make())
        return self.read(name)

    def keep(self, name: str, **arrays: np.ndarray) -> None:
        """Write arrays under a name."""
        with written_in_one_piece(self._file(name)) as file, file.open("wb") as stream:
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

    def model(self, name: str, make: Callable[[Path], TaskThemes]) -> TaskThemes:
        """A fitted model of that name: read if it is there, else fitted and written.

        ``make`` is given a file for checkpoints, from which an interrupted fit goes on.
        """
        path = self.folder / "models" / self._apart / name
        if path.exists():
            try:
                return TaskThemes.load(path)
            except DataError as error:
                warnings.warn(f"{error} It is fitted anew.", stacklevel=2)
                damaged = path.with_name(f"{name}.damaged")
                shutil.rmtree(damaged, ignore_errors=True)
                path.rename(damaged)
        self.check_time()
        path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint = path.with_name(f"{name}.checkpoint")
        make(checkpoint).save(path)
        forget_checkpoint(checkpoint)
        return TaskThemes.load(path)

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


# -- the lock -----------------------------------------------------------------------------------


@contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder; however this process ends, the folder is free again."""
    path = folder / _LOCK
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not lock_open_file(file, wait=False):
                runner = os.read(file, 32).decode(errors="replace").strip()
                raise DataError(
                    f"another run (process {runner or 'not known'}) works in {folder}. Wait until "
                    "it has ended, or use another --out."
                )
            if not _is_at(file, path):  # the run before has just ended and removed it
                continue
            os.truncate(file, 0)
            os.write(file, f"{os.getpid()}\n".encode())
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return
        finally:
            os.close(file)


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


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
