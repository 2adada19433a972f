"""Class folders of pictures, in a folder or in a zip, which is read in place, in memory."""

import os
import stat
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from taskscape.arguments import check_flag
from taskscape.errors import DataError
from taskscape.io.files import expanded
from taskscape.pools.cache import cache_key, cached, file_stamp
from taskscape.pools.images import (
    MAX_BYTES,
    SUFFIXES,
    check_colour,
    check_image_size,
    read_pictures,
)
from taskscape.pools.pool import SPLITS, ClassPool, left_out, split_named, with_notes

_VERSION = 2
_SKIP = " Or leave such folders out, with a note: skip_damaged=True (--skip-damaged)."
_LAYOUTS = "class/picture, group/class/picture, or either below train, val and test"

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a tree."""

    parts: Parts
    """The names that lead to it."""
    size: int
    changed: int
    where: str
    """The file, in words for a message."""
    raw: Callable[[], Any]

    def open(self) -> BufferedReader | BytesIO:
        """The entry as an open file."""
        if self.size > MAX_BYTES:
            raise DataError(
                f"{self.where} is {self.size / 2**20:.0f} MB; pictures of at most "
                f"{MAX_BYTES >> 20} MB are read. Shrink or remove it."
            )
        try:
            return self.raw()
        except Exception as error:  # damaged zips raise nearly anything
            raise DataError(
                f"{self.where} cannot be read ({error}). Replace it, or fetch the data again."
            ) from error


class FileTree:
    """The files below a folder or inside a zip, without hidden ones and ``__MACOSX``.

    A zip is listed when first needed: a pool that is in the cache needs its stamp alone.
    ``around`` is what goes before the names of a folder's own files.
    """

    def __init__(self, path: Path, around: Parts = ()) -> None:
        self.path, self.around = path, around
        self.is_zip = not path.is_dir()

    @cached_property
    def _listing(self) -> tuple[list[Entry], dict[Parts, str]]:
        listed = _list_zip(self.path) if self.is_zip else _list_folder(self.path, self.around)
        entries, folders = listed
        return sorted(entries, key=lambda entry: entry.parts), folders

    @property
    def entries(self) -> list[Entry]:
        """The files, in the order of their paths."""
        return self._listing[0]

    @property
    def folders(self) -> dict[Parts, str]:
        """All folders between the root and the files, empty ones too, with their words."""
        return self._listing[1]

    @property
    def stamp(self) -> list[Any]:
        """Changes when any file does."""
        if self.is_zip:
            return file_stamp(self.path)
        return [str(self.path.resolve()), [[*e.parts, e.size, e.changed] for e in self.entries]]

    @property
    def pictures(self) -> list[Entry]:
        """The entries that are pictures by their names."""
        return [e for e in self.entries if e.parts[-1].lower().endswith(SUFFIXES)]

    def empty_folders(self) -> list[str]:
        """Folders without any picture below them."""
        used = {e.parts[:depth] for e in self.pictures for depth in range(1, len(e.parts))}
        return [self.folders[folder] for folder in sorted(self.folders.keys() - used)]

    def refuse_empty_folders(self, remedy: str = "") -> None:
        """A folder without any picture below it is a mistake that would pass unnoticed."""
        empty = self.empty_folders()
        if empty:
            more = f" (and {len(empty) - 1} more)" if len(empty) > 1 else ""
            raise DataError(
                f"{empty[0]} is a folder without pictures{more}. Add some or remove it.{remedy}"
            )


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _list_folder(path: Path, around: Parts) -> tuple[list[Entry], dict[Parts, str]]:
    """Links are followed, except into a folder that holds them: that would never end."""
    entries: list[Entry] = []
    folders: dict[Parts, str] = {}
    for place, inner, names in os.walk(path, followlinks=True, onerror=_refuse):
        folder = Path(place)
        parts = (*around, *folder.relative_to(path).parts)
        inner[:] = [n for n in inner if not _is_hidden(n) and not _leads_up(folder / n)]
        folders |= {(*parts, name): str(folder / name) for name in inner}
        for name in (name for name in names if not _is_hidden(name)):
            file = folder / name
            if file.is_file():
                about, raw = file.stat(), partial(file.open, "rb")
                entries.append(
                    Entry((*parts, name), about.st_size, about.st_mtime_ns, str(file), raw)
                )
            elif name.lower().endswith(SUFFIXES):
                raise DataError(f"{file} is a link to nothing. Restore its target, or drop it.")
    return entries, folders


def _refuse(error: OSError) -> None:
    raise DataError(f"{error.filename} cannot be listed ({error.strerror}).") from error


def _leads_up(folder: Path) -> bool:
    return folder.is_symlink() and folder.parent.resolve().is_relative_to(folder.resolve())


def _list_zip(path: Path) -> tuple[list[Entry], dict[Parts, str]]:
    try:
        archive = zipfile.ZipFile(path)
    except Exception as error:  # damaged zips raise nearly anything
        raise DataError(
            f"{path} is not a readable zip archive ({error}); it may be cut short. Fetch it again."
        ) from error
    entries: dict[Parts, Entry] = {}
    folders: dict[Parts, str] = {}
    for info in archive.infolist():
        # As zipfile itself does when extracting: no name leads out of the archive.
        names = info.filename.replace("\\", "/").split("/")
        parts = tuple(name for name in names if name not in ("", ".", ".."))
        where = f"{path}: member {'/'.join(parts)}"
        if stat.S_ISLNK(info.external_attr >> 16):
            raise DataError(f"{where} is a link. Make the zip again, with the files themselves.")
        if not parts or any(map(_is_hidden, parts)):
            continue
        for depth in range(1, len(parts) + info.is_dir()):
            folders[parts[:depth]] = f"{path}: member {'/'.join(parts[:depth])}"
        if not info.is_dir():
            # small (see Entry.open), and read back and forth
            whole = partial(lambda member: BytesIO(archive.read(member)), info)
            entries[parts] = Entry(parts, info.file_size, 0, where, whole)
    return list(entries.values()), folders


# -- class folders --------------------------------------------------------------------------------


@dataclass
class PictureClass:
    """A class of a folder: its pictures, and the group and split that its place gives it."""

    name: str
    group: str | None
    split: str | None
    entries: list[Entry] = field(default_factory=list)


def load_folder(
    path: str | Path,
    *,
    image_size: Any = None,
    colour: Any = None,
    name: Any = None,
    skip_damaged: Any = False,
) -> ClassPool:
    """Open a folder (or a zip) whose folders are classes and hold pictures.

    The layouts are ``class/picture`` and ``group/class/picture``, each with or without ``train``,
    ``val`` and ``test`` (or synonyms such as ``validation``) above; the depth decides. In a zip a
    single folder around everything is passed over. Hidden files and ``__MACOSX`` are ignored;
    other files that are not pictures are counted in ``pool.info["ignored_files"]``.

    Pictures are stretched to ``image_size``, a number of pixels or (height, width). Left out, those
    that all have the same size of at most 96 pixels keep it, and others become 84×84. Without
    ``colour``, they are in colour if any has some. ``skip_damaged=True`` leaves out unreadable
    pictures and empty folders, with a note in ``pool.info["notes"]``, instead of an error.
    """
    path = expanded(path)
    size, colour = check_image_size(image_size), check_colour(colour)
    skip = check_flag(skip_damaged, "skip_damaged")
    name = path.stem if name is None else str(name)
    tree = FileTree(path)
    key = cache_key("folder", _VERSION, tree.stamp, size, colour, name, skip)
    return cached("folder", key, lambda: _read(tree, name, size, colour, skip))


def _read(
    tree: FileTree, name: str, size: tuple[int, int] | None, colour: bool | None, skip: bool
) -> ClassPool:
    wrapper = _check_depth(tree)
    classes = _classes_of(tree, wrapper)
    if not skip:
        tree.refuse_empty_folders(_SKIP)
    info = {"source": str(tree.path), "ignored_files": len(tree.entries) - len(tree.pictures)}
    pool = pool_of_pictures(
        name, classes, info, names_from=wrapper, size=size, colour=colour, skip_damaged=skip
    )
    return with_notes(pool, *left_out(tree.empty_folders(), "folders have no pictures"))


def pool_of_pictures(
    name: str,
    classes: Sequence[PictureClass],
    info: Mapping[str, Any],
    *,
    names_from: int,
    skip_damaged: bool = False,
    **options: Any,
) -> ClassPool:
    """The pool of these classes, without damaged pictures if they are to be skipped.

    The names of samples are their paths from the part ``names_from`` on; ``options`` are those of
    :func:`read_pictures`.
    """
    entries = [entry for c in classes for entry in c.entries]
    pictures = read_pictures(
        [(e.open, e.where) for e in entries], skip_damaged=skip_damaged, **options
    )
    owner = np.repeat(np.arange(len(classes)), [len(c.entries) for c in classes])
    counts = np.bincount(owner[pictures.kept], minlength=len(classes))
    empty = [c.name for c, count in zip(classes, counts, strict=True) if count == 0]
    notes = [
        *left_out(pictures.damaged, f"of {len(entries):,} pictures could not be read"),
        *left_out(empty, f"of {len(classes):,} classes had no other pictures"),
    ]
    classes = [c for c, count in zip(classes, counts, strict=True) if count > 0]
    if not classes:
        raise DataError(f"{info['source']}: none of its {len(entries)} pictures can be read.")
    counts = counts[counts > 0]
    groups = tuple(c.group for c in classes if c.group is not None)
    splits = tuple(c.split for c in classes if c.split is not None)
    return ClassPool(
        name=name,
        samples=pictures.samples,
        starts=np.cumsum(counts) - counts,
        counts=counts,
        class_names=tuple(c.name for c in classes),
        groups=groups or None,
        splits=splits or None,
        info={**info, "image_size": list(pictures.samples.shape[1:3]), "notes": notes},
        sample_names=tuple("/".join(entries[i].parts[names_from:]) for i in pictures.kept),
    )


# -- layout -------------------------------------------------------------------------------------


def _classes_of(tree: FileTree, wrapper: int) -> list[PictureClass]:
    """The classes of a tree of pictures, from the depth and the names of its folders."""
    pictures = tree.pictures
    depth = len(pictures[0].parts) - 1 - wrapper
    split_of = _split_words(tree, {e.parts[wrapper] for e in pictures}) if depth >= 2 else {}
    levels = depth - bool(split_of)
    if levels > 2:
        raise DataError(
            f"{pictures[0].where}: pictures lie {depth} folders deep; expected {_LAYOUTS}."
        )
    classes: dict[str, PictureClass] = {}
    for entry in pictures:
        folders = entry.parts[wrapper:-1]
        split = split_of.get(folders[0])
        place = folders[1:] if split else folders
        name, group = "/".join(place), place[0] if levels == 2 else None
        known = classes.setdefault(name, PictureClass(name, group, split))
        if known.split != split:
            raise DataError(
                f"class {name!r} is in both {known.split!r} and {split!r} ({entry.where}). "
                "Splits are of classes, not of samples: each class belongs to one split. "
                "Merge its folders, or open a single split's folder."
            )
        known.entries.append(entry)
    return sorted(classes.values(), key=lambda c: SPLITS.index(c.split) if c.split else 0)


def _check_depth(tree: FileTree) -> int:
    """How many folders around everything are passed over; an error unless all lie equally deep."""
    pictures = tree.pictures
    if not pictures:
        other = sorted({Path(e.parts[-1]).suffix for e in tree.entries} - {""})
        others = f"; it has {len(tree.entries)} other files ({', '.join(other[:5])})"
        raise DataError(
            f"{tree.path} has no pictures{others if other else ''}. Expected {_LAYOUTS} (png, jpg, "
            "…); features come as .npz, .parquet or .arrow files, named by their own path."
        )
    first = pictures[0]
    for entry in pictures:
        if len(entry.parts) != len(first.parts):
            raise DataError(
                f"{first.where} and {entry.where} lie at different depths; "
                f"expected all pictures at one depth: {_LAYOUTS}."
            )
    if len(first.parts) < 2:
        raise DataError(
            f"{first.where} lies in no class folder. Put the pictures of each class in a "
            f"folder of its own: {_LAYOUTS}."
        )
    # In a zip, a single folder around everything is neither a class nor a split.
    around = tree.is_zip and len({entry.parts[0] for entry in pictures}) == 1
    return int(around and len(first.parts) > 2 and split_named(first.parts[0]) is None)


def _split_words(tree: FileTree, topmost: Iterable[str]) -> dict[str, str]:
    """What split each topmost folder stands for; nothing if none of them names a split."""
    words = {top: split_named(top) for top in sorted(topmost)}
    named = {top: split for top, split in words.items() if split is not None}
    if named and len(named) < len(words):
        odd = next(top for top in words if top not in named)
        raise DataError(
            f"{tree.path} has a folder {next(iter(named))!r}, which names a split, beside {odd!r}, "
            "which does not. Move or rename one of them."
        )
    return named
