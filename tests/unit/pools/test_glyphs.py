"""The embedded pools of letters and symbols: which, in which split, and how they are drawn."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from taskscape.errors import DataError
from taskscape.pools import glyphs
from taskscape.pools.glyphs import (
    BLOCKS,
    SCRIPTS,
    characters_of,
    draw,
    load_glyphs,
    read_shapes,
)
from taskscape.pools.pool import ClassPool

DRAWN = ("letters", "symbols")
CACHE = os.environ["TASKSCAPE_CACHE"]
"""The cache folder of all tests: drawing takes many seconds."""


def drawings_of(character: str, n_drawings: int = 20, size: int = 28, seed: int = 0) -> np.ndarray:
    group = next(g for g in (*SCRIPTS, *BLOCKS) if character in characters_of(g))
    (glyph,) = read_shapes({group: [character]}, max(64, size))
    rng = np.random.default_rng([seed, ord(character)])
    return draw(list(glyph.shapes.values()), rng, n_drawings, size)


@pytest.fixture(scope="module")
def both() -> Iterator[dict[str, ClassPool]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TASKSCAPE_CACHE", CACHE)
        yield {name: load_glyphs(name) for name in DRAWN}


@pytest.fixture(scope="module")
def pool(both: dict[str, ClassPool]) -> ClassPool:
    return both["letters"]


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


def test_every_script_lies_in_one_split(pool: ClassPool) -> None:
    assert pool.groups is not None
    assert pool.splits is not None
    result = dict(zip(pool.groups, pool.splits, strict=True))
    assert result == {script.name: script.split for script in SCRIPTS}
    assert set(zip(pool.groups, pool.splits, strict=True)) == set(result.items())
    assert len(result) == 15


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
    again = load_glyphs("letters", seed=0, n_drawings=20, image_size=28)
    assert again.fingerprint == pool.fingerprint


@pytest.mark.slow
def test_another_process_draws_the_same_pool(pool: ClassPool, own_cache: Path) -> None:
    script = (
        "from taskscape.pools import glyphs\n"
        "glyphs.PARTS['letters'] = glyphs.SCRIPTS[-5:]\n"  # all would take long and show the same
        "print(glyphs.load_glyphs('letters').fingerprint)"
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
        ({"seed": -1}, "seed=-1 must be at least 0"),
        ({"n_drawings": 0}, "n_drawings=0 must be at least 1"),
        ({"image_size": 7}, "image_size=7 must be at least 8"),
        ({"image_size": 257}, "image_size=257 must be at most 256"),
    ],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_glyphs("letters", **arguments)


def test_missing_fonts_are_named(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("matplotlib.get_data_path", lambda: str(tmp_path))
    with pytest.raises(DataError, match=r"DejaVuSans\.ttf is not in .* Reinstall matplotlib"):
        load_glyphs()
    assert not list(own_cache.rglob("*.npy"))
