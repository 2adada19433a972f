"""The embedded pools: letters and symbols, drawn from the fonts inside matplotlib.

Nothing is downloaded. A class is a character; its group is its script or, for a symbol, its block
of Unicode; and every group lies wholly in one split. Images are grey, with bright ink (255) on
black (0), as in most few-shot work. ``glyphs`` is all of it; ``letters`` and ``symbols`` are its
two parts.

Scripts borrow letters from each other, and symbols look like letters: Latin A, Greek Α and Cyrillic
А are one drawing, and so are the letter O and a white circle. Each drawing is kept once in the
whole pool. Which characters that leaves is found by :mod:`experiments.glyph_choice` and kept
in ``glyph_characters.json``, so that nobody has to wait for the comparison.

A character is held as its *signed distance field*: for every pixel, how far inside (positive) or
outside (negative) the ink it lies. Where the field is cut decides the weight of the stroke, so one
field gives every pen; and since the field is smooth it can be turned, slanted and bent by sampling.
"""

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import PIL
from jaxtyping import Float, Int, UInt8
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageDraw, ImageFont, features
from scipy import ndimage

from taskscape.arguments import Seed, check_seed, check_whole
from taskscape.errors import DataError
from taskscape.pools.cache import cache_key, cached
from taskscape.pools.pool import ClassPool
from taskscape.progress import track

CHARACTERS = Path(__file__).with_name("glyph_characters.json")
"""The characters of every group, as ranges of code points."""

_DRAWING_VERSION = 1
"""Raise it whenever a change of the code changes a drawing: it is part of the cache key."""

_TILE = 64
_UPRIGHT = ("DejaVuSans", "DejaVuSerif", "DejaVuSansMono")
FACE_NAMES = (
    "DejaVuSans", "DejaVuSerif", "DejaVuSansMono",
    "DejaVuSans-Bold", "DejaVuSerif-Bold", "DejaVuSansMono-Bold",
)  # fmt: skip
"""The upright faces. The oblique ones are these sheared, which the drawings do by themselves; and
the italics of the Serif draw some letters as other letters (Cyrillic т as m, Greek α as ɑ)."""

_INK = 0.75  # of a tile's side is for the ink; the rest is room for growth by the pen
_KNOTS = 4  # a drawing is bent by a lattice of this many knots a side
_DEEP = 8.0  # distances beyond this many 64ths of a tile are never asked for
_GAP = 0.3  # of a gap between strokes is what a heavy pen may fill on either side

_HAND = (0.2, 0.22, 0.12)  # turn (radians), slant, log of the stretch: each from -b to b
_FILL = (0.66, 0.84)  # of the image's side, by the longer side of the character
_SHIFT = 0.05  # of the image's side, at most
_BEND = 0.04  # of the image's side, at most, at each knot
_PEN = (1.5, 3.4)  # half-widths of pens are in 64ths of a tile


# -- shapes of characters -------------------------------------------------------------------------


@dataclass(frozen=True)
class Face:
    """One font file: what it draws with and which characters it has."""

    name: str
    font: ImageFont.FreeTypeFont
    has: frozenset[int]


@dataclass(frozen=True)
class Shape:
    """A character in one face: its ink box centred in a square tile, filling 3/4 of the side."""

    field: Float[np.ndarray, "tile tile"]
    """Signed distance to the edge of the ink, in pixels, positive inside."""
    half: Float[np.ndarray, "2"]
    """Half the width and half the height of the ink box, in pixels."""
    pen: float
    """Half the width of a usual stroke, in pixels."""
    fine: float
    """Half the width of the finest stroke or dot, in pixels."""
    gap: float = float("inf")
    """Half the width of the finest gap that has to stay open, in pixels; infinite for none."""

    def cut(self, pen: float) -> float:
        """Where to cut the field so that a usual stroke is ``pen`` 64ths of a tile in half-width.

        Fine strokes and dots always keep a good part of their width, so nothing gets lost; and so
        do fine gaps.
        """
        unit = len(self.field) / 64
        return max(min(self.pen - pen * unit, 0.6 * self.fine, 3 * unit), -unit, -_GAP * self.gap)


