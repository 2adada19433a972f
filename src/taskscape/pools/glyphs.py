"""The embedded pools: letters and symbols, drawn from the fonts inside matplotlib.

Nothing is downloaded. A class is a character; its group is its script or, for a symbol, its block
of Unicode; and every group lies wholly in one split. Images are grey, with bright ink (255) on
black (0), as in most few-shot work. ``glyphs`` is all of it; ``letters`` and ``symbols`` are its
two parts.

Scripts borrow letters from each other, and symbols look like letters: Latin A, Greek Α and Cyrillic
А are one drawing, and so are the letter O and a white circle. Each drawing is kept once in the
whole pool. Which characters that leaves is found by :mod:`experiments.glyph_choice` and kept
in ``glyph_characters.json``, so that nobody has to wait for the comparison.
"""

import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import PIL
from PIL import features

from taskscape.arguments import Seed, check_seed, check_whole
from taskscape.pools.cache import cache_key, cached
from taskscape.pools.glyph_drawing import FACE_NAMES, Shape, draw, open_faces, shape_of
from taskscape.pools.pool import ClassPool
from taskscape.progress import track

CHARACTERS = Path(__file__).with_name("glyph_characters.json")
"""The characters of every group, as ranges of code points."""

_DRAWING_VERSION = 1
"""Raise it whenever a change of the code changes a drawing: it is part of the cache key."""

_TILE = 64
_IMAGE_SIZES = (8, 256)
_UPRIGHT = ("DejaVuSans", "DejaVuSerif", "DejaVuSansMono")


@dataclass(frozen=True)
class GlyphGroup:
    """A script, or a block of symbols: its name, its split, and how its characters are known."""

    name: str
    split: str
    prefix: str = ""
    """What Unicode's names of its characters begin with; class names leave it out."""
    faces: tuple[str, ...] = FACE_NAMES
    """The faces that draw it; fewer where the others hold to another design."""
    ranges: tuple[tuple[int, int], ...] = ()
    """First and last code points of a block of symbols; a script is known by the prefix alone."""

    @property
    def is_symbols(self) -> bool:
        """Whether this is a block of symbols rather than a script."""
        return bool(self.ranges)


# In the order in which look-alikes are kept: training first, so that it loses nothing. Every split
# has scripts of several kinds, and validation and test have relatives of training scripts next to
# strangers: Old Italic and Coptic, Greek and Armenian are cousins of Latin and Cyrillic; Ogham and
# Tifinagh are built of bars and circles as Canadian syllabics are; N'Ko and Arabic run from right
# to left as Hebrew does; nothing in training is written like Georgian or Lao. Of the classes 69 %
# are for training, 13 % for validation and 18 % for test.
SCRIPTS = (
    GlyphGroup("Latin", "train", "LATIN"),
    GlyphGroup("Cyrillic", "train", "CYRILLIC"),
    GlyphGroup("Canadian syllabics", "train", "CANADIAN SYLLABICS"),
    GlyphGroup("Hebrew", "train", "HEBREW"),
    GlyphGroup("Lisu", "train", "LISU"),
    GlyphGroup("Georgian", "val", "GEORGIAN", ("DejaVuSans", "DejaVuSans-Bold")),
    GlyphGroup("N'Ko", "val", "NKO"),
    GlyphGroup("Ogham", "val", "OGHAM"),
    GlyphGroup("Coptic", "val", "COPTIC"),
    GlyphGroup("Old Italic", "val", "OLD ITALIC"),
    GlyphGroup("Arabic", "test", "ARABIC"),
    GlyphGroup("Greek", "test", "GREEK"),
    GlyphGroup("Armenian", "test", "ARMENIAN"),
    GlyphGroup("Tifinagh", "test", "TIFINAGH"),
    GlyphGroup("Lao", "test", "LAO"),
)


def _block(name: str, split: str, *ranges: tuple[int, int], prefix: str = "") -> GlyphGroup:
    # Pens of all widths draw the symbols, so their bold faces would add nothing.
    return GlyphGroup(name, split, prefix, _UPRIGHT, ranges)


