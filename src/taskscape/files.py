"""Files and folders that appear in one piece or not at all, and never over a user's own."""

import csv
import ctypes
import glob
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from taskscape.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "PICTURE",
    "Kind",
    "SavedAsJson",
    "cache_dir",
    "check_output",
    "csv_with",
    "folder_in_one_piece",
    "json_with",
    "picture",
    "recover",
    "save_picture",
    "written_in_one_piece",
]

PathLike = str | os.PathLike[str]

_ABANDONED_SECONDS = 24 * 3600


def cache_dir() -> Path:
    """What can be made again is kept in ``TASKSCAPE_CACHE``, or else in the user's cache folder."""
    import platformdirs

    named = os.environ.get("TASKSCAPE_CACHE")
    return Path(named).expanduser() if named else Path(platformdirs.user_cache_dir("taskscape"))


@dataclass(frozen=True)
class Kind:
    """A kind of file or folder that taskscape writes, and may therefore replace."""

    name: str
    """In words, such as ``a list of tasks``."""
    known: Callable[[Path], bool]
    """Whether what is there was written by taskscape and is of this kind."""
    folder: bool = False


def check_output(path: PathLike, kind: Kind, *others: PathLike | None) -> None:
    """Raise an error if writing to ``path`` would lose what is there, or could not succeed.

    ``others`` are what the same command reads or writes besides. Called before long work begins.
    """
    final = _end_of_links(path)
    if any(other is not None and _end_of_links(other) == final for other in others):
        raise DataError(
            f"{os.fspath(path)} is named twice, and one would replace the other. "
            "Choose another name for one of them."
        )
    _check_place(path, final, kind.folder)
    if final.exists() and not _is_empty(final) and not kind.known(final):
        raise DataError(
            f"{os.fspath(path)} exists and is not {kind.name} written by taskscape; it is left as "
            "it is. Choose another name."
        )


def json_with(name: str, *keys: str, **values: str) -> Kind:
    """The kind of JSON files whose top level has these keys and values."""

    def known(path: Path) -> bool:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            return False
        return (
            isinstance(content, dict)
            and set(keys) <= set(content)
            and all(content.get(k) == v for k, v in values.items())
        )

    return Kind(name, known)


def csv_with(name: str, *columns: str, more: str | None = None) -> Kind:
    """The kind of CSV files with exactly these columns, then any whose names begin with ``more``.

    A file with other columns is not of this kind: a user may have added them.
    """

    def known(path: Path) -> bool:
        try:
            with path.open(newline="", encoding="utf-8") as file:
                header = next(csv.reader(file), [])
        except (ValueError, csv.Error):
            return False
        rest = header[len(columns) :]
        return tuple(header[: len(columns)]) == columns and all(
            more is not None and column.startswith(more) for column in rest
        )

    return Kind(name, known)


_SIGNED: dict[str, dict[str, str | None]] = {
    "png": {"Software": "taskscape"},
    "svg": {"Creator": "taskscape", "Date": None},
    "pdf": {"Creator": "taskscape"},
}
_SIGNATURES = (b"Software\0taskscape", b"<dc:title>taskscape</dc:title>", b"/Creator (taskscape)")

PICTURE = Kind("a picture", lambda path: any(s in path.read_bytes() for s in _SIGNATURES))


def save_picture(
    figure: "Figure", path: PathLike, kind: Kind | None = PICTURE, **options: Any
) -> None:
    """Write a figure in one piece, signed so that it is known as a picture of ours."""
    ending = Path(path).suffix[1:].lower() or "png"
    with written_in_one_piece(path, kind) as unfinished:
        figure.savefig(unfinished, format=ending, metadata=_SIGNED.get(ending), **options)


