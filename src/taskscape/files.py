"""Files and folders that appear in one piece or not at all, and never over a user's own."""

import csv
import errno
import glob
import hashlib
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from taskscape.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PathLike = str | os.PathLike[str]

_LEFT_AFTER = 3600
"""Seconds without a change after which an unfinished file is a leftover of a killed process."""

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says where there is no room to write."""


def as_path(path: Any) -> Path:
    """A path of a file or folder; an error for what cannot be one."""
    if not isinstance(path, str | os.PathLike) or not str(path) or "\0" in str(path):
        raise DataError(f"{path!r} is not the path of a file or folder.")
    return Path(path)


def expanded(path: Any) -> Path:
    """A path in which ``~`` and ``~name`` stand for home folders."""
    try:
        return as_path(path).expanduser()
    except RuntimeError:
        raise DataError(
            f"{os.fspath(path)}: the home folder is not known. Write the whole path out."
        ) from None


def cache_dir() -> Path:
    """What can be made again is kept in ``TASKSCAPE_CACHE``, or else in the user's cache folder."""
    import platformdirs

    named = os.environ.get("TASKSCAPE_CACHE")
    return expanded(named) if named else Path(platformdirs.user_cache_dir("taskscape"))


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
        return has_columns(header, columns, more)

    return Kind(name, known)


def has_columns(names: Sequence[str], columns: Sequence[str], more: str | None) -> bool:
    """Whether a table has exactly these columns, then any whose names begin with ``more``."""
    first, rest = names[: len(columns)], names[len(columns) :]
    return tuple(first) == tuple(columns) and all(
        more is not None and name.startswith(more) for name in rest
    )


_ENDINGS = (".png", ".svg", ".pdf")

PICTURE = Kind("a picture", lambda path: path.suffix.lower() in _ENDINGS)
"""Drawn again over any file that has such an ending."""


def save_picture(
    figure: "Figure", path: PathLike, kind: Kind | None = PICTURE, **options: Any
) -> None:
    """Write a figure in one piece."""
    ending = Path(path).suffix[1:].lower() or "png"
    if ending not in figure.canvas.get_supported_filetypes():
        raise DataError(
            f"{os.fspath(path)}: a picture cannot end in .{ending}. Use .png, .svg or .pdf."
        )
    undated = {"Date": None} if ending == "svg" else None  # the same figure gives the same file
    with written_in_one_piece(path, kind) as unfinished:
        figure.savefig(unfinished, format=ending, metadata=undated, **options)


@contextmanager
def picture(
    path: PathLike | None, width: float, height: float, *, dpi: int = 200,
    kind: Kind | None = PICTURE,
) -> Iterator["Figure"]:  # fmt: skip
    """A figure to draw into, of so many inches and in one style; then written, if to a ``path``."""
    from matplotlib import rc_context

    from taskscape.notebook import shown_figure

    style: Any = {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "taskscape",
        "pdf.fonttype": 42,
    }
    with rc_context(style):
        figure = shown_figure(width, height)
        yield figure
        if path is not None:
            save_picture(figure, path, kind, dpi=dpi)


def sha256_of(path: Path) -> str:
    """The checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_CHECKSUM = "checksum"


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values with a checksum of all of them, so that a later change is noticed."""
    return {**values, _CHECKSUM: _checksum(values)}


def check_seal(values: Mapping[str, Any], path: PathLike, remedy: str) -> dict[str, Any]:
    """The values that :func:`sealed` was given; an error if they changed since then.

    Values without a checksum pass.
    """
    if _CHECKSUM in values and values[_CHECKSUM] != _checksum(values):
        raise DataError(
            f"{os.fspath(path)} is damaged or was edited: it does not match its own checksum. "
            f"{remedy}"
        )
    return {key: value for key, value in values.items() if key != _CHECKSUM}


def _checksum(values: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in values.items() if key != _CHECKSUM}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


@contextmanager
def damage_named(path: PathLike, what: str) -> Iterator[None]:
    """Values of a file that are missing or of a wrong type are the file's fault, and named so."""
    try:
        yield
    except DataError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise DataError(
            f"{os.fspath(path)} is damaged: it does not hold what belongs into {what} "
            f"({type(error).__name__}: {error}). Make it again."
        ) from error


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
            text = json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False)
            file.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls: type[ResultT], path: PathLike) -> ResultT:
        """The result that :meth:`save` wrote; an error for a file of another kind."""
        file = as_path(path)
        if not file.is_file():
            raise DataError(f"no such file: {os.fspath(path)}.")
        if not cls.file.known(file):
            raise DataError(f"{os.fspath(path)} is not {cls.file.name} written by taskscape.")
        with damage_named(path, cls.file.name):
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
    with _written_aside(path, final, lambda unfinished: unfinished.replace(final)) as unfinished:
        unfinished.touch()
        yield unfinished