# The split of a block follows from a rule, fixed before anything was learned from them. The blocks
# are of three kinds: signs made of strokes, pictures, and patterns of equal parts. Of each kind, in
# order of how many symbols the font has, blocks go to train, test, val, train, test, val. So every
# split has all three kinds. A block has its supplements with it. Here, in the order in which
# look-alikes are kept, they stand by split.
BLOCKS = (
    _block("Mathematical operators", "train",
           (0x2200, 0x22FF), (0x27C0, 0x27EF), (0x2980, 0x29FF), (0x2A00, 0x2AFF)),
    _block("Miscellaneous symbols", "train", (0x2600, 0x26FF)),
    _block("Emoticons", "train", (0x1F600, 0x1F64F)),
    _block("Braille", "train", (0x2800, 0x28FF), prefix="BRAILLE PATTERN"),
    _block("Tai Xuan Jing", "train", (0x1D300, 0x1D35F)),
    _block("Miscellaneous technical", "val", (0x2300, 0x23FF)),
    _block("Geometric shapes", "val", (0x25A0, 0x25FF)),
    _block("Dominoes", "val", (0x1F030, 0x1F09F), prefix="DOMINO TILE"),
    _block("Playing cards", "val", (0x1F0A0, 0x1F0FF), prefix="PLAYING CARD"),
    _block("Arrows", "test",
           (0x2190, 0x21FF), (0x27F0, 0x27FF), (0x2900, 0x297F), (0x2B00, 0x2BFF)),
    _block("Dingbats", "test", (0x2700, 0x27BF)),
    _block("Box drawing", "test", (0x2500, 0x257F), prefix="BOX DRAWINGS"),
    _block("Hexagrams", "test", (0x4DC0, 0x4DFF), prefix="HEXAGRAM FOR"),
)  # fmt: skip


PARTS = {"glyphs": SCRIPTS + BLOCKS, "letters": SCRIPTS, "symbols": BLOCKS}


@dataclass(frozen=True)
class Glyph:
    """A character, its group, and its shape in every face that draws it."""

    character: str
    group: GlyphGroup
    shapes: Mapping[str, Shape]

    @property
    def class_name(self) -> str:
        """Group and character in plain ASCII, such as ``Greek/small xi``."""
        name = unicodedata.name(self.character).removeprefix(self.group.prefix + " ")
        words = [w for w in name.lower().split() if w != "letter" or self.group.is_symbols]
        return f"{self.group.name}/{' '.join(words)}"


def load_glyphs(
    part: str = "glyphs", *, seed: Seed = 0, n_drawings: int = 20, image_size: int = 28
) -> ClassPool:
    """Letters and symbols, or ``"letters"`` or ``"symbols"`` alone, drawn by different hands.

    Ink is bright. The drawings of a character depend on the seed and the character alone. The first
    call draws the pool, which takes some seconds; later ones read it from the cache.
    """
    low, high = _IMAGE_SIZES
    start = check_seed(seed)
    check_whole(n_drawings, "n_drawings", 1)
    check_whole(image_size, "image_size", low, high)
    characters = {group: characters_of(group) for group in PARTS[part]}
    drawn_with = [
        PIL.__version__,
        features.version("freetype2"),
        matplotlib.__version__,
        unicodedata.unidata_version,
    ]
    key = cache_key(
        _DRAWING_VERSION, start, n_drawings, image_size, drawn_with, list(characters.values())
    )
    return cached(part, key, lambda: _make(part, characters, start, n_drawings, image_size))


def characters_of(group: GlyphGroup) -> str:
    """The characters of a group that the pool has, in the order of Unicode."""
    ranges = json.loads(CHARACTERS.read_text(encoding="utf-8"))[group.name]
    ends = [[int(end, 16) for end in part.split("-")] for part in ranges.split()]
    return "".join(chr(c) for first, *last in ends for c in range(first, (last or [first])[0] + 1))


def _make(
    name: str, characters: Mapping[GlyphGroup, str], seed: int, n_drawings: int, image_size: int
) -> ClassPool:
    glyphs = read_shapes(characters, max(_TILE, image_size))
    classes = {
        glyph.class_name: draw(
            list(glyph.shapes.values()),
            np.random.default_rng([seed, ord(glyph.character)]),
            n_drawings,
            image_size,
        )
        for glyph in track(glyphs, f"drawing {name}")
    }
    return ClassPool.from_classes(
        classes,
        name=name,
        groups=[glyph.group.name for glyph in glyphs],
        splits=[glyph.group.split for glyph in glyphs],
        info={
            "source": f"{name} of the DejaVu fonts, drawn by taskscape",
            "ink": "bright (255) on black (0)",
            "seed": seed,
            "characters": {glyph.class_name: glyph.character for glyph in glyphs},
        },
    )


def read_shapes(characters: Mapping[GlyphGroup, Iterable[str]], tile: int = _TILE) -> list[Glyph]:
    """The shapes of characters, group by group, leaving out those that the first face lacks."""
    faces = open_faces(tile)
    wanted = [(group, c) for group, members in characters.items() for c in members]
    glyphs = []
    for group, character in track(wanted, "reading fonts"):
        shapes = {
            face.name: shape
            for face in faces
            if face.name in group.faces
            and (shape := shape_of(face, character, tile, keep_gaps=group.is_symbols))
        }
        if FACE_NAMES[0] in shapes:
            glyphs.append(Glyph(character, group, shapes))
    return glyphs
