"""Folders of class folders: layouts, sizes, colour, and what is wrong with them."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pool_files as files
from taskscape.errors import DataError
from taskscape.pools.folders import load_folder

P = files.drawing(0)


def _load(root: Path, contents: dict[str, bytes], **options: object):
    return load_folder(files.write_files(root / "data", contents), **options)


def _error(root: Path, cache: Path, contents: dict[str, bytes], **options: object) -> str:
    """The message for these files, without the folder they are in; nothing may stay cached."""
    with pytest.raises(DataError) as raised:
        _load(root, contents, **options)
    assert not list(cache.rglob("*"))
    return str(raised.value).replace(str(root), "…")


def test_class_folders_alone(tmp_path: Path) -> None:
    pool = _load(tmp_path, {"b/1.png": P, "a/1.png": P, "a/2.png": P, "a/readme.txt": b"-"})
    assert pool.class_names == ("a", "b")
    assert pool.counts.tolist() == [2, 1]
    assert pool.groups is None
    assert pool.splits is None
    assert pool.info["ignored_files"] == 1
    assert pool.name == "data"


def test_groups_above_classes(tmp_path: Path) -> None:
    pool = _load(tmp_path, {"x/a/1.png": P, "x/b/1.png": P, "y/a/1.png": P})
    assert pool.class_names == ("x/a", "x/b", "y/a")
    assert pool.groups == ("x", "x", "y")


def test_splits_above_groups(tmp_path: Path) -> None:
    pool = _load(tmp_path, {"train/x/a/1.png": P, "validation/y/a/1.png": P, "Test/z/a/1.png": P})
    assert pool.class_names == ("x/a", "y/a", "z/a")
    assert pool.splits == ("train", "val", "test")
    assert pool.groups == ("x", "y", "z")


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    assert _load(tmp_path, {"train/1.png": P, "bus/1.png": P}).class_names == ("bus", "train")


def test_a_folder_around_a_zip_is_passed_over(tmp_path: Path) -> None:
    path = files.write_zip(tmp_path / "birds.zip", {"birds/a/1.png": P, "birds/b/1.png": P})
    pool = load_folder(path)
    assert pool.class_names == ("a", "b")
    assert pool.groups is None


def test_a_zip_and_its_folder_are_the_same(tmp_path: Path) -> None:
    contents = files.picture_files()
    zipped = load_folder(files.write_zip(tmp_path / "x.zip", contents))
    assert _load(tmp_path, contents).fingerprint == zipped.fingerprint


def test_small_pictures_of_one_size_keep_it(tmp_path: Path) -> None:
    wide = files.png(np.zeros((20, 30), dtype=np.uint8))
    assert _load(tmp_path, {"a/1.png": wide, "a/2.png": wide}).sample_shape == (20, 30)


def test_other_pictures_become_84_by_84(tmp_path: Path) -> None:
    assert _load(tmp_path, {"a/1.png": P, "a/2.png": files.drawing(1, 29)}).sample_shape == (84, 84)
    large = {"a/1.png": files.drawing(1, 97)}
    assert _load(tmp_path / "large", large).sample_shape == (84, 84)


def test_a_size_asked_for(tmp_path: Path) -> None:
    assert _load(tmp_path, {"a/1.png": P}, image_size=14).sample_shape == (14, 14)
    assert load_folder(tmp_path / "data", image_size=(8, 9)).sample_shape == (8, 9)


def test_colour_if_there_is_any(tmp_path: Path) -> None:
    grey = np.random.default_rng(0).integers(0, 256, (6, 6, 1), dtype=np.uint8).repeat(3, axis=2)
    red = grey * np.array([1, 0, 0], dtype=np.uint8)
    assert _load(tmp_path, {"a/1.png": files.png(grey)}).sample_shape == (6, 6)
    mixed = {"a/1.png": files.png(grey), "a/2.png": files.png(red)}
    pool = _load(tmp_path / "mixed", mixed)
    assert pool.sample_shape == (6, 6, 3)
    np.testing.assert_array_equal(pool.samples, [grey, red])
    assert load_folder(tmp_path / "mixed" / "data", colour=False).sample_shape == (6, 6)
    assert load_folder(tmp_path / "data", colour=True).sample_shape == (6, 6, 3)


def test_a_changed_picture_is_read_again(tmp_path: Path) -> None:
    before = _load(tmp_path, files.picture_files())
    (tmp_path / "data/test/class4/2.png").write_bytes(files.drawing(77))
    after = load_folder(tmp_path / "data")
    assert after.fingerprint != before.fingerprint
    assert (after.samples_of("class4")[2] != before.samples_of("class4")[2]).any()


def test_the_second_load_reads_no_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _load(tmp_path, files.picture_files())
    monkeypatch.setattr(Image, "open", None)
    assert load_folder(tmp_path / "data").fingerprint == first.fingerprint


def test_many_pictures_in_threads_keep_their_order(tmp_path: Path) -> None:
    result = {
        f"{c}/{i:03}.png": files.png(np.full((4, 4), 40 * c + i // 5, dtype=np.uint8))
        for c in range(3)
        for i in range(150)
    }
    pool = _load(tmp_path, result)
    for c in range(3):
        assert pool.samples_of(c)[:, 0, 0].tolist() == [40 * c + i // 5 for i in range(150)]


def test_an_empty_folder(tmp_path: Path, own_cache: Path) -> None:
    message = _error(tmp_path, own_cache, {"./": b""})
    assert message.startswith("…/data has no pictures. Expected class/picture, group/class/picture")


def test_a_folder_of_other_files(tmp_path: Path, own_cache: Path) -> None:
    message = _error(tmp_path, own_cache, {"a/x.npz": b"-", "a/y.txt": b"-"})
    assert message.startswith("…/data has no pictures; it has 2 other files (.npz, .txt).")


def test_a_class_folder_without_pictures(tmp_path: Path, own_cache: Path) -> None:
    message = _error(tmp_path, own_cache, {"a/1.png": P, "b/": b""})
    assert message.startswith("…/data/b is a folder without pictures")
    assert "skip_damaged=True" in message
    shutil.rmtree(tmp_path / "data")
    contents = {"train/a/1.png": P, "train/b/notes.txt": b"-"}
    assert "…/data/train/b is a folder without pictures" in _error(tmp_path, own_cache, contents)


def test_folders_without_pictures_are_left_out_where_that_is_asked_for(tmp_path: Path) -> None:
    pool = _load(tmp_path, {"a/1.png": P, "b/": b"", "c/notes.txt": b"-"}, skip_damaged=True)
    assert pool.class_names == ("a",)
    b, c = (tmp_path / "data" / name for name in "bc")
    assert pool.info["notes"] == [f"2 folders have no pictures and were left out: {b}, {c}."]


def test_pictures_outside_class_folders(tmp_path: Path, own_cache: Path) -> None:
    assert "…/data/1.png lies in no class folder" in _error(tmp_path, own_cache, {"1.png": P})


def test_mixed_depths(tmp_path: Path, own_cache: Path) -> None:
    message = _error(tmp_path, own_cache, {"a/1.png": P, "b/c/2.png": P})
    assert message.startswith("…/data/a/1.png and …/data/b/c/2.png lie at different depths")


def test_too_deep(tmp_path: Path, own_cache: Path) -> None:
    message = _error(tmp_path, own_cache, {"a/b/c/1.png": P})
    assert message.startswith("…/data/a/b/c/1.png: pictures lie 3 folders deep; expected")


def test_a_class_in_two_splits(tmp_path: Path, own_cache: Path) -> None:
    message = _error(tmp_path, own_cache, {"train/a/1.png": P, "test/a/2.png": P})
    assert message.startswith("class 'a' is in both 'test' and 'train'")
    assert "Splits are of classes, not of samples" in message


def test_a_split_beside_other_folders(tmp_path: Path, own_cache: Path) -> None:
    message = _error(tmp_path, own_cache, {"train/a/1.png": P, "extra/b/1.png": P})
    assert message == (
        "…/data has a folder 'train', which names a split, beside 'extra', which does not. "
        "Move or rename one of them."
    )


@pytest.mark.parametrize("damage", ["header", "half", "empty", "text"])
def test_a_damaged_picture_is_named(tmp_path: Path, own_cache: Path, damage: str) -> None:
    bad = {"header": b"\x89PNG\r\n\x1a\n" + bytes(50), "half": P[: len(P) // 2]}
    bad |= {"empty": b"", "text": b"<html>not found</html>"}
    contents = {**files.picture_files(), "train/class0/9.png": bad[damage]}
    message = _error(tmp_path, own_cache, contents)
    assert message.startswith("…/data/train/class0/9.png is ")
    assert "Replace or remove it" in message


def test_a_damaged_picture_in_a_zip_is_named(tmp_path: Path, own_cache: Path) -> None:
    path = files.write_zip(tmp_path / "x.zip", {"a/1.png": P, "a/2.png": P[:300]})
    with pytest.raises(DataError, match=r"x\.zip: member a/2\.png is damaged or cut short"):
        load_folder(path)
    assert not list(own_cache.rglob("*"))


def test_options_are_checked_before_reading(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"image_size='small'"):
        load_folder(tmp_path, image_size="small")
    with pytest.raises(DataError, match=r"colour='yes'"):
        load_folder(tmp_path, colour="yes")


def test_damaged_pictures_can_be_skipped_and_files_are_named(tmp_path: Path) -> None:
    pictures = {f"{c}/{n}.png": files.drawing(n, 8) for c in "abc" for n in range(3)}
    broken = {"a/1.png": b"no picture", "c/0.png": b"", "c/1.png": b"x", "c/2.png": b"y"}
    root = files.write_files(tmp_path / "d", {**pictures, **broken})
    with pytest.raises(DataError, match=r"a/1.png is not a picture that can be read"):
        load_folder(root)
    pool = load_folder(root, skip_damaged=True)
    assert pool.class_names == ("a", "b")
    assert pool.names_of("a") == ("a/0.png", "a/2.png")
    assert pool.info["notes"] == [
        "4 of 9 pictures could not be read and were left out: "
        + ", ".join(str(root / name) for name in broken)
        + ".",
        "1 of 3 classes had no other pictures and were left out: c.",
    ]
    assert [pool.sample_index("a", n) for n in ("2.png", "a/2.png", f"{root}/a/2.png")] == [1] * 3
    with pytest.raises(
        DataError, match=r"'1\.png' is not a sample of class 'a'; it has 2, such as"
    ):
        pool.sample_index("a", "1.png")
    with pytest.raises(DataError, match=r"'b/2\.png' is not a sample of class 'a'"):
        pool.sample_index("a", "b/2.png")
