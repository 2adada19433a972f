"""Omniglot: 1,623 handwritten characters of 50 alphabets, each drawn by 20 people.

B. M. Lake, R. Salakhutdinov, J. B. Tenenbaum, "Human-level concept learning through probabilistic
program induction", Science 350 (2015). https://github.com/brendenlake/omniglot
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from taskscape.arguments import check_flag
from taskscape.errors import DataError
from taskscape.io.files import expanded
from taskscape.pools.cache import cache_key, cached, data_dir
from taskscape.pools.folders import FileTree, PictureClass, pool_of_pictures
from taskscape.pools.images import Smooth, check_image_size
from taskscape.pools.pool import ClassPool

HALVES = {"images_background": "train", "images_evaluation": "test"}
"""The two halves of the official release, and the split that each is."""

_VERSION = 2
_PLACES = ("", "omniglot", "omniglot-py")
_EXPECTED = (
    "images_background and images_evaluation as folders or .zip files, "
    "or one omniglot.zip with both"
)


def locate_omniglot() -> Path | None:
    """The folder or zip below :func:`~taskscape.pools.cache.data_dir` with both halves, if any."""
    for place in _PLACES:
        folder = data_dir() / place
        if (folder / "omniglot.zip").is_file():
            return folder / "omniglot.zip"
        if all((folder / h).is_dir() or (folder / f"{h}.zip").is_file() for h in HALVES):
            return folder
    return None


def looks_like_omniglot(path: Path) -> bool:
    """Whether a folder or zip is laid out like the official release."""
    if path.is_dir():
        return path.name in HALVES or any(
            (path / h).is_dir() or (path / f"{h}.zip").is_file() for h in HALVES
        )
    return any(half in parts for parts in FileTree(path).folders for half in HALVES)


def load_omniglot(
    *, image_size: Any = 28, path: Any = None, skip_damaged: Any = False
) -> ClassPool:
    """Open the official release of Omniglot: folders or zips, at ``path`` or among known data.

    A class is a character, named ``"Alphabet/characterNN"``; its group is the alphabet. The split
    is the official one: background is train, evaluation is test. The pictures are black ink on
    white; here ink is 255 on a background of 0, so that empty paper is zero. They are shrunk,
    antialiased, from 105×105 to ``image_size``. ``skip_damaged=True`` leaves out drawings that
    cannot be read.
    """
    size = check_image_size(image_size) or (28, 28)
    skip = check_flag(skip_damaged, "skip_damaged")
    place = locate_omniglot() if path is None else expanded(path)
    if place is None or not place.exists():
        at = data_dir() if place is None else place
        raise DataError(f"no Omniglot at {at}: expected {_EXPECTED}.")
    trees = _halves(place)
    key = cache_key(_VERSION, [tree.stamp for tree in trees], size, skip)
    return cached("omniglot", key, lambda: _read(trees, size, place, skip))


def _halves(path: Path) -> list[FileTree]:
    if path.is_file():
        return [FileTree(path)]
    if path.name in HALVES:
        return [FileTree(path, (path.name,))]
    if (path / "omniglot.zip").is_file():
        return [FileTree(path / "omniglot.zip")]
    places = (path / half if (path / half).is_dir() else path / f"{half}.zip" for half in HALVES)
    return [FileTree(place, (place.name,)) for place in places if place.exists()]


def _read(trees: Sequence[FileTree], size: tuple[int, int], path: Path, skip: bool) -> ClassPool:
    classes: dict[tuple[str, str, str], PictureClass] = {}
    for tree in trees:
        if not skip:
            tree.refuse_empty_folders()
        for entry in tree.pictures:
            half = next((h for h in HALVES if h in entry.parts), None)
            if half is None:
                continue
            names = entry.parts[entry.parts.index(half) + 1 :]
            if len(names) != 3:
                raise DataError(f"{entry.where}: expected {half}/alphabet/character/drawing.png.")
            alphabet, character, _ = names
            empty = PictureClass(f"{alphabet}/{character}", alphabet, HALVES[half])
            classes.setdefault((half, alphabet, character), empty).entries.append(entry)
    if not classes:
        raise DataError(f"{path} is not Omniglot: expected {_EXPECTED}.")
    ordered = [classes[c] for c in sorted(classes)]
    info = {"source": str(path), "ink": 255, "background": 0}
    pool = pool_of_pictures(
        "omniglot", ordered, info, names_from=-3, size=size, colour=False, skip_damaged=skip,
        smooth=Smooth.HAMMING,
    )  # fmt: skip
    return replace(pool, samples=255 - pool.samples)
