"""The embedded default pool: letters of fifteen scripts, drawn from the fonts inside matplotlib.

Nothing is downloaded. A class is a letter, its group is its script, and every script lies wholly in
one split. Images are grey, with bright ink (255) on black (0), as in most few-shot work.

Scripts borrow letters from each other: Latin A, Greek Α and Cyrillic А are one drawing. Such
look-alikes are found by comparing canonical drawings, and each drawing is kept only once, in the
script that comes first in :data:`SCRIPTS`. So no letter of one split has a double in another.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import matplotlib
import numpy as np
import PIL
from jaxtyping import Bool
from PIL import features

from taskscape.errors import DataError
from taskscape.pools.cache import cache_key, cached
from taskscape.pools.glyph_drawing import (
    FACE_NAMES,
    Shape,
    canonical,
    draw,
    open_faces,
    shape_of,
    unmatched_ink,
)
from taskscape.pools.pool import SPLITS, ClassPool
from taskscape.progress import track
from taskscape.seeds import Seed, check_seed

__all__ = ["SCRIPTS", "Script", "load_glyphs"]

_DRAWING_VERSION = 1
"""Raise it whenever a change of the code changes a drawing: it is part of the cache key."""

_TILE = 64
_IMAGE_SIZES = (8, 256)
_BLOB = 0.1
"""What is thicker than this share of its size is a dot or a fragment, and nobody's letter."""

SAME_DRAWING = 7.5
TOLERANCE_WITHIN_SPLIT = 1
TOLERANCE_ACROSS_SPLITS = 2
"""Two letters are one drawing if less than so many pixels of ink are unmatched within a tolerance.

Chosen by eye on sheets of pairs in order of distance. Within a split, pairs below it are doubles
or a letter and its small capital; the first true distinctions are the dots of Arabic qaf and qaf
with three dots, at 8.5. Across splits the wider tolerance also catches letters drawn a little
differently (Latin and Old Italic K, at 3.9, and F, at 5.9); beyond it true distinctions prevail
(Latin o and Greek σ, at 9.4).
"""


@dataclass(frozen=True)
class Script:
    """A writing system: how Unicode names its letters, how we call it, and its split."""

    prefix: str
    name: str
    split: str
    faces: tuple[str, ...] = FACE_NAMES
    """The faces that draw its letters; fewer where the others hold to another design."""


# In the order in which look-alikes are kept: training first, so that it loses nothing. Every split
# has scripts of several kinds, and validation and test have relatives of training scripts next to
# strangers: Old Italic and Coptic, Greek and Armenian are cousins of Latin and Cyrillic; Ogham and
# Tifinagh are built of bars and circles as Canadian syllabics are; N'Ko and Arabic run from right
# to left as Hebrew does; nothing in training is written like Georgian or Lao. Of the classes 69 %
# are for training, 13 % for validation and 18 % for test.
SCRIPTS = (
    Script("LATIN", "Latin", "train"),
    Script("CYRILLIC", "Cyrillic", "train"),
    Script("CANADIAN SYLLABICS", "Canadian syllabics", "train"),
    Script("HEBREW", "Hebrew", "train"),
    Script("LISU", "Lisu", "train"),
    Script("GEORGIAN", "Georgian", "val", ("DejaVuSans", "DejaVuSans-Bold")),
    Script("NKO", "N'Ko", "val"),
    Script("OGHAM", "Ogham", "val"),
    Script("COPTIC", "Coptic", "val"),
    Script("OLD ITALIC", "Old Italic", "val"),
    Script("ARABIC", "Arabic", "test"),
    Script("GREEK", "Greek", "test"),
    Script("ARMENIAN", "Armenian", "test"),
    Script("TIFINAGH", "Tifinagh", "test"),
    Script("LAO", "Lao", "test"),
)


@dataclass(frozen=True)
class Letter:
    """A character, its script, and its shape in every face that has it."""

    character: str
    script: Script
    shapes: Mapping[str, Shape]

    @property
    def class_name(self) -> str:
        """Script and letter in plain ASCII, such as ``Greek/small xi``."""
        name = unicodedata.name(self.character).removeprefix(self.script.prefix + " ")
        words = [word for word in name.lower().split() if word != "letter"]
        return f"{self.script.name}/{' '.join(words)}"


