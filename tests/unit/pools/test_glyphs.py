"""The embedded pool of letters: which letters, in which split, and how they are drawn."""

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
from taskscape.pools.glyph_drawing import canonical, draw, open_faces, shape_of, unmatched_ink
from taskscape.pools.glyphs import SCRIPTS, find_letters, load_glyphs, look_alikes
from taskscape.pools.pool import ClassPool


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("glyphs")


@pytest.fixture(scope="module")
def pool(cache: Path) -> Iterator[ClassPool]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TASKSCAPE_CACHE", str(cache))
        yield load_glyphs()


@pytest.fixture(scope="module")
def letters(pool: ClassPool) -> list[glyphs.Letter]:
    return find_letters(64, "".join(pool.info["characters"].values()))


def drawings_of(character: str, n_drawings: int = 20, size: int = 28, seed: int = 0) -> np.ndarray:
    (letter,) = find_letters(max(64, size), character)
    rng = np.random.default_rng([seed, ord(character)])
    return draw(list(letter.shapes.values()), rng, n_drawings, size)


# -- which letters ------------------------------------------------------------------------------


def test_the_pool_has_twenty_small_images_of_each_letter(pool: ClassPool) -> None:
    assert pool.name == "glyphs"
    assert 1250 <= len(pool) <= 1450
    assert set(pool.counts) == {20}
    assert pool.sample_shape == (28, 28)
    assert pool.samples.dtype == np.uint8


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


def test_class_names_are_short_plain_and_begin_with_the_script(pool: ClassPool) -> None:
    assert pool.groups is not None
    for name, group in zip(pool.class_names, pool.groups, strict=True):
        assert name.isascii()
        assert name.startswith(group + "/")
    assert pool.info["characters"]["Greek/small xi"] == "ξ"
    assert pool.info["characters"]["Latin/capital a"] == "A"
    assert pool.info["characters"]["Canadian syllabics/pa"] == "ᐸ"
    assert list(pool.info["characters"]) == list(pool.class_names)


@pytest.mark.parametrize("doubles", ["AΑАꓮ𐌀", "OΟОՕօоߋⵔꓳە", "pрρ", "hһհ", "HНΗᕼꓧ", "ƐԐε", "TТΤꓔ"])
def test_a_letter_that_many_scripts_share_is_there_once(pool: ClassPool, doubles: str) -> None:
    kept = set(pool.info["characters"].values()) & set(doubles)
    assert kept == {doubles[0]}


@pytest.mark.parametrize("letters", ["OQ", "طظ", "خجح", "EF", "ij", "PR", "ᐃᐅᐊ", "дб", "בה", "აბგ"])
def test_letters_that_differ_in_little_are_all_kept(pool: ClassPool, letters: str) -> None:
    assert set(letters) <= set(pool.info["characters"].values())


def test_no_two_classes_are_one_drawing(pool: ClassPool, letters: list[glyphs.Letter]) -> None:
    assert [letter.class_name for letter in letters] == list(pool.class_names)
    alike = look_alikes(letters)
    assert np.array_equal(np.flatnonzero(alike), np.arange(len(letters)) * (len(letters) + 1))


def test_no_test_letter_has_a_double_among_the_others(letters: list[glyphs.Letter]) -> None:
    by_split = {
        split: np.stack(
            [canonical(s) for x in letters if x.script.split in split for s in x.shapes.values()]
        )
        for split in ("test", "train+val")
    }
    some = by_split["test"][::20]
    nearest = unmatched_ink(some, by_split["train+val"], glyphs.TOLERANCE_ACROSS_SPLITS).min(axis=1)
    assert nearest.min() >= glyphs.SAME_DRAWING


def test_only_undecomposed_letters_are_found() -> None:
    assert not find_letters(64, "é½1ªʰ٠  €")
    assert [letter.class_name for letter in find_letters(64, "ߊɴꓐ")] == [
        "Latin/small capital n",
        "Lisu/ba",
        "N'Ko/a",
    ]


def test_blots_are_not_letters() -> None:
    assert not find_letters(64, "ᐧᐝﹳ")


def test_a_face_never_draws_a_letter_it_lacks() -> None:
    faces = {face.name: face for face in open_faces(64)}
    assert shape_of(faces["DejaVuSerif"], "ب", 64) is None
    assert shape_of(faces["DejaVuSans"], " ", 64) is None  # there, but without ink
    (beh,) = find_letters(64, "ب")
    assert set(beh.shapes) == {
        "DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono", "DejaVuSansMono-Bold"
    }  # fmt: skip


def test_georgian_keeps_to_one_design() -> None:
    (an,) = find_letters(64, "Ⴀ")
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
    assert distance[0, :3].max() < glyphs.SAME_DRAWING
    assert distance[0, 3] > 10 * glyphs.SAME_DRAWING


# -- drawing ------------------------------------------------------------------------------------


def test_ink_is_bright_on_black_and_lies_inside(pool: ClassPool) -> None:
    images = pool.samples
    assert images.max(axis=(1, 2)).min() >= 150
    share = (images > 127).mean(axis=(1, 2))
    assert share.min() > 0.01
    assert share.max() < 0.5
    rim = np.concatenate([images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]], axis=1)
    assert (rim > 127).any(axis=1).mean() < 0.001


def test_letters_fill_a_good_part_of_the_image(pool: ClassPool) -> None:
    ink = pool.samples > 127
    extents = []
    for axis in (1, 2):
        lines = ink.any(axis=axis)
        extents.append(28 - lines.argmax(axis=1) - lines[:, ::-1].argmax(axis=1))
    longer = np.maximum(*extents)
    assert longer.min() >= 10
    assert 18 <= np.median(longer) <= 24


def test_all_drawings_of_all_letters_differ(pool: ClassPool) -> None:
    assert len({image.tobytes() for image in pool.samples}) == pool.n_samples


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


def test_the_second_call_reads_the_cache(
    pool: ClassPool, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKSCAPE_CACHE", str(cache))
    monkeypatch.setattr(glyphs, "_make", lambda *_: pytest.fail("drawn again"))
    again = load_glyphs(seed=0, n_drawings=20, image_size=28)
    assert again.fingerprint == pool.fingerprint


@pytest.mark.slow
def test_another_process_draws_the_same_pool(pool: ClassPool, own_cache: Path) -> None:
    script = "from taskscape.pools.glyphs import load_glyphs; print(load_glyphs().fingerprint)"
    environment = {**os.environ, "TASKSCAPE_CACHE": str(own_cache), "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == pool.fingerprint


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, "seed=-1 must be a whole number from 0 up."),
        (
            {"n_drawings": 0},
            "n_drawings=0: a letter needs at least 1 drawing. Raise it.",
        ),
        (
            {"image_size": 7},
            "image_size=7 is not within 8 to 256 pixels. Choose such a size; 28 is usual.",
        ),
        (
            {"image_size": 257},
            "image_size=257 is not within 8 to 256 pixels. Choose such a size; 28 is usual.",
        ),
    ],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(DataError) as error:
        load_glyphs(**arguments)
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