@contextmanager
def folder_in_one_piece(path: PathLike, *, replace: bool = True) -> Iterator[Path]:
    """A temporary folder that takes the place of ``path`` if the block succeeds.

    Without ``replace``, a folder that stands there by then is kept. With it, the old one is moved
    aside, the new one takes its name, and the old one is deleted. A process that is killed between
    the first two leaves the old one as ``.NAME-unfinished-…-old``.
    """
    final = _end_of_links(path)
    if replace:
        _check_place(path, final, folder=True)

    def take_place(unfinished: Path) -> None:
        with locked_folder(final.parent):  # processes that replace one folder take turns
            if not _take_free_place(unfinished, final) and replace:
                _replace_folder(unfinished, final)

    with _written_aside(path, final, take_place) as unfinished:
        unfinished.mkdir()
        yield unfinished


@contextmanager
def _written_aside(
    path: PathLike, final: Path, take_place: Callable[[Path], object]
) -> Iterator[Path]:
    """A free name beside ``final``; what is written there is put on disk, then takes its place."""
    final.parent.mkdir(parents=True, exist_ok=True)
    beginning = f".{final.name}-unfinished-"
    unfinished = final.with_name(f"{beginning}{secrets.token_hex(4)}")
    try:
        yield unfinished
        for written in (*unfinished.rglob("*"), unfinished):
            _onto_disk(written)
        take_place(unfinished)
        _onto_disk(final.parent)
        remove_leftovers(final.parent.glob(f"{glob.escape(beginning)}*"))
    except OSError as error:
        raise _explained(error, path) from error
    finally:
        _remove(unfinished)


def _explained(error: OSError, path: PathLike) -> Exception:
    """What to say where there is no room to write; other errors stay as they are."""
    if error.errno not in DISK_FULL:
        return error
    return DataError(
        f"{os.fspath(path)} cannot be written: {error.strerror}. What was there before is as it "
        "was. Free some space, or choose another place, and run the same command again (with "
        "--resume, where it has one)."
    )


def lock_open_file(file: int, *, wait: bool = True) -> bool:
    """Lock an open file until it is closed; False where another process holds it.

    Where the system has no such locks, nothing is locked.
    """
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # some network file systems have no locks
        return True
    return True


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep others that ask for it out of the block; however this process ends, it is free again."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        lock_open_file(descriptor)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder; however this process ends, the folder is free again."""
    path = folder / ".running"
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not lock_open_file(file, wait=False):
                runner = os.read(file, 32).decode(errors="replace").strip()
                raise DataError(
                    f"another run (process {runner or 'not known'}) works in {folder}. Wait until "
                    "it has ended, or use another --out."
                )
            if not path.exists() or not os.path.samestat(os.fstat(file), path.stat()):
                continue  # the run before has just ended and removed it
            os.truncate(file, 0)
            os.write(file, f"{os.getpid()}\n".encode())
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return
        finally:
            os.close(file)


def _take_free_place(unfinished: Path, final: Path) -> bool:
    """Move a folder to where there is none; False where there is one, perhaps since a moment."""
    if final.exists():
        return False
    try:
        unfinished.rename(final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _replace_folder(unfinished: Path, final: Path) -> None:
    """Move the old folder aside and the new one into its place; put it back if that fails.

    The old one then has the name of what is unfinished, and is deleted as such.
    """
    old = unfinished.with_name(f"{unfinished.name}-old")
    try:
        final.rename(old)
        unfinished.rename(final)
    except BaseException:
        if old.exists() and not final.exists():
            old.rename(final)
        raise
    old.rename(unfinished)  # a folder that is half deleted is never named as a whole one


def remove_leftovers(unfinished: Iterable[Path]) -> None:
    """Remove those of some unfinished files and folders that nobody has changed for an hour.

    Another process may be at work on the others.
    """
    for left in unfinished:
        with suppress(OSError):  # another process removes it too, or it is another user's
            changed = max(path.stat().st_mtime for path in (left, *left.rglob("*")))
            if time.time() - changed > _LEFT_AFTER:
                _remove(left)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _end_of_links(path: PathLike) -> Path:
    return Path(os.path.realpath(as_path(path)))


def _check_place(path: PathLike, final: Path, folder: bool) -> None:
    """Raise an error unless ``final`` is free, or what it should become: a folder or a file."""
    kind = "a folder" if folder else "a regular file"
    there = final.is_dir() if folder else final.is_file()
    if os.path.lexists(final) and not there:
        raise DataError(
            f"{os.fspath(path)} exists and is not {kind}; it is left as it is. Choose another name."
        )
    above = next(p for p in (*final.parents, final) if os.path.lexists(p))
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise DataError(
            f"{os.fspath(path)} cannot be written: {above} is not a folder that you may write to. "
            "Choose another name."
        )


def _is_empty(final: Path) -> bool:
    return not any(final.iterdir()) if final.is_dir() else final.stat().st_size == 0


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
