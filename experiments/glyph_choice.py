"""Which characters the embedded pools have: each drawing once, and no double across splits.

Two characters are one drawing if hardly any ink of their canonical drawings is unmatched. Of such
look-alikes the first is kept, in this order: letters before symbols, training before validation
before test. So training loses nothing to the other splits, and adding symbols changes no letter.

    python -m experiments.glyph_choice

compares all characters of the fonts, in about a minute, and writes ``glyph_characters.json``.
"""

import json
import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from jaxtyping import Bool, Float, Int
from PIL import Image
from scipy import ndimage

from taskscape.pools.glyphs import (
    BLOCKS,
    CHARACTERS,
    FACE_NAMES,
    SCRIPTS,
    Glyph,
    GlyphGroup,
    Shape,
    centred,
    open_faces,
    read_shapes,
)
from taskscape.pools.pool import SPLITS
from taskscape.progress import track

__all__ = ["candidates", "canonical", "choose_glyphs", "look_alikes", "unmatched_ink"]

_BLOB = 0.1
"""Writing thicker than this share of its size is a dot or a fragment, and nobody's letter."""

CANONICAL_SIZE = 40
_CANONICAL_PEN = 2.2
_FAINT = 0.35  # less than this is the haze around a stroke of a canonical drawing, not its ink
_GLYPHS_AT_ONCE = 256

_FIRST_BRAILLE = 0x2800
_BRAILLE_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
"""Column and row of the dots, in the order of the bits of a pattern's code point."""

TOLERANCE_WITHIN_SPLIT = 1
TOLERANCE_ACROSS_SPLITS = 2
SAME_DRAWING = 7.5
"""Two letters are one drawing if less than so many pixels of ink are unmatched within a tolerance.

Chosen by eye on sheets of pairs in order of distance. Within a split, pairs below it are doubles
or a letter and its small capital; the first true distinctions are the dots of Arabic qaf and qaf
with three dots, at 8.5. Across splits the wider tolerance also catches letters drawn a little
differently (Latin and Old Italic K, at 3.9, and F, at 5.9); beyond it true distinctions prevail
(Latin o and Greek σ, at 9.4). Across splits it also holds for symbols.
"""
SAME_SYMBOL = 12.0
"""The same within a split for a symbol and anything else: symbols have more ink.

Also chosen by eye. Below it are arrow heads of a little other width, a square and one with rounded
corners (11.7), and the 6 and the 8 of a suit; beyond it true distinctions prevail: other mouths of
emoticons from 11.5 to 15, one pip of a domino from 16.4, one line of a hexagram from 22.9.
"""
OTHER_TEXTURE = 60.0
"""Across splits a symbol with so much ink unmatched within the narrow tolerance has no double.

Within the wide one every dense drawing matches every other: dominoes, hexagrams and hatched squares
have no gap that is wider.
"""


def candidates() -> dict[GlyphGroup, list[str]]:
    """The characters of the fonts by group: letters and symbols not composed of others."""
    result: dict[GlyphGroup, list[str]] = {group: [] for group in (*SCRIPTS, *BLOCKS)}
    for code in sorted(open_faces(64)[0].has):
        group = _group_of(chr(code))
        if group is not None:
            result[group].append(chr(code))
    return result


def _group_of(character: str) -> GlyphGroup | None:
    if unicodedata.decomposition(character):
        return None
    name, category = unicodedata.name(character, ""), unicodedata.category(character)
    if category in ("Lo", "Lu", "Ll"):
        return next((s for s in SCRIPTS if name.startswith(s.prefix + " ")), None)
    if category.startswith("S"):
        block = next((b for b in BLOCKS if _lies_in(b, character)), None)
        # Pens decide how heavy a line is: heavy lines are the light ones.
        heavy = block is not None and block.name == "Box drawing" and "HEAVY" in name
        return None if heavy else block
    return None


def _lies_in(block: GlyphGroup, character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in block.ranges)


def choose_glyphs(glyphs: Sequence[Glyph]) -> list[Glyph]:
    """The glyphs to keep: those unlike every kept one before them."""
    glyphs = [glyph for glyph in glyphs if not _is_blob(glyph)]
    alike = look_alikes(glyphs) if glyphs else np.zeros((0, 0), dtype=bool)
    kept: list[int] = []
    for i in range(len(glyphs)):
        if not alike[i, kept].any():
            kept.append(i)
    return [glyphs[i] for i in kept]


def _is_blob(glyph: Glyph) -> bool:
    shape = glyph.shapes[FACE_NAMES[0]]
    writing = not glyph.group.is_symbols or glyph.group.name == "Braille"
    return writing and shape.pen >= _BLOB * len(shape.field)


def look_alikes(glyphs: Sequence[Glyph]) -> Bool[np.ndarray, "glyphs glyphs"]:
    """Which glyphs are one drawing.

    Within a split as the first face, which has all characters, draws them: what it tells apart is
    two classes. Across splits as any two faces draw them: a single pair of doubles would be a leak.
    """
    splits = np.array([glyph.group.split for glyph in glyphs])
    symbol = np.array([glyph.group.is_symbols for glyph in glyphs])
    alike = np.zeros((len(glyphs), len(glyphs)), dtype=bool)
    rows_of = {split: np.flatnonzero(splits == split) for split in SPLITS if split in splits}
    drawn = {
        split: _all_faces([glyphs[i] for i in rows.tolist()]) for split, rows in rows_of.items()
    }
    for split, rows in rows_of.items():
        plain = drawn[split].drawings[drawn[split].ends[:-1]]
        same = np.where(symbol[rows, None] | symbol[rows], SAME_SYMBOL, SAME_DRAWING)
        unmatched = unmatched_ink(plain, plain, TOLERANCE_WITHIN_SPLIT)
        alike[np.ix_(rows, rows)] = unmatched < same
    for pair in track(list(combinations(rows_of, 2)), "comparing characters"):
        part, others = (rows_of[split] for split in pair)
        a, b = (drawn[split] for split in pair)
        near = _least_unmatched(a, b, TOLERANCE_ACROSS_SPLITS) < SAME_DRAWING
        texture = _least_unmatched(a, b, TOLERANCE_WITHIN_SPLIT) < OTHER_TEXTURE
        letters = ~(symbol[part, None] | symbol[others])
        alike[np.ix_(part, others)] = near & (letters | texture)
    forms = np.array([_braille_form(glyph.character) for glyph in glyphs])
    alike |= (forms[:, None] == forms) & (forms != "")
    return alike | alike.T


