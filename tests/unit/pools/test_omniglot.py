"""Omniglot in all the forms in which it lies on disks."""

from pathlib import Path

import numpy as np
import pytest

import pool_files as files
from taskscape.errors import DataError
from taskscape.pools.load import load_pool
from taskscape.pools.omniglot import load_omniglot, locate_omniglot

FILES = files.omniglot_files()
HALF = {h: {n: d for n, d in FILES.items() if h in n} for h in ("background", "evaluation")}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TASKSCAPE_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.mark.parametrize("place", ["", "omniglot"])
@pytest.mark.parametrize("form", ["folders", "one zip", "two zips", "one of each"])
def test_every_form_is_found_and_is_the_same(data: Path, place: str, form: str) -> None:
    folder = data / place
    folder.mkdir(exist_ok=True)
    if form == "folders":
        files.write_files(folder, FILES)
    elif form == "one zip":
        files.write_zip(folder / "omniglot.zip", FILES)
    else:
        files.write_zip(folder / "images_background.zip", HALF["background"])
        if form == "two zips":
            files.write_zip(folder / "images_evaluation.zip", HALF["evaluation"])
        else:
            files.write_files(folder, HALF["evaluation"])
    pool = load_pool("omniglot")
    assert pool.class_names == (
        "Greek/character01",
        "Greek/character02",
        "Latin/character01",
        "Latin/character02",
        "Tengwar/character01",
        "Tengwar/character02",
    )
    assert pool.groups == ("Greek", "Greek", "Latin", "Latin", "Tengwar", "Tengwar")
    assert pool.splits == ("train",) * 4 + ("test",) * 2
    assert pool.sample_shape == (28, 28)
    other = load_omniglot(path=files.write_files(data.parent / "other", FILES))
    assert pool.fingerprint == other.fingerprint


def test_ink_is_bright_on_black(data: Path) -> None:
    files.write_files(data, FILES)
    pool = load_pool("omniglot")
    # The test drawings have 30 × 12 of 105 × 105 pixels inked.
    assert pool.take(np.arange(30)).mean() == pytest.approx(30 * 12 / 105**2, rel=0.02)
    assert pool.samples[:, 0, 0].max() == 0
    assert pool.samples.max() == 255


def test_other_sizes(data: Path) -> None:
    files.write_files(data, FILES)
    assert load_pool("omniglot", image_size=20).sample_shape == (20, 20)
    assert load_pool("omniglot", image_size=105).sample_shape == (105, 105)


def test_half_of_it_is_not_found_but_can_be_named(data: Path) -> None:
    files.write_files(data, HALF["background"])
    assert locate_omniglot() is None
    assert load_pool(data).splits == ("train",) * 4
    assert load_pool(data / "images_background").class_names[0] == "Greek/character01"


def test_a_zip_of_the_whole_repository(tmp_path: Path) -> None:
    contents = {f"omniglot-master/python/{name}": d for name, d in FILES.items()}
    contents["omniglot-master/python/demo.png"] = files.drawing(0)
    assert len(load_pool(files.write_zip(tmp_path / "master.zip", contents))) == 6


def _error(path: Path, cache: Path) -> str:
    with pytest.raises(DataError) as raised:
        load_omniglot(path=path)
    assert not list(cache.rglob("*"))
    return str(raised.value)


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_a_damaged_drawing_is_named(tmp_path: Path, own_cache: Path, form: str) -> None:
    name = "images_background/Latin/character02/0002_03.png"
    contents = {**FILES, name: FILES[name][:60]}
    if form == "folder":
        message = _error(files.write_files(tmp_path / "x", contents), own_cache)
    else:
        message = _error(files.write_zip(tmp_path / "x.zip", contents), own_cache)
    assert name in message
    assert "is damaged or cut short" in message


def test_damaged_drawings_can_be_skipped(tmp_path: Path) -> None:
    name = "images_background/Latin/character02/0002_03.png"
    path = files.write_files(tmp_path / "x", {**FILES, name: FILES[name][:60]})
    pool, whole = load_pool(path, skip_damaged=True), files.write_files(tmp_path / "y", FILES)
    assert pool.n_samples == load_pool(whole).n_samples - 1
    assert name in pool.info["notes"][0]


def test_a_truncated_zip(tmp_path: Path, own_cache: Path) -> None:
    path = files.write_zip(tmp_path / "omniglot.zip", FILES)
    path.write_bytes(path.read_bytes()[:-400])
    assert "omniglot.zip is not a readable zip archive" in _error(path, own_cache)


def test_an_entry_that_climbs_out(tmp_path: Path, own_cache: Path) -> None:
    path = files.write_zip(tmp_path / "x.zip", {**FILES, "images_background/../../evil.png": b"-"})
    assert "evil.png: expected images_background/alphabet/character" in _error(path, own_cache)
    assert [p.name for p in tmp_path.iterdir()] == ["x.zip"]


def test_a_bomb(tmp_path: Path, own_cache: Path) -> None:
    name = "images_background/Latin/character02/0002_03.ppm"
    path = files.write_zip(tmp_path / "x.zip", {**FILES, name: b"P5\n20000 20000\n255\n"})
    message = _error(path, own_cache)
    assert name in message
    assert "too large" in message


def test_other_things_are_not_omniglot(tmp_path: Path, own_cache: Path) -> None:
    path = files.write_files(tmp_path / "x", {"a/b/1.png": files.ink(0)})
    assert "is not Omniglot: expected images_background and" in _error(path, own_cache)
    zipped = files.write_zip(tmp_path / "x.zip", {"a/b/1.png": files.ink(0)})
    assert "is not Omniglot" in _error(zipped, own_cache)
    assert "no Omniglot at" in _error(tmp_path / "nowhere", own_cache)
    shallow = {"images_background/Latin/1.png": files.ink(0)}
    message = _error(files.write_files(tmp_path / "y", shallow), own_cache)
    assert "expected images_background/alphabet/character/drawing.png" in message


def test_an_empty_character_is_named(tmp_path: Path, own_cache: Path) -> None:
    path = files.write_files(tmp_path / "x", {**FILES, "images_background/Latin/character03/": b""})
    assert "character03 is a folder without pictures" in _error(path, own_cache)
