"""Which characters the embedded pools hold: candidates, doubles, and how doubles are found."""

import json

import numpy as np
import pytest

from experiments import glyph_choice
from experiments.glyph_choice import (
    as_ranges,
    candidates,
    canonical,
    choose_glyphs,
    unmatched_ink,
)
from taskscape.pools.glyphs import (
    BLOCKS,
    CHARACTERS,
    SCRIPTS,
    Glyph,
    characters_of,
    draw,
    open_faces,
    read_shapes,
    shape_of,
)


@pytest.fixture(scope="module")
def all_shapes() -> list[Glyph]:
    """All candidates with their shapes: reading them takes many seconds."""
    return read_shapes(ALL)


def shapes(among: str, tile: int = 64) -> list[Glyph]:
    """The candidates among these characters, with their shapes."""
    return read_shapes({g: [c for c in result if c in among] for g, result in ALL.items()}, tile)


ALL = candidates()


def symbols_in_font(block_name: str) -> int:
    """All of a block, with the heavy lines of box drawing that are left out later."""
    light = {"Box drawing": 128}
    return light.get(block_name) or len(next(v for g, v in ALL.items() if g.name == block_name))


def test_blocks_lie_in_splits_by_kind_and_size() -> None:
    strokes = ("Mathematical operators", "Arrows", "Miscellaneous technical")
    pictures = ("Miscellaneous symbols", "Dingbats", "Geometric shapes", "Emoticons")
    patterns = ("Braille", "Box drawing", "Dominoes", "Tai Xuan Jing", "Hexagrams", "Playing cards")
    blocks = {block.name: block for block in BLOCKS}
    assert set(strokes + pictures + patterns) == set(blocks)
    for kind in (strokes, pictures, patterns):
        splits = [blocks[name].split for name in kind]
        assert splits == ["train", "test", "val", "train", "test", "val"][: len(kind)]
        sizes = [symbols_in_font(name) for name in kind]
        assert sizes == sorted(sizes, reverse=True)


@pytest.mark.slow
def test_no_test_letter_has_a_double_among_the_others(all_shapes: list[Glyph]) -> None:
    kept = {script: set(characters_of(script)) for script in SCRIPTS}
    letters = [glyph for glyph in all_shapes if glyph.character in kept.get(glyph.group, ())]
    assert len(letters) == sum(len(characters) for characters in kept.values())
    by_split = {
        split: np.stack(
            [canonical(s) for x in letters if x.group.split in split for s in x.shapes.values()]
        )
        for split in ("test", "train+val")
    }
    part = by_split["test"][::20]
    tolerance = glyph_choice.TOLERANCE_ACROSS_SPLITS
    nearest = unmatched_ink(part, by_split["train+val"], tolerance).min(axis=1)
    assert nearest.min() >= glyph_choice.SAME_DRAWING


def test_only_undecomposed_letters_and_symbols_are_candidates() -> None:
    assert not shapes("é½1ªʰ٠  €")
    assert [glyph.class_name for glyph in shapes("ߊɴꓐ")] == [
        "Latin/small capital n",
        "Lisu/ba",
        "N'Ko/a",
    ]
    assert [glyph.class_name for glyph in shapes("↔⟷━─≠")] == [
        "Arrows/left right arrow",
        "Arrows/long left right arrow",
        "Box drawing/light horizontal",
    ]


def test_blots_are_not_letters() -> None:
    assert not choose_glyphs(shapes("ᐧᐝﹳ⠁"))
    assert len(choose_glyphs(shapes("■●"))) == 2  # as symbols they are


@pytest.mark.parametrize(
    ("doubles", "kept"),
    [
        ("O○◯", "O"),  # letters go first
        ("∎■", "∎"),  # then training
        ("☐□", "☐"),
        ("⠃⠆⡄⠅⡁", "⠃"),  # shifts, and longer gaps
        ("⠉⠒⠤⣀", "⠉"),
        ("⠋⠖", "⠋"),
    ],
)
def test_a_symbol_that_looks_like_another_goes(doubles: str, kept: str) -> None:
    assert "".join(glyph.character for glyph in choose_glyphs(shapes(doubles))) == kept


@pytest.mark.parametrize("symbols", ["←↑→↓↖", "䷁䷂䷃", "🀲🀳🀴", "⠇⠋⠓", "□■", "😀😇😢", "≤≥", "╔╗╚"])
def test_symbols_that_differ_in_little_are_all_kept(symbols: str) -> None:
    assert {glyph.character for glyph in choose_glyphs(shapes(symbols))} == set(symbols)


@pytest.mark.slow
def test_the_stored_characters_are_those_that_are_found(all_shapes: list[Glyph]) -> None:
    stored = {group.name: set(characters_of(group)) for group in ALL}
    result: dict[str, set[str]] = {name: set() for name in stored}
    for glyph in choose_glyphs(all_shapes):
        result[glyph.group.name].add(glyph.character)
    for name, characters in stored.items():  # versions of FreeType differ by a grey level
        assert len(characters ^ result[name]) <= max(1, 0.02 * len(characters)), name


def test_stored_characters_are_ranges_of_code_points() -> None:
    assert as_ranges("ACBa") == "41-43 61"
    stored = json.loads(CHARACTERS.read_text(encoding="utf-8"))
    assert {name: as_ranges(characters_of(g)) for g in ALL for name in [g.name]} == stored


def test_a_face_never_draws_a_letter_it_lacks() -> None:
    faces = {face.name: face for face in open_faces(64)}
    assert shape_of(faces["DejaVuSerif"], "ب", 64) is None
    assert shape_of(faces["DejaVuSans"], " ", 64) is None  # there, but without ink
    (beh,) = shapes("ب")
    assert set(beh.shapes) == {
        "DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono", "DejaVuSansMono-Bold"
    }  # fmt: skip


def test_pens_leave_the_gaps_of_symbols_open() -> None:
    (hexagram,) = shapes("䷁")
    drawn = draw(list(hexagram.shapes.values()), np.random.default_rng(0), 50, 64)
    middle = drawn[:, :, 26:38].min(axis=2)  # six broken lines: the gap runs from top to bottom
    assert (middle < 128).mean() > 0.9


def test_georgian_keeps_to_one_design() -> None:
    (an,) = shapes("Ⴀ")
    assert set(an.shapes) == {"DejaVuSans", "DejaVuSans-Bold"}


# -- comparing ----------------------------------------------------------------------------------


def test_unmatched_ink_agrees_with_a_slow_loop() -> None:
    rng = np.random.default_rng(0)
    part = (rng.random((3, 7, 7)) > 0.8).astype(np.float32)
    others = (rng.random((2, 7, 7)) > 0.8).astype(np.float32)

    def one_way(a: np.ndarray, b: np.ndarray) -> int:
        near = np.pad(b, 1)
        return sum(
            int(a[y, x]) for y in range(7) for x in range(7) if not near[y : y + 3, x : x + 3].any()
        )

    slow = [[max(one_way(a, b), one_way(b, a)) for b in others] for a in part]
    assert np.array_equal(unmatched_ink(part, others, 1), slow)


def test_canonical_drawings_forget_size_and_weight() -> None:
    face = open_faces(64)[0]
    drawn = {}
    for character in "SꜱsQ":
        shape = shape_of(face, character, 64)
        assert shape is not None
        drawn[character] = canonical(shape)
    distance = unmatched_ink(*[np.stack(list(drawn.values()))] * 2, 1)
    assert distance[0, :3].max() < glyph_choice.SAME_DRAWING
    assert distance[0, 3] > 10 * glyph_choice.SAME_DRAWING


# -- drawing ------------------------------------------------------------------------------------
