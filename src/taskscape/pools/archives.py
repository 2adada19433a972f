"""Folders and zip archives of files, listed and read in the same careful way.

A zip is read in place, entry by entry and in memory; nothing is ever extracted to disk.
"""

import os
import re
import stat
import zipfile
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader, BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any

from taskscape.errors import DataError
from taskscape.pools.cache import file_stamp
from taskscape.pools.images import MAX_BYTES, SUFFIXES

__all__ = ["Entry", "FileTree", "FolderTree", "ZipTree", "open_tree"]

_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    zlib.error,
    zipfile.BadZipFile,
    NotImplementedError,  # a way to compress that Python does not know
    RuntimeError,  # a password is needed
)
_DRIVE = re.compile(r"^[A-Za-z]:")


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a tree: the names that lead to it, and its size in bytes."""

    parts: tuple[str, ...]
    size: int
    at: Any
    """Where the tree finds it again: a path, or a zip's own record."""
    where: str
    """The file, in words for a message."""


class FileTree(ABC):
    """The files below a folder or inside a zip, without hidden ones and ``__MACOSX``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stamp: Any = None
        """Changes when any file does."""

    def __enter__(self) -> "FileTree":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027 - a folder has nothing to close
        """Let go of the file, if one is held open."""

    @property
    @abstractmethod
    def listing(self) -> tuple[list[Entry], set[tuple[str, ...]]]:
        """All files, and all folders between them and the root."""

    @property
    def entries(self) -> list[Entry]:
        """All files."""
        return self.listing[0]

    @property
    def folders(self) -> set[tuple[str, ...]]:
        """All folders between the root and the files, empty ones too."""
        return self.listing[1]

    @property
    def pictures(self) -> list[Entry]:
        """The entries that are pictures by their names, in the order of their paths."""
        pictures = (e for e in self.entries if e.parts[-1].lower().endswith(SUFFIXES))
        return sorted(pictures, key=lambda e: e.parts)

    @abstractmethod
    def where(self, parts: tuple[str, ...]) -> str:
        """A file or folder of the tree, in words for a message."""

    @abstractmethod
    def _open(self, entry: Entry) -> BufferedReader | BytesIO: ...

    def open(self, entry: Entry) -> BufferedReader | BytesIO:
        """An entry as an open file."""
        if entry.size > MAX_BYTES:
            raise DataError(
                f"{entry.where} is {entry.size / 2**20:.0f} MB; pictures of at most "
                f"{MAX_BYTES >> 20} MB are read. Shrink or remove it."
            )
        try:
            return self._open(entry)
        except _UNREADABLE as error:
            raise DataError(
                f"{entry.where} cannot be read ({error}). Replace it, or fetch the data again."
            ) from error


class FolderTree(FileTree):
    """The files below a folder; links are followed, except into a folder that holds them."""

    def __init__(self, path: Path, prefix: tuple[str, ...] = ()) -> None:
        super().__init__(path)
        self._skip = len(prefix)
        self._found: tuple[list[Entry], set[tuple[str, ...]]] = ([], set())
        self._stamps: list[Any] = []
        root = path.stat()
        self._walk(path, prefix, frozenset({(root.st_dev, root.st_ino)}))
        self.stamp = [str(path.resolve()), self._stamps]

    @property
    def listing(self) -> tuple[list[Entry], set[tuple[str, ...]]]:
        return self._found

    def where(self, parts: tuple[str, ...]) -> str:
        return str(self.path.joinpath(*parts[self._skip :]))

    def _walk(
        self, folder: Path, parts: tuple[str, ...], above: frozenset[tuple[int, int]]
    ) -> None:
        try:
            with os.scandir(folder) as listing:
                children = sorted(listing, key=lambda child: child.name)
        except OSError as error:
            raise DataError(f"{folder} cannot be listed ({error.strerror}).") from error
        for child in children:
            if child.name.startswith(".") or child.name == "__MACOSX":
                continue
            names = (*parts, child.name)
            if child.is_dir():
                self._enter(child, names, above)
            elif child.is_file():
                found_stat = child.stat()
                self._found[0].append(Entry(names, found_stat.st_size, child.path, child.path))
                self._stamps.append([*names, found_stat.st_size, found_stat.st_mtime_ns])
            elif child.name.lower().endswith(SUFFIXES):
                raise DataError(
                    f"{child.path} is a link to nothing. Restore its target or remove it."
                )

    def _enter(
        self, child: os.DirEntry[str], names: tuple[str, ...], above: frozenset[tuple[int, int]]
    ) -> None:
        inner = Path(child.path).stat()
        identity = (inner.st_dev, inner.st_ino)
        if identity not in above:  # a link back up would never end
            self._found[1].add(names)
            self._walk(Path(child.path), names, above | {identity})

    def _open(self, entry: Entry) -> BufferedReader | BytesIO:
        return Path(entry.at).open("rb")


class ZipTree(FileTree):
    """The entries of a zip archive, after refusing names that lead out of it and links.

    The archive is opened when first needed: a pool that is in the cache needs its stamp alone.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.stamp = file_stamp(path)

    @cached_property
    def _zip(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self.path)
        except _UNREADABLE as error:
            raise DataError(
                f"{self.path} is not a readable zip archive ({error}); it may be cut short. "
                "Fetch it again."
            ) from error

    def close(self) -> None:
        if "_zip" in self.__dict__:
            self._zip.close()

    def where(self, parts: tuple[str, ...]) -> str:
        return f"{self.path}: member {'/'.join(parts)}"

    @cached_property
    def listing(self) -> tuple[list[Entry], set[tuple[str, ...]]]:
        entries: dict[tuple[str, ...], Entry] = {}
        folders: set[tuple[str, ...]] = set()
        for info in self._zip.infolist():
            parts = self._safe_parts(info)
            if not parts or any(part[0] == "." or part == "__MACOSX" for part in parts):
                continue
            inside = parts if info.is_dir() else parts[:-1]
            folders.update(inside[:depth] for depth in range(1, len(inside) + 1))
            if info.is_dir():
                continue
            if parts in entries:
                raise DataError(f"{self.where(parts)} is in the archive twice. Make the zip anew.")
            where = f"{self.path}: member {info.filename}"
            entries[parts] = Entry(parts, info.file_size, info, where)
        return list(entries.values()), folders

    def _safe_parts(self, info: zipfile.ZipInfo) -> tuple[str, ...]:
        name = info.filename.replace("\\", "/")
        parts = tuple(part for part in name.split("/") if part not in ("", "."))
        if name.startswith("/") or _DRIVE.match(name) or ".." in parts:
            raise DataError(
                f"{self.path}: member {info.filename!r} leads out of the archive's folder. "
                "Such an archive is not to be trusted; get it from its source."
            )
        if stat.S_ISLNK(info.external_attr >> 16):
            raise DataError(
                f"{self.path}: member {info.filename!r} is a link. Make the zip anew with the "
                "files themselves in it."
            )
        return parts

    def _open(self, entry: Entry) -> BufferedReader | BytesIO:
        # Small enough to hold (see open), and a picture is read back and forth.
        return BytesIO(self._zip.read(entry.at))


def open_tree(path: Path) -> FileTree:
    """The files of a folder or a zip.

    >>> with open_tree(Path("."))  as tree:
    ...     names = [entry.parts for entry in tree.entries]
    """
    return FolderTree(path) if path.is_dir() else ZipTree(path)