@contextmanager
def picture(
    path: PathLike, width: float, height: float, *, dpi: int = 200, kind: Kind | None = PICTURE
) -> Iterator["Figure"]:
    """A figure to draw into, of so many inches and in one style; then written to ``path``."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: Any = {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "taskscape",
        "pdf.fonttype": 42,
    }
    with rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        save_picture(figure, path, kind, dpi=dpi)


ResultT = TypeVar("ResultT", bound="SavedAsJson")


class SavedAsJson:
    """A result that is written as a JSON file of its own kind, and read back."""

    file: ClassVar[Kind]
    """Its files, which alone may be replaced."""

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        raise NotImplementedError

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Any:
        """The result that :meth:`to_dict` took apart."""
        raise NotImplementedError

    def save(self, path: PathLike) -> None:
        """Write a JSON file that :meth:`load` reads."""
        with written_in_one_piece(path, self.file) as file:
            text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)
            file.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls: type[ResultT], path: PathLike) -> ResultT:
        """The result that :meth:`save` wrote; an error for a file of another kind."""
        file = Path(path)
        if not file.is_file():
            raise DataError(f"no such file: {os.fspath(path)}.")
        if not cls.file.known(file):
            raise DataError(f"{os.fspath(path)} is not {cls.file.name} written by taskscape.")
        result: ResultT = cls.from_dict(json.loads(file.read_text(encoding="utf-8")))
        return result


@contextmanager
def written_in_one_piece(path: PathLike, kind: Kind | None = None) -> Iterator[Path]:
    """A temporary file that becomes ``path`` if the block succeeds and vanishes if it fails.

    A link is kept and what it names is written. With a ``kind``, only a file of that kind is
    replaced; without one, any regular file.
    """
    final = _end_of_links(path)
    if kind is None:
        _check_place(path, final, folder=False)
    else:
        check_output(path, kind)
    final.parent.mkdir(parents=True, exist_ok=True)
    _sweep_abandoned(final)
    descriptor, name = tempfile.mkstemp(dir=final.parent, prefix=_prefix(final))
    os.close(descriptor)
    unfinished = Path(name)
    try:
        yield unfinished
        _as_any_other(unfinished, 0o666)
        _onto_disk(unfinished)
        unfinished.replace(final)
        _onto_disk(final.parent)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def folder_in_one_piece(path: PathLike, *, replace: bool = True) -> Iterator[Path]:
    """A temporary folder that takes the place of ``path`` if the block succeeds.

    Without ``replace``, a folder that stands there by then is kept. With it, both change places in
    one step where the system can; elsewhere the old one is moved aside first and deleted last, and
    if the process is killed in between, :func:`recover` puts it back.
    """
    final = _end_of_links(path)
    if replace:
        _check_place(path, final, folder=True)
    final.parent.mkdir(parents=True, exist_ok=True)
    _sweep_abandoned(final)
    unfinished = Path(tempfile.mkdtemp(dir=final.parent, prefix=_prefix(final)))
    try:
        yield unfinished
        _as_any_other(unfinished, 0o777)
        for inside in unfinished.rglob("*"):
            _onto_disk(inside)
        _onto_disk(unfinished)
        if final.exists() and not replace:
            return  # somebody else finished the same folder first: keep theirs
        if not final.exists():
            unfinished.rename(final)
        elif not _exchange(unfinished, final):
            _take_the_place(unfinished, final)
        _onto_disk(final.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def recover(path: PathLike) -> None:
    """Put back a folder that a killed process had moved aside to replace it."""
    final = _end_of_links(path)
    with suppress(OSError):  # another process was faster
        for aside in sorted(_left(final, "before"), key=os.path.getmtime, reverse=True):
            if not final.exists() and (aside / final.name).exists():
                (aside / final.name).rename(final)


def _exchange(unfinished: Path, final: Path) -> bool:
    """Let two folders change places in one step; False where the system cannot."""
    if sys.platform != "linux":
        return False
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(renameat2(here, os.fsencode(unfinished), here, os.fsencode(final), exchange) == 0)


def _take_the_place(unfinished: Path, final: Path) -> None:
    """The same in several steps, each of which leaves the old or the new one to be found."""
    aside = Path(tempfile.mkdtemp(dir=final.parent, prefix=_prefix(final, "before")))
    try:
        final.rename(aside / final.name)
        unfinished.rename(final)
    except BaseException:
        recover(final)
        with suppress(OSError):
            aside.rmdir()
        raise
    aside.rename(unfinished)  # a name that is never put back: it is deleted bit by bit


def _prefix(final: Path, what: str = "unfinished") -> str:
    return f".{final.name}-{what}-"


def _left(final: Path, what: str) -> Iterator[Path]:
    return final.parent.glob(f"{glob.escape(_prefix(final, what))}*")


def _end_of_links(path: PathLike) -> Path:
    return Path(os.path.realpath(path))


def _check_place(path: PathLike, final: Path, folder: bool) -> None:
    """Raise an error unless ``final`` is free, or what it should become: a folder or a file."""
    recover(final)
    kind = "a folder" if folder else "a regular file"
    there = final.is_dir() if folder else final.is_file()
    if os.path.lexists(final) and not there:
        raise DataError(
            f"{os.fspath(path)} exists and is not {kind}; it is left as it is. Choose another name."
        )
    above = next(p for p in final.parents if os.path.lexists(p))
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise DataError(
            f"{os.fspath(path)} cannot be written: {above} is not a folder that you may write to. "
            "Choose another name."
        )


def _is_empty(final: Path) -> bool:
    return not any(final.iterdir()) if final.is_dir() else final.stat().st_size == 0


def _as_any_other(unfinished: Path, mode: int) -> None:
    """Temporary files are private; what they become should be as readable as any other file."""
    mask = os.umask(0)
    os.umask(mask)
    unfinished.chmod(mode & ~mask)


def _onto_disk(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, would survive a power cut."""
    if path.is_dir():
        with suppress(OSError):  # not every system can do so for folders
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    else:
        with path.open("rb+") as file:
            os.fsync(file.fileno())


def _sweep_abandoned(final: Path) -> None:
    """Remove what a killed process left beside ``final`` a day or more ago."""
    kinds = ("unfinished", "before") if final.exists() else ("unfinished",)
    for left in [left for kind in kinds for left in _left(final, kind)]:
        with suppress(FileNotFoundError):  # another process sweeps too
            if time.time() - left.stat().st_mtime < _ABANDONED_SECONDS:
                continue
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink()
