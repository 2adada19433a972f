"""The embedded pools of letters and symbols: which, in which split, and how they are drawn."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from taskscape.errors import DataError
from taskscape.pools import glyph_choice, glyphs
from taskscape.pools.glyph_choice import (
    as_ranges,
    candidates,
    canonical,
    choose_glyphs,
    unmatched_ink,
)
from taskscape.pools.glyph_drawing import draw, open_faces, shape_of
from taskscape.pools.glyphs import (
    BLOCKS,
    CHARACTERS,
    SCRIPTS,
    Glyph,
    characters_of,
    load_glyphs,
    load_letters,
    load_symbols,
    read_shapes,
)
from taskscape.pools.pool import ClassPool

DRAWN = ("letters", "symbols")
CACHE = os.environ["TASKSCAPE_CACHE"]
"""The cache folder of all tests: drawing takes many seconds."""


@pytest.fixture(scope="module")
def both() -> Iterator[dict[str, ClassPool]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TASKSCAPE_CACHE", CACHE)
        yield {"letters": load_letters(), "symbols": load_symbols()}


@pytest.fixture(scope="module")
def pool(both: dict[str, ClassPool]) -> ClassPool:
    return both["letters"]


@pytest.fixture(scope="module")
def all_shapes() -> list[Glyph]:
    """All candidates with their shapes: reading them takes many seconds."""
    return read_shapes(ALL)


def shapes(among: str, tile: int = 64) -> list[Glyph]:
    """The candidates among these characters, with their shapes."""
    return read_shapes({g: [c for c in found if c in among] for g, found in ALL.items()}, tile)


ALL = candidates()


def drawings_of(character: str, n_drawings: int = 20, size: int = 28, seed: int = 0) -> np.ndarray:
    (glyph,) = shapes(character, max(64, size))
    rng = np.random.default_rng([seed, ord(character)])
    return draw(list(glyph.shapes.values()), rng, n_drawings, size)


# -- which characters ---------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "classes"), [("letters", 1311), ("symbols", 1253)])
def test_each_pool_has_twenty_small_images_of_each_character(
    both: dict[str, ClassPool], name: str, classes: int
) -> None:
    drawn = both[name]
    assert drawn.name == name
    assert len(drawn) == classes
    assert set(drawn.counts) == {20}
    assert drawn.sample_shape == (28, 28)
    assert drawn.samples.dtype == np.uint8


def test_glyphs_are_the_letters_and_then_the_symbols(
    both: dict[str, ClassPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKSCAPE_CACHE", CACHE)
    everything = load_glyphs()
    assert everything.name == "glyphs"
    assert everything.class_names == both["letters"].class_names + both["symbols"].class_names
    for name, classes in (("letters", range(1311)), ("symbols", range(1311, 2564))):
        assert everything.subset(list(classes)).fingerprint == both[name].fingerprint
    assert list(everything.info["characters"]) == list(everything.class_names)
    assert everything.hash_classes() == everything.class_digests


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


def symbols_in_font(block_name: str) -> int:
    """All of a block, with the heavy lines of box drawing that are left out later."""
    light = {"Box drawing": 128}
    return light.get(block_name) or len(next(v for g, v in ALL.items() if g.name == block_name))


def test_every_script_lies_in_one_split(pool: ClassPool) -> None:
    assert pool.groups is not None
    assert pool.splits is not None
    found = dict(zip(pool.groups, pool.splits, strict=True))
    assert found == {script.name: script.split for script in SCRIPTS}
    assert set(zip(pool.groups, pool.splits, strict=True)) == set(found.items())
    assert len(found) == 15


def test_splits_are_near_64_16_20_and_have_several_scripts(pool: ClassPool) -> None:
    assert pool.splits is not None
    share = {split: n / len(pool) for split, n in Counter(pool.splits).items()}
    assert share["train"] == pytest.approx(0.64, abs=0.07)
    assert share["val"] == pytest.approx(0.16, abs=0.07)
    assert share["test"] == pytest.approx(0.20, abs=0.07)
    assert set(Counter(script.split for script in SCRIPTS).values()) == {5}


def test_every_script_keeps_enough_letters_for_a_five_way_task(pool: ClassPool) -> None:
    assert pool.groups is not None
    assert min(Counter(pool.groups).values()) >= 5


@pytest.mark.parametrize("name", DRAWN)
def test_class_names_are_short_plain_and_begin_with_the_group(
    both: dict[str, ClassPool], name: str
) -> None:
    groups = both[name].groups
    assert groups is not None
    for class_name, group in zip(both[name].class_names, groups, strict=True):
        assert class_name.isascii()
        assert class_name.startswith(group + "/")
    assert list(both[name].info["characters"]) == list(both[name].class_names)


@pytest.mark.parametrize(
    ("name", "class_name", "character"),
    [
        ("letters", "Greek/small xi", "ξ"),
        ("letters", "Latin/capital a", "A"),
        ("letters", "Canadian syllabics/pa", "ᐸ"),
        ("symbols", "Arrows/leftwards arrow", "←"),
        ("symbols", "Braille/dots-12345678", "⣿"),
        ("symbols", "Hexagrams/the receptive earth", "䷁"),
        ("symbols", "Playing cards/ace of spades", "🂡"),
    ],
)
def test_class_names_say_which_character(
    both: dict[str, ClassPool], name: str, class_name: str, character: str
) -> None:
    assert both[name].info["characters"][class_name] == character


@pytest.mark.parametrize("doubles", ["AΑАꓮ𐌀", "OΟОՕօоߋⵔꓳە", "pрρ", "hһհ", "HНΗᕼꓧ", "ƐԐε", "TТΤꓔ"])
def test_a_letter_that_many_scripts_share_is_there_once(pool: ClassPool, doubles: str) -> None:
    kept = set(pool.info["characters"].values()) & set(doubles)
    assert kept == {doubles[0]}


@pytest.mark.parametrize("letters", ["OQ", "طظ", "خجح", "EF", "ij", "PR", "ᐃᐅᐊ", "дб", "בה", "აბგ"])
def test_letters_that_differ_in_little_are_all_kept(pool: ClassPool, letters: str) -> None:
    assert set(letters) <= set(pool.info["characters"].values())


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
    some = by_split["test"][::20]
    tolerance = glyph_choice.TOLERANCE_ACROSS_SPLITS
    nearest = unmatched_ink(some, by_split["train+val"], tolerance).min(axis=1)
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
    found: dict[str, set[str]] = {name: set() for name in stored}
    for glyph in choose_glyphs(all_shapes):
        found[glyph.group.name].add(glyph.character)
    for name, characters in stored.items():  # versions of FreeType differ by a grey level
        assert len(characters ^ found[name]) <= max(1, 0.02 * len(characters)), name


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
    some = (rng.random((3, 7, 7)) > 0.8).astype(np.float32)
    others = (rng.random((2, 7, 7)) > 0.8).astype(np.float32)

    def one_way(a: np.ndarray, b: np.ndarray) -> int:
        near = np.pad(b, 1)
        return sum(
            int(a[y, x]) for y in range(7) for x in range(7) if not near[y : y + 3, x : x + 3].any()
        )

    slow = [[max(one_way(a, b), one_way(b, a)) for b in others] for a in some]
    assert np.array_equal(unmatched_ink(some, others, 1), slow)


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


@pytest.mark.parametrize(("name", "most"), [("letters", 0.5), ("symbols", 0.75)])
def test_ink_is_bright_on_black_and_lies_inside(
    both: dict[str, ClassPool], name: str, most: float
) -> None:
    images = both[name].samples
    assert images.max(axis=(1, 2)).min() >= 150
    share = (images > 127).mean(axis=(1, 2))
    assert share.min() > 0.01
    assert share.max() < most
    rim = np.concatenate([images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]], axis=1)
    assert (rim > 127).any(axis=1).mean() < 0.001


@pytest.mark.parametrize("name", DRAWN)
def test_characters_fill_a_good_part_of_the_image(both: dict[str, ClassPool], name: str) -> None:
    ink = both[name].samples > 127
    extents = []
    for axis in (1, 2):
        lines = ink.any(axis=axis)
        extents.append(28 - lines.argmax(axis=1) - lines[:, ::-1].argmax(axis=1))
    longer = np.maximum(*extents)
    assert longer.min() >= 10
    assert 18 <= np.median(longer) <= 24


@pytest.mark.parametrize("name", DRAWN)
def test_all_drawings_differ(both: dict[str, ClassPool], name: str) -> None:
    assert len({image.tobytes() for image in both[name].samples}) == both[name].n_samples


def test_drawings_depend_on_seed_and_letter_alone(pool: ClassPool) -> None:
    assert np.array_equal(pool.samples_of("Arabic/zah"), drawings_of("ظ"))
    assert not np.array_equal(drawings_of("ظ"), drawings_of("ظ", seed=1))


def test_the_first_drawings_do_not_depend_on_their_number() -> None:
    assert np.array_equal(drawings_of("A", 20)[:3], drawings_of("A", 3))


@pytest.mark.parametrize("size", [12, 29, 105])
def test_the_same_drawings_come_in_any_size(size: int) -> None:
    small, usual = drawings_of("R", size=size), drawings_of("R", size=28)
    assert small.shape == (20, size, size)
    share = [(images / 255).mean(axis=(1, 2)) for images in (small, usual)]
    np.testing.assert_allclose(share[0], share[1], atol=0.04)


# -- the call -----------------------------------------------------------------------------------


def test_the_second_call_reads_the_cache(pool: ClassPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKSCAPE_CACHE", CACHE)
    monkeypatch.setattr(glyphs, "_make", lambda *_: pytest.fail("drawn again"))
    again = load_letters(seed=0, n_drawings=20, image_size=28)
    assert again.fingerprint == pool.fingerprint


@pytest.mark.slow
def test_another_process_draws_the_same_pool(pool: ClassPool, own_cache: Path) -> None:
    script = (
        "from taskscape.pools import glyphs\n"
        "glyphs.SCRIPTS = glyphs.SCRIPTS[-5:]\n"  # all would take long and show the same
        "print(glyphs.load_letters().fingerprint)"
    )
    environment = {**os.environ, "TASKSCAPE_CACHE": str(own_cache), "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert pool.groups is not None
    names = {script.name for script in SCRIPTS[-5:]}
    drawn_there = [c for c, group in enumerate(pool.groups) if group in names]
    assert done.stdout.strip() == pool.subset(drawn_there).fingerprint


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, "seed=-1 must be at least 0."),
        (
            {"n_drawings": 0},
            "n_drawings=0 must be at least 1.",
        ),
        (
            {"image_size": 7},
            "image_size=7 must be at least 8.",
        ),
        (
            {"image_size": 257},
            "image_size=257 must be at most 256.",
        ),
    ],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(DataError) as error:
        load_letters(**arguments)
    assert str(error.value) == message


def test_missing_fonts_are_named(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("matplotlib.get_data_path", lambda: str(tmp_path))
    with pytest.raises(DataError) as error:
        load_glyphs()
    assert str(error.value) == (
        f"the font DejaVuSans.ttf is not in {tmp_path / 'fonts' / 'ttf'}, where matplotlib keeps "
        "its own. Reinstall matplotlib from PyPI or conda-forge."
    )
    assert not list(own_cache.rglob("*.npy"))