def load_glyphs(*, seed: Seed = 0, n_drawings: int = 20, image_size: int = 28) -> ClassPool:
    """Letters of fifteen scripts, each drawn many times by different hands; ink is bright.

    The drawings of a letter depend on the seed and the letter alone. The first call draws the pool,
    which takes some seconds; later ones read it from the cache.
    """
    low, high = _IMAGE_SIZES
    start = check_seed(seed)
    if n_drawings < 1:
        raise DataError(f"n_drawings={n_drawings}: a letter needs at least 1 drawing. Raise it.")
    if not low <= image_size <= high:
        raise DataError(
            f"image_size={image_size} is not within {low} to {high} pixels. "
            "Choose such a size; 28 is usual."
        )
    made_with = [
        PIL.__version__,
        features.version("freetype2"),
        matplotlib.__version__,
        unicodedata.unidata_version,
    ]
    key = cache_key(_DRAWING_VERSION, start, n_drawings, image_size, made_with)
    return cached("glyphs", key, lambda: _make(start, n_drawings, image_size))


def _make(seed: int, n_drawings: int, image_size: int) -> ClassPool:
    letters = find_letters(_TILE)
    kept = [letters[i] for i in np.flatnonzero(first_of_each_drawing(letters))]
    tile = max(_TILE, image_size)
    if tile != _TILE:  # which letters there are must not depend on the size of the images
        kept = find_letters(tile, "".join(letter.character for letter in kept))
    classes = {
        letter.class_name: draw(
            list(letter.shapes.values()),
            np.random.default_rng([seed, ord(letter.character)]),
            n_drawings,
            image_size,
        )
        for letter in track(kept, "drawing letters")
    }
    return ClassPool.from_classes(
        classes,
        name="glyphs",
        groups=[letter.script.name for letter in kept],
        splits=[letter.script.split for letter in kept],
        info={
            "source": "letters of the DejaVu fonts, drawn by taskscape",
            "ink": "bright (255) on black (0)",
            "seed": seed,
            "characters": {letter.class_name: letter.character for letter in kept},
        },
    )


def _script_of(character: str) -> Script | None:
    """The script of a letter; None for other characters and for letters composed of others."""
    if unicodedata.category(character) not in ("Lo", "Lu", "Ll"):
        return None
    if unicodedata.decomposition(character):
        return None
    name = unicodedata.name(character, "")
    return next((s for s in SCRIPTS if name.startswith(s.prefix + " ")), None)


def find_letters(tile: int, among: str | None = None) -> list[Letter]:
    """The letters that are written in strokes, in the order of the scripts and then of Unicode."""
    faces = open_faces(tile)
    known = faces[0].has if among is None else set(map(ord, among))
    scripts = {chr(c): script for c in known if (script := _script_of(chr(c)))}
    order = sorted(scripts, key=lambda character: (SCRIPTS.index(scripts[character]), character))
    letters = []
    for character in track(order, "reading fonts"):
        script = scripts[character]
        shapes = {
            face.name: shape
            for face in faces
            if face.name in script.faces and (shape := shape_of(face, character, tile))
        }
        if FACE_NAMES[0] in shapes and shapes[FACE_NAMES[0]].pen < _BLOB * tile:
            letters.append(Letter(character, script, shapes))
    return letters


def look_alikes(letters: list[Letter]) -> Bool[np.ndarray, "letters letters"]:
    """Which letters are one drawing.

    Within a split as the first face, which has all letters, draws them: what it tells apart is two
    classes. Across splits as any two faces draw them: a single pair of doubles would be a leak.
    """
    plain = np.stack([canonical(letter.shapes[FACE_NAMES[0]]) for letter in letters])
    splits = np.array([letter.script.split for letter in letters])
    alike = unmatched_ink(plain, plain, TOLERANCE_WITHIN_SPLIT) < SAME_DRAWING
    alike &= splits[:, None] == splits[None]

    rows = {split: np.flatnonzero(splits == split) for split in SPLITS}
    drawn = {
        split: [np.stack([canonical(s) for s in letters[i].shapes.values()]) for i in rows[split]]
        for split in SPLITS
    }
    for pair in track(list(combinations(SPLITS, 2)), "comparing letters"):
        some, others = (np.concatenate(drawn[split]) for split in pair)
        near = unmatched_ink(some, others, TOLERANCE_ACROSS_SPLITS) < SAME_DRAWING
        for axis, split in enumerate(pair):  # from pairs of faces to pairs of letters
            faces = np.array([len(ink) for ink in drawn[split]])
            near = np.logical_or.reduceat(near, np.cumsum(faces) - faces, axis=axis)
        alike[np.ix_(rows[pair[0]], rows[pair[1]])] = near
    return alike | alike.T


def first_of_each_drawing(letters: list[Letter]) -> Bool[np.ndarray, "letters"]:
    """Which letters to keep: those unlike every kept letter before them."""
    alike = look_alikes(letters)
    kept = np.zeros(len(letters), dtype=bool)
    for i in range(len(letters)):
        kept[i] = not alike[i, kept].any()
    return kept