def open_faces(tile: int) -> tuple[Face, ...]:
    """The upright DejaVu faces that ship inside matplotlib, ready to fill tiles of this size."""
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    faces = []
    for name in FACE_NAMES:
        path = folder / f"{name}.ttf"
        if not path.is_file():
            raise DataError(
                f"the font {name}.ttf is not in {folder}, where matplotlib keeps its own. "
                "Reinstall matplotlib from PyPI or conda-forge."
            )
        font = ImageFont.truetype(str(path), 2 * tile, layout_engine=ImageFont.Layout.BASIC)
        # Glyph 0 is the box that stands for a missing character.
        has = frozenset(c for c, glyph in FT2Font(str(path)).get_charmap().items() if glyph != 0)
        faces.append(Face(name, font, has))
    return tuple(faces)


def shape_of(face: Face, character: str, tile: int, *, keep_gaps: bool = False) -> Shape | None:
    """The shape of a character in a face; None where the face lacks it or it has no ink.

    ``keep_gaps`` is for characters of many parts, such as hexagrams: no pen then fills their gaps.
    """
    if ord(character) not in face.has:
        return None
    left, top, right, bottom = (int(edge) for edge in face.font.getbbox(character))
    page = Image.new("L", (right - left + 8, bottom - top + 8))
    ImageDraw.Draw(page).text((4 - left, 4 - top), character, font=face.font, fill=255)
    box = page.getbbox()
    if box is None:
        return None
    page = page.crop(box)
    scale = _INK * tile / max(page.size)
    width, height = (max(1, round(side * scale)) for side in page.size)
    ink = centred(page, width, height, tile)
    field = _signed_distance(ink)
    deep = _DEEP * tile / 64
    return Shape(
        field=np.maximum(field, -deep),
        half=np.array([width / 2, height / 2]),
        pen=float(ink.sum() / np.hypot(*np.gradient(ink)).sum()),  # area by length of the edge
        fine=_finest(field),
        gap=_finest(-field) if keep_gaps else float("inf"),
    )


def _signed_distance(ink: Float[np.ndarray, "tile tile"]) -> Float[np.ndarray, "tile tile"]:
    """How far inside the ink every pixel lies, to a fraction of a pixel.

    The distance to the nearest pixel across the edge, set right by how much ink that pixel has: the
    edge of the ink runs through it there.
    """
    inside = ink > 0.5
    nearest = (
        ndimage.distance_transform_edt(region, return_distances=False, return_indices=True)
        for region in (inside, ~inside)
    )
    y, x = across = np.where(inside, *nearest)
    down, right = across - np.indices(ink.shape)
    distance = np.sqrt((down**2 + right**2).astype(np.float64))
    signed = np.where(inside, distance + ink[y, x], ink[y, x] - distance)
    return signed.astype(np.float32) - np.float32(0.5)


