"""A folder, or a zip, of class folders of pictures."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from taskscape.arguments import check_flag
from taskscape.errors import DataError
from taskscape.io.files import expanded
from taskscape.pools.archives import Entry, FileTree, ZipTree, open_tree
from taskscape.pools.cache import cache_key, cached
from taskscape.pools.images import check_colour, check_image_size, read_pictures
from taskscape.pools.notes import left_out
from taskscape.pools.pool import SPLITS, ClassPool, one_split

_VERSION = 2
_SKIP = " Or leave such folders out, with a note: skip_damaged=True (--skip-damaged)."
_LAYOUTS = "class/picture, group/class/picture, or either below train, val and test"


@dataclass
class _PictureClass:
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
    with open_tree(path) as tree:
        key = cache_key("folder", _VERSION, tree.stamp, size, colour, name, skip)
        return cached("folder", key, lambda: _read(tree, name, size, colour, skip))


def _read(
    tree: FileTree, name: str, size: tuple[int, int] | None, colour: bool | None, skip: bool
) -> ClassPool:
    wrapper = _check_depth(tree, tree.pictures)
    classes = _classes_of(tree, tree.pictures, wrapper)
    if not skip:
        refuse_empty_folders(tree, tree.pictures, _SKIP)
    entries = [entry for c in classes for entry in c.entries]
    pictures = read_pictures(
        entries, tree.open, lambda e: e.where, size=size, colour=colour, skip_damaged=skip
    )
    owner = np.repeat(np.arange(len(classes)), [len(c.entries) for c in classes])
    counts = np.bincount(owner[pictures.kept], minlength=len(classes))
    empty = [c.name for c, count in zip(classes, counts, strict=True) if count == 0]
    without = _empty_folders(tree, tree.pictures)
    notes = [
        *left_out(pictures.damaged, f"of {len(entries):,} pictures could not be read"),
        *left_out(empty, f"of {len(classes):,} classes had no other pictures"),
        *left_out(without, "folders have no pictures"),
    ]
    classes = [c for c, count in zip(classes, counts, strict=True) if count > 0]
    if not classes:
        raise DataError(f"{tree.path}: none of its {len(entries)} pictures can be read.")
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
        info={
            "source": str(tree.path),
            "image_size": list(pictures.samples.shape[1:3]),
            "ignored_files": len(tree.entries) - len(entries),
            "notes": notes,
        },
        sample_names=tuple("/".join(entries[i].parts[wrapper:]) for i in pictures.kept),
    )


# -- layout -------------------------------------------------------------------------------------


def _classes_of(tree: FileTree, pictures: Sequence[Entry], wrapper: int) -> list[_PictureClass]:
    """The classes of a tree of pictures, from the depth and the names of its folders."""
    depth = len(pictures[0].parts) - 1 - wrapper
    split_of = _split_words(tree, pictures, wrapper) if depth >= 2 else {}
    levels = depth - bool(split_of)
    if levels > 2:
        raise DataError(
            f"{pictures[0].where}: pictures lie {depth} folders deep; expected {_LAYOUTS}."
        )
    classes: dict[str, _PictureClass] = {}
    for entry in pictures:
        folders = entry.parts[wrapper:-1]
        split = split_of.get(folders[0])
        place = folders[1:] if split else folders
        name, group = "/".join(place), place[0] if levels == 2 else None
        known = classes.setdefault(name, _PictureClass(name, group, split))
        if known.split != split:
            raise DataError(
                f"class {name!r} is in both {known.split!r} and {split!r} ({entry.where}). "
                "Splits here are of classes, not of samples: each class belongs to one split. "
                "Merge its folders, or open a single split's folder."
            )
        known.entries.append(entry)
    return sorted(classes.values(), key=lambda c: SPLITS.index(c.split) if c.split else 0)


def _check_depth(tree: FileTree, pictures: Sequence[Entry]) -> int:
    """How many folders around everything are passed over; an error unless all lie equally deep."""
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
    around = isinstance(tree, ZipTree) and len({entry.parts[0] for entry in pictures}) == 1
    return int(around and len(first.parts) > 2 and _as_split(first.parts[0]) is None)


def refuse_empty_folders(tree: FileTree, pictures: Sequence[Entry], remedy: str = "") -> None:
    """A folder without any picture below it is a mistake that would pass unnoticed."""
    empty = _empty_folders(tree, pictures)
    if empty:
        more = f" (and {len(empty) - 1} more)" if len(empty) > 1 else ""
        raise DataError(
            f"{empty[0]} is a folder without pictures{more}. Add some or remove it.{remedy}"
        )


def _empty_folders(tree: FileTree, pictures: Sequence[Entry]) -> list[str]:
    """Those without any picture below them."""
    used = {e.parts[:depth] for e in pictures for depth in range(1, len(e.parts))}
    return [tree.where(folder) for folder in sorted(tree.folders - used)]


def _as_split(word: str) -> str | None:
    try:
        return one_split(word)
    except DataError:
        return None


def _split_words(tree: FileTree, pictures: Sequence[Entry], wrapper: int) -> dict[str, str]:
    """What split each topmost folder stands for; nothing if none of them names a split."""
    words = {top: _as_split(top) for top in sorted({e.parts[wrapper] for e in pictures})}
    named = {top: split for top, split in words.items() if split is not None}
    if named and len(named) < len(words):
        odd = next(top for top in words if top not in named)
        raise DataError(
            f"{tree.path} has a folder {next(iter(named))!r}, which names a split, beside {odd!r}, "
            "which does not. Move or rename one of them."
        )
    return named
