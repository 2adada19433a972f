"""Atomic writes of files and folders, and never over a user's own."""

import errno
import getpass
import glob
import hashlib
import json
import mmap
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskscape.errors import DataError

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
    """Where to keep what can be made again: ``TASKSCAPE_CACHE``, or the user's cache folder."""
    import platformdirs

    named = os.environ.get("TASKSCAPE_CACHE")
    return expanded(named) if named else Path(platformdirs.user_cache_dir("taskscape"))


# -- what may be replaced -------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of file or folder that taskscape writes, and may therefore replace."""

    name: str
    """In words, such as ``a list of tasks``."""
    is_so: Callable[[Path], object]
    """Tells files that taskscape wrote as this kind from others; it fails, or is false, for those.
    """
    folder: bool = False

    def known(self, path: Path) -> bool:
        """Whether what is there was written by taskscape and is of this kind."""
        try:
            return bool(self.is_so(path))
        except Exception:  # bytes of any other kind raise nearly anything
            return False


def json_with(name: str, *keys: str, **values: str) -> Kind:
    """The kind of JSON files whose top level has these keys and values."""

    def is_so(path: Path) -> bool:
        content = json.loads(path.read_text(encoding="utf-8"))
        return isinstance(content, dict) and {*keys} <= {*content} and content | values == content

    return Kind(name, is_so)


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
    empty = final.exists() and (
        not any(final.iterdir()) if kind.folder else final.stat().st_size == 0
    )
    if final.exists() and not empty and not kind.known(final):
        raise _left_as_it_is(path, f"{kind.name} written by taskscape")


def _end_of_links(path: PathLike) -> Path:
    return Path(os.path.realpath(as_path(path)))


def _check_place(path: PathLike, final: Path, folder: bool) -> None:
    """Raise an error unless ``final`` is free, or what it should become: a folder or a file."""
    if os.path.lexists(final) and not (final.is_dir() if folder else final.is_file()):
        raise _left_as_it_is(path, "a folder" if folder else "a regular file")
    above = next(p for p in (*final.parents, final) if os.path.lexists(p))
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise DataError(
            f"{os.fspath(path)} cannot be written: {above} is not a folder that you may write to. "
            "Choose another name."
        )


def _left_as_it_is(path: PathLike, what: str) -> DataError:
    return DataError(
        f"{os.fspath(path)} exists and is not {what}; it is left as it is. Choose another name."
    )


# -- writing aside, then renaming ---------------------------------------------------------------


@contextmanager
def atomic_write(path: PathLike, kind: Kind | None = None) -> Iterator[Path]:
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
def atomic_folder(path: PathLike, *, replace: bool = True) -> Iterator[Path]:
    """A temporary folder that takes the place of ``path`` if the block succeeds.

    Without ``replace``, a folder that stands there by then is kept. With it, the old one is moved
    aside, the new one takes its name, and the old one is deleted. A process that is killed between
    the first two leaves the old one as ``.NAME-unfinished-…-old``.
    """
    final = _end_of_links(path)
    if replace:
        _check_place(path, final, folder=True)

    name = hashlib.sha256(os.fsencode(final)).hexdigest()[:16]
    lock = Path(tempfile.gettempdir()) / f"taskscape-{getpass.getuser()}-{name}.lock"

    def take_place(unfinished: Path) -> None:
        old = unfinished.with_name(f"{unfinished.name}-old")
        with locked(lock):  # processes that replace one folder take turns
            try:
                if replace and final.exists():
                    final.rename(old)
                unfinished.rename(final)
            except BaseException as error:
                if old.exists() and not final.exists():
                    old.rename(final)
                if replace or not isinstance(error, OSError) or not final.is_dir():
                    raise
            if old.exists():
                old.rename(unfinished)  # what is half deleted is never named as a whole one

    with _written_aside(path, final, take_place) as unfinished:
        unfinished.mkdir()
        yield unfinished


@contextmanager
def full_disk_named(path: PathLike) -> Iterator[None]:
    """Say so in an error where the disk has no room for what a block writes."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise DataError(
            f"{os.fspath(path)} cannot be written: {error.strerror}. What was there before is as "
            "it was. Free some space, or choose another place, and run the same command again "
            "(with --resume, where it has one)."
        ) from error


@contextmanager
def _written_aside(
    path: PathLike, final: Path, take_place: Callable[[Path], object]
) -> Iterator[Path]:
    """A free name beside ``final``; what is written there is put on disk, then takes its place."""
    final.parent.mkdir(parents=True, exist_ok=True)
    beginning = f".{final.name}-unfinished-"
    unfinished = final.with_name(f"{beginning}{secrets.token_hex(4)}")
    try:
        with full_disk_named(path):
            yield unfinished
            for written in (*unfinished.rglob("*"), unfinished):
                _onto_disk(written)
            take_place(unfinished)
            _onto_disk(final.parent)
            remove_leftovers(final.parent, f"{glob.escape(beginning)}*")
    finally:
        _remove(unfinished)


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


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove what is unfinished and named so, unless it has changed within an hour.

    Another process may be at work on the others.
    """
    for left in folder.glob(pattern):
        with suppress(OSError):  # another process removes it too, or it is another user's
            changed = max(path.stat().st_mtime for path in (left, *left.rglob("*")))
            if time.time() - changed > _LEFT_AFTER:
                _remove(left)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, busy: str | None = None) -> Iterator[None]:
    """Keep others that lock the same file out of the block, however this process ends.

    Where another process is in such a block, wait for it; or raise an error that says ``busy``.
    """
    from filelock import FileLock, Timeout

    try:
        with FileLock(path).acquire(timeout=-1 if busy is None else 0):
            yield
    except Timeout:
        raise DataError(str(busy)) from None


# -- checksums ------------------------------------------------------------------------------------


def sha256_of(path: Path) -> str:
    """The checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_MARK, _LENGTH = b"sha256:", 64
NO_CHECKSUM_YET = _MARK.decode() + "0" * _LENGTH
"""Written somewhere into a file, the place that :func:`add_checksum` fills."""


def add_checksum(path: Path) -> None:
    """Write the SHA-256 of a file into itself."""
    place, _, checksum = _own_checksum(path)
    with path.open("rb+") as file:
        file.seek(place)
        file.write(checksum)


def is_as_written(path: Path) -> bool:
    """Whether a file still has the checksum that :func:`add_checksum` wrote into it."""
    _, written, checksum = _own_checksum(path)
    return written == checksum


def _own_checksum(path: Path) -> tuple[int, bytes, bytes]:
    """Where a file holds the SHA-256 of all its other bytes, what stands there, and what it is."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        begin = raw.rfind(_MARK) + len(_MARK)
        end = begin + _LENGTH
        digest = hashlib.sha256()
        with memoryview(raw) as content:
            digest.update(content[:begin])
            digest.update(content[end:])
        return begin, raw[begin:end], digest.hexdigest().encode()