def _braille_form(character: str) -> str:
    """The dots of a Braille pattern, equal for patterns that drawings do not tell apart; else "".

    Drawings forget where a pattern stands and how large it is. So patterns are one drawing that
    differ by a shift, or by one gap being longer, such as dots 1 and 2 or dots 1 and 3.
    """
    dots = ord(character) - _FIRST_BRAILLE
    if not 0 < dots < 256:
        return ""
    places = [place for bit, place in enumerate(_BRAILLE_DOTS) if dots >> bit & 1]
    left, top = (min(place[axis] for place in places) for axis in (0, 1))
    step = math.gcd(*(row - top for _, row in places)) or 1
    return str(sorted((column - left, (row - top) // step) for column, row in places))


@dataclass(frozen=True)
class _AllFaces:
    """Canonical drawings in all faces, and where those of each glyph begin and end.

    Those of a glyph begin with the first face, which has all characters.
    """

    drawings: Float[np.ndarray, "faces side side"]
    ends: Int[np.ndarray, "glyphs_and_1"]


def _all_faces(glyphs: Sequence[Glyph]) -> _AllFaces:
    drawings = [canonical(shape) for glyph in glyphs for shape in glyph.shapes.values()]
    return _AllFaces(np.stack(drawings), np.cumsum([0, *(len(g.shapes) for g in glyphs)]))


def _least_unmatched(
    subset: _AllFaces, others: _AllFaces, tolerance: int
) -> Float[np.ndarray, "some others"]:
    """The least unmatched ink of any two faces of two glyphs."""
    n = len(subset.ends) - 1
    least = []
    for first, last in pairwise([*range(0, n, _GLYPHS_AT_ONCE), n]):
        ends = subset.ends[first : last + 1]
        part = unmatched_ink(subset.drawings[ends[0] : ends[-1]], others.drawings, tolerance)
        part = np.minimum.reduceat(part, ends[:-1] - ends[0], axis=0)
        least.append(np.minimum.reduceat(part, others.ends[:-1], axis=1))
    return np.concatenate(least)


def canonical(shape: Shape) -> Float[np.ndarray, "side side"]:
    """The character as drawn by one standard pen, its ink box stretched to a standard size.

    Capitals and small capitals, a light and a heavy face, a narrow and a wide one become alike, so
    that what still differs is the drawing itself. Ink is 1. Narrow boxes stay narrow: a bar is no
    square.
    """
    ink = np.clip(shape.field - shape.cut(_CANONICAL_PEN) + 0.5, 0, 1)
    image = Image.fromarray((255 * ink).astype(np.uint8))
    image = image.crop(Image.fromarray(ink > 0.5).getbbox())
    width, height = image.size
    inner = CANONICAL_SIZE - 2
    wide = max(4, round(inner * min(1.0, 2 * width / height)))
    high = max(4, round(inner * min(1.0, 2 * height / width)))
    return centred(image, wide, high, CANONICAL_SIZE)


def unmatched_ink(
    part: Float[np.ndarray, "n side side"], others: Float[np.ndarray, "m side side"], tolerance: int
) -> Float[np.ndarray, "n m"]:
    r"""How much ink of one drawing has no ink of the other near it; the larger of both ways.

    .. math:: d_{ij} = \max\Bigl(\sum_p a_{ip}(1 - B_{jp}),\ \sum_p b_{jp}(1 - A_{ip})\Bigr)

    in pixels, with ink :math:`a`, :math:`b`, and :math:`A`, :math:`B` being 1 where a pixel within
    the tolerance has ink and 0 elsewhere.
    """
    window = (1, 2 * tolerance + 1, 2 * tolerance + 1)
    bare_some, bare_others = (
        (_flat(ndimage.maximum_filter(x, size=window)) < _FAINT).astype(np.float32)
        for x in (part, others)
    )
    return np.maximum(_flat(part) @ bare_others.T, bare_some @ _flat(others).T)


def _flat(drawings: Float[np.ndarray, "n side side"]) -> Float[np.ndarray, "n pixels"]:
    return drawings.reshape(len(drawings), -1)


def as_ranges(characters: Iterable[str]) -> str:
    """Code points in ascending order as ranges, such as ``41-5A 61``."""
    parts: list[list[int]] = []
    for code in sorted(map(ord, characters)):
        if parts and code == parts[-1][1] + 1:
            parts[-1][1] = code
        else:
            parts.append([code, code])
    return " ".join(f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in parts)


def main() -> None:
    """Compare all characters of the fonts and write the list of those to keep."""
    result = candidates()
    glyphs = choose_glyphs(read_shapes(result))
    kept = {
        group: [glyph.character for glyph in glyphs if glyph.group == group] for group in result
    }
    for group, characters in kept.items():
        print(f"{group.split:5} {group.name:25} {len(characters):4} of {len(result[group])}")
    lists = {group.name: as_ranges(characters) for group, characters in kept.items()}
    CHARACTERS.write_text(json.dumps(lists, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