def _finest(field: Float[np.ndarray, "tile tile"]) -> float:
    """Half the width of the finest stroke or dot, from the ridges: the middles of strokes."""
    top = (field > 0) & (field >= ndimage.maximum_filter(field, 3, mode="nearest"))
    ridge = np.sort(field[top])
    part, parts = ndimage.label(field > 0)
    thickest = np.zeros(parts + 1)
    np.maximum.at(thickest, part[top], field[top])
    return float(min(ridge[len(ridge) // 10], thickest[1:].min()))


def centred(
    image: Image.Image, width: int, height: int, side: int
) -> Float[np.ndarray, "side side"]:
    """The image resized to width × height, in the middle of an empty square."""
    pixels = np.zeros((side, side), dtype=np.float32)
    x, y = (side - width) // 2, (side - height) // 2
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels[y : y + height, x : x + width] = np.asarray(resized, dtype=np.float32) / 255
    return pixels


# -- drawing ------------------------------------------------------------------------------------


def draw(
    shapes: Sequence[Shape], rng: np.random.Generator, n_drawings: int, size: int
) -> UInt8[np.ndarray, "n_drawings size size"]:
    """Draw a character many times, each in one of its shapes and by another hand; ink is 255.

    A hand has its face, slant, turn, proportions, size, place, pen and unsteadiness. The character
    always lies wholly inside the image. The first drawings are the same however many are asked for.
    """
    chance = rng.random((n_drawings, 8 + 2 * _KNOTS**2))
    face = (chance[:, 0] * len(shapes)).astype(np.int64)
    half = np.stack([s.half for s in shapes])[face]
    tile = len(shapes[0].field)

    hand = _hands(chance[:, 1:4])
    reach = np.einsum("nij,nj->ni", np.abs(hand), half)  # half the box that it needs when turned
    scale = _between(chance[:, 4], _FILL) * size / (2 * reach.max(axis=1))
    room = (0.5 - _BEND) * size - 1 - reach * scale[:, None]
    shift = (2 * chance[:, 5:7] - 1) * np.clip(room, 0, _SHIFT * size)

    middle = np.arange(size) + 0.5 - size / 2
    at = np.stack(np.meshgrid(middle, middle), axis=0)  # x, y of every pixel
    bend = _lattice(size) @ (2 * chance[:, 8:].reshape(-1, 2, _KNOTS, _KNOTS) - 1)
    bend = _BEND * size * (bend @ _lattice(size).T)
    back = np.linalg.inv(hand * scale[:, None, None])
    source = np.einsum("nij,njyx->niyx", back, at - shift[:, :, None, None] + bend)
    field = _sample(np.stack([s.field for s in shapes]), face, source + (tile - 1) / 2)

    pens = _between(chance[:, 7], _PEN)
    cut = np.array([shapes[f].cut(pen) for f, pen in zip(face, pens, strict=True)])
    ink = 0.5 + (field - cut[:, None, None]) * scale[:, None, None]
    return np.round(255 * np.clip(ink, 0, 1)).astype(np.uint8)


def _between(chance: Float[np.ndarray, "n"], limits: tuple[float, float]) -> Float[np.ndarray, "n"]:
    return limits[0] + (limits[1] - limits[0]) * chance


def _hands(chance: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 2 2"]:
    """The matrices turn × slant × proportions, each drawn from its range."""
    turn, slant, stretch = (_between(chance[:, k], (-b, b)) for k, b in enumerate(_HAND))
    cos, sin, wide = np.cos(turn), np.sin(turn), np.exp(stretch)
    hands = [wide * cos, slant * cos - sin, wide * sin, slant * sin + cos]
    return np.stack(hands, axis=1).reshape(-1, 2, 2)


def _lattice(size: int) -> Float[np.ndarray, "size knots"]:
    """Weights that carry values at the knots of a lattice smoothly to every pixel."""
    place = np.linspace(0, _KNOTS - 1, size)[:, None] - np.arange(_KNOTS)
    return np.where(np.abs(place) < 1, 0.5 + 0.5 * np.cos(np.pi * place), 0.0)


def _sample(
    fields: Float[np.ndarray, "shapes tile tile"],
    which: Int[np.ndarray, "n"],
    at: Float[np.ndarray, "n 2 size size"],
) -> Float[np.ndarray, "n size size"]:
    """The fields at fractional places (x, y), bilinearly; beyond the tile as at its edge."""
    places = np.broadcast_to(which[:, None, None], at[:, 0].shape), at[:, 1], at[:, 0]
    return ndimage.map_coordinates(fields, places, np.float64, order=1, mode="nearest")


# -- which characters -----------------------------------------------------------------------------


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
    start = check_seed(seed)
    check_whole(n_drawings, "n_drawings", 1)
    check_whole(image_size, "image_size", 8, 256)
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
