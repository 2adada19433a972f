"""A folder, or a zip, of class folders of pictures."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from taskscape.errors import DataError
from taskscape.pools.archives import Entry, FileTree, ZipTree, open_tree
from taskscape.pools.cache import cache_key, cached
from taskscape.pools.images import (
    careful_decoding,
    check_colour,
    check_image_size,
    has_colour,
    open_picture,
    picture_array,
    upright_size,
)
from taskscape.pools.pool import SPLITS, ClassPool, parse_split
from taskscape.progress import progress_bar, track

__all__ = ["PictureClass", "classes_of", "load_folder", "refuse_empty_folders"]

_VERSION = 1
_KEEP_UP_TO = 96
_USUAL_SIZE = 84
_CHUNK = 64
_LAYOUTS = "class/picture, group/class/picture, or either below train, val and test"


@dataclass
class PictureClass:
    """A class of a folder: its pictures, and the group and split that its place gives it."""

    name: str
    group: str | None
    split: str | None
    entries: list[Entry] = field(default_factory=list)


def load_folder(
    path: str | Path, *, image_size: Any = None, colour: Any = None, name: Any = None
) -> ClassPool:
    """Open a folder (or a zip) whose folders are classes and hold pictures.

    The layouts are ``class/picture`` and ``group/class/picture``, each with or without ``train``,
    ``val`` and ``test`` (or synonyms such as ``validation``) above; the depth decides. In a zip a
    single folder around everything is passed over. Hidden files and ``__MACOSX`` are ignored, and
    so are files that are not pictures, which ``pool.info["ignored_files"]`` counts.

    ``image_size`` is a number of pixels or (height, width); pictures are stretched to it. Left
    out, pictures that all have the same size of at most 96 pixels keep it, and others become 84×84.
    ``colour`` left out means colour if any picture has some. Transparency shows white paper.

    >>> load_folder("birds", image_size=84)  # doctest: +SKIP
    ClassPool('birds': 100 classes, 60,000 samples of 84×84×3)
    """
    path = Path(path).expanduser()
    size, colour = check_image_size(image_size), check_colour(colour)
    name = path.stem if name is None else str(name)
    with open_tree(path) as tree:
        key = cache_key("folder", _VERSION, tree.stamp, size, colour, name)
        return cached("folder", key, lambda: _read(tree, name, size, colour))


def _read(
    tree: FileTree, name: str, size: tuple[int, int] | None, colour: bool | None
) -> ClassPool:
    classes = classes_of(tree)
    entries = [entry for c in classes for entry in c.entries]
    with careful_decoding():
        found_size, found_colour = _look_at_headers(tree, entries)
        size = size or found_size
        samples = _decode(tree, entries, size, found_colour if colour is None else colour)
    if colour is None and samples.ndim == 4 and _is_grey(samples):
        samples = np.ascontiguousarray(samples[..., 0])
    counts = np.array([len(c.entries) for c in classes], dtype=np.int64)
    groups = tuple(c.group for c in classes if c.group is not None)
    splits = tuple(c.split for c in classes if c.split is not None)
    return ClassPool(
        name=name,
        samples=samples,
        starts=np.cumsum(counts) - counts,
        counts=counts,
        class_names=tuple(c.name for c in classes),
        groups=groups or None,
        splits=splits or None,
        info={
            "source": str(tree.path),
            "image_size": list(size),
            "ignored_files": len(tree.entries) - len(entries),
        },
    )


# -- layout -------------------------------------------------------------------------------------


def classes_of(tree: FileTree) -> list[PictureClass]:
    """The classes of a tree of pictures, from the depth and the names of its folders."""
    pictures = tree.pictures
    if not pictures:
        raise _no_pictures(tree)
    wrapper = _wrapper(pictures) if isinstance(tree, ZipTree) else 0
    refuse_empty_folders(tree, pictures)
    depth = _depth(tree, pictures, wrapper)
    split_words = _split_words(tree, pictures, wrapper) if depth >= 2 else {}
    levels = depth - bool(split_words)
    if not 1 <= levels <= 2:
        raise DataError(
            f"{pictures[0].where}: pictures lie {depth} folders deep; expected {_LAYOUTS}."
        )
    classes: dict[str, PictureClass] = {}
    for entry in pictures:
        folders = entry.parts[wrapper:-1]
        split = split_words.get(folders[0])
        place = folders[1:] if split else folders
        name = "/".join(place)
        known = classes.setdefault(
            name, PictureClass(name, place[0] if levels == 2 else None, split)
        )
        if known.split != split:
            raise DataError(
                f"class {name!r} is in both {known.split!r} and {split!r} ({entry.where}). "
                "Splits here are of classes, not of samples: each class belongs to one split. "
                "Merge its folders, or open a single split's folder."
            )
        known.entries.append(entry)
    return sorted(classes.values(), key=lambda c: SPLITS.index(c.split) if c.split else 0)


def _no_pictures(tree: FileTree) -> DataError:
    other = sorted({Path(e.parts[-1]).suffix for e in tree.entries} - {""})
    others = f"; it has {len(tree.entries)} other files ({', '.join(other[:5])})" if other else ""
    return DataError(
        f"{tree.path} has no pictures{others}. Expected {_LAYOUTS} (png, jpg, …); "
        "features come as .npz, .parquet or .arrow files, named by their own path."
    )


def _wrapper(pictures: Sequence[Entry]) -> int:
    """1 if everything lies in one folder that is neither a class nor a split."""
    tops = {entry.parts[0] for entry in pictures}
    deep = all(len(entry.parts) > 2 for entry in pictures)
    return int(len(tops) == 1 and deep and _as_split(next(iter(tops))) is None)


def refuse_empty_folders(tree: FileTree, pictures: Sequence[Entry]) -> None:
    """A folder without any picture below it is a mistake that would pass unnoticed."""
    used = {e.parts[:depth] for e in pictures for depth in range(1, len(e.parts))}
    empty = sorted(tree.folders - used)
    if empty:
        more = f" (and {len(empty) - 1} more)" if len(empty) > 1 else ""
        raise DataError(
            f"{tree.where(empty[0])} is a folder without pictures{more}. Add some or remove it."
        )


def _depth(tree: FileTree, pictures: Sequence[Entry], wrapper: int) -> int:
    first, depth = pictures[0], len(pictures[0].parts)
    for entry in pictures:
        if len(entry.parts) != depth:
            raise DataError(
                f"{first.where} and {entry.where} lie at different depths; "
                f"expected all pictures at one depth: {_LAYOUTS}."
            )
    if depth - 1 - wrapper < 1:
        raise DataError(
            f"{first.where} lies in no class folder. Put the pictures of each class in a "
            f"folder of its own: {_LAYOUTS}."
        )
    return depth - 1 - wrapper


def _as_split(word: str) -> str | None:
    try:
        return parse_split(word)[0] if "+" not in word else None
    except DataError:
        return None


def _split_words(tree: FileTree, pictures: Sequence[Entry], wrapper: int) -> dict[str, str]:
    """What split each topmost folder stands for; nothing if none of them names a split."""
    tops = sorted({entry.parts[wrapper] for entry in pictures})
    words = {top: _as_split(top) for top in tops}
    odd = [top for top, split in words.items() if split is None]
    if odd and len(odd) < len(tops):
        named = next(top for top in tops if words[top])
        raise DataError(
            f"{tree.path} has a folder {named!r}, which names a split, beside {odd[0]!r}, which "
            "does not. Move or rename one of them."
        )
    return {top: split for top, split in words.items() if split is not None}


# -- pixels -------------------------------------------------------------------------------------


def _look_at_headers(tree: FileTree, entries: Sequence[Entry]) -> tuple[tuple[int, int], bool]:
    """The size to use and whether there may be colour; damaged headers are found here, early."""
    sizes: set[tuple[int, int]] = set()
    colour = False
    for entry in track(entries, "looking at pictures"):
        with tree.open(entry) as file:
            picture = open_picture(file, entry.where)
            sizes.add(upright_size(picture))
            colour = colour or has_colour(picture)
    only = next(iter(sizes))
    keep = len(sizes) == 1 and max(only) <= _KEEP_UP_TO
    return (only if keep else (_USUAL_SIZE, _USUAL_SIZE)), colour


def _decode(
    tree: FileTree, entries: Sequence[Entry], size: tuple[int, int], colour: bool
) -> UInt8[np.ndarray, "rows height width *channels"]:
    samples = np.empty((len(entries), *size, *((3,) if colour else ())), dtype=np.uint8)

    def decode_from(start: int) -> int:
        some = entries[start : start + _CHUNK]
        for row, entry in enumerate(some, start):
            with tree.open(entry) as file:
                samples[row] = picture_array(file, entry.where, size, colour=colour)
        return len(some)

    # PIL decodes and resizes without Python's lock, so threads do help.
    threads = ThreadPoolExecutor(min(8, os.cpu_count() or 1))
    try:
        with progress_bar("reading pictures", total=len(entries)) as advance:
            for done in threads.map(decode_from, range(0, len(entries), _CHUNK)):
                advance(done)
    finally:
        threads.shutdown(cancel_futures=True)
    return samples


def _is_grey(samples: UInt8[np.ndarray, "rows height width 3"]) -> bool:
    """Whether pictures stored in colour hold none; looked at in blocks to spare memory."""
    return all(
        bool((block[..., 1:] == block[..., :1]).all())
        for block in (samples[at : at + 1024] for at in range(0, len(samples), 1024))
    )
