"""Folders and zip archives of files, listed and read in the same way.

A zip is read in place, entry by entry and in memory; nothing is ever extracted to disk.
"""

import os
import stat
import zipfile
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

from taskscape.errors import DataError
from taskscape.pools.cache import file_stamp
from taskscape.pools.images import MAX_BYTES, SUFFIXES

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a tree: the names that lead to it, and its size in bytes."""

    parts: Parts
    size: int
    at: Any
    """Where the tree finds it again: a path, or a zip's own record."""
    where: str
    """The file, in words for a message."""


class FileTree:
    """The files below a folder or inside a zip, without hidden ones and ``__MACOSX``."""

    path: Path
    stamp: Any
    """Changes when any file does."""
    entries: list[Entry]
    folders: set[Parts]
    """All folders between the root and the files, empty ones too."""

    def __enter__(self) -> "FileTree":
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the file, if one is held open."""

    @property
    def pictures(self) -> list[Entry]:
        """The entries that are pictures by their names, in the order of their paths."""
        pictures = (e for e in self.entries if e.parts[-1].lower().endswith(SUFFIXES))
        return sorted(pictures, key=lambda e: e.parts)

    def where(self, parts: Parts) -> str:
        """A file or folder of the tree, in words for a message."""
        return str(self.path.joinpath(*parts))

    def _open(self, entry: Entry) -> BufferedReader | BytesIO:
        return Path(entry.at).open("rb")

    def open(self, entry: Entry) -> BufferedReader | BytesIO:
        """An entry as an open file."""
        if entry.size > MAX_BYTES:
            raise DataError(
                f"{entry.where} is {entry.size / 2**20:.0f} MB; pictures of at most "
                f"{MAX_BYTES >> 20} MB are read. Shrink or remove it."
            )
        try:
            return self._open(entry)
        except Exception as error:  # damaged zips raise nearly anything
            raise DataError(
                f"{entry.where} cannot be read ({error}). Replace it, or fetch the data again."
            ) from error


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


class FolderTree(FileTree):
    """The files below a folder; links are followed, except into a folder that holds them."""

    def __init__(self, path: Path, prefix: Parts = ()) -> None:
        self.path, self._skip = path, len(prefix)
        self.entries, self.folders = [], set()
        stamps = []
        for place, inner, names in os.walk(path, followlinks=True, onerror=_refuse):
            folder = Path(place)
            parts = (*prefix, *folder.relative_to(path).parts)
            inner[:] = [n for n in inner if not _is_hidden(n) and not _leads_up(folder / n)]
            self.folders.update((*parts, name) for name in inner)
            for name in (name for name in names if not _is_hidden(name)):
                file = folder / name
                if file.is_file():
                    about = file.stat()
                    self.entries.append(Entry((*parts, name), about.st_size, file, str(file)))
                    stamps.append([*parts, name, about.st_size, about.st_mtime_ns])
                elif name.lower().endswith(SUFFIXES):
                    raise DataError(f"{file} is a link to nothing. Restore its target, or drop it.")
        self.entries.sort(key=lambda entry: entry.parts)
        self.stamp = [str(path.resolve()), sorted(stamps, key=lambda stamp: stamp[:-2])]

    def where(self, parts: Parts) -> str:
        return str(self.path.joinpath(*parts[self._skip :]))


def _refuse(error: OSError) -> None:
    raise DataError(f"{error.filename} cannot be listed ({error.strerror}).") from error


def _leads_up(folder: Path) -> bool:
    """Whether a folder is a link to one that holds it: following it would never end."""
    return folder.is_symlink() and folder.parent.resolve().is_relative_to(folder.resolve())


class ZipTree(FileTree):
    """The entries of a zip archive.

    The archive is opened when first needed: a pool that is in the cache needs its stamp alone.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.stamp = path, file_stamp(path)

    @cached_property
    def _zip(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self.path)
        except Exception as error:  # damaged zips raise nearly anything
            raise DataError(
                f"{self.path} is not a readable zip archive ({error}); it may be cut short. "
                "Fetch it again."
            ) from error

    def __exit__(self, *_: object) -> None:
        if "_zip" in self.__dict__:
            self._zip.close()

    def where(self, parts: Parts) -> str:
        return f"{self.path}: member {'/'.join(parts)}"

    @cached_property
    def _listing(self) -> tuple[list[Entry], set[Parts]]:
        entries: dict[Parts, Entry] = {}
        folders: set[Parts] = set()
        for info in self._zip.infolist():
            # As zipfile itself does when extracting: no name leads out of the archive.
            names = info.filename.replace("\\", "/").split("/")
            parts = tuple(name for name in names if name not in ("", ".", ".."))
            if stat.S_ISLNK(info.external_attr >> 16):
                raise DataError(
                    f"{self.where(parts)} is a link. Make the zip again, with the files themselves."
                )
            if parts and not any(map(_is_hidden, parts)):
                n_folders = len(parts) if info.is_dir() else len(parts) - 1
                folders.update(parts[:depth] for depth in range(1, n_folders + 1))
                if not info.is_dir():
                    where = f"{self.path}: member {info.filename}"
                    entries[parts] = Entry(parts, info.file_size, info, where)
        return list(entries.values()), folders

    @property
    def entries(self) -> list[Entry]:  # type: ignore[override]
        return self._listing[0]

    @property
    def folders(self) -> set[Parts]:  # type: ignore[override]
        return self._listing[1]

    def _open(self, entry: Entry) -> BufferedReader | BytesIO:
        # Small enough to hold (see open), and a picture is read back and forth.
        return BytesIO(self._zip.read(entry.at))


def open_tree(path: Path) -> FileTree:
    """The files of a folder or a zip."""
    return FolderTree(path) if path.is_dir() else ZipTree(path)
