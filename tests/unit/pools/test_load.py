"""load_pool: what is opened by what, and the errors when nothing is."""

from pathlib import Path

import numpy as np
import pytest

import pool_files as files
from taskscape.errors import DataError
from taskscape.pools.cache import write_pool
from taskscape.pools.load import POOLS, load_pool
from taskscape.pools.pool import ClassPool


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TASKSCAPE_DATA", str(tmp_path / "data"))
    return tmp_path


def _error(*arguments: object, **options: object) -> str:
    with pytest.raises(DataError) as raised:
        load_pool(*arguments, **options)
    return str(raised.value)


def test_a_wrong_path_or_name(here: Path, own_cache: Path) -> None:
    message = _error("omniglott")
    assert f"nor an existing path (looked for {here / 'omniglott'})" in message
    assert message.endswith("Did you mean 'omniglot'?")
    assert "Did you mean 'mini_imagenet'?" in _error("miniImageNet")
    assert "Did you mean 'mini_imagenet'?" in _error("mini-imagenet")
    assert "Did you mean" not in _error("/nowhere/at/all.npz")
    (here / "birds.npz").touch()
    assert "Did you mean 'birds.npz'?" in _error("bird.npz")
    assert not list(own_cache.rglob("*"))


def test_a_known_set_that_is_not_here(here: Path) -> None:
    message = _error("omniglot")
    for fact in (
        str(here / "data"),
        "TASKSCAPE_DATA",
        "download=True",
        "taskscape data get",
        "path=…",
    ):
        assert fact in message
    assert "Put there a mini_imagenet*.npz" in _error("mini_imagenet")


def test_a_known_name_wins_over_a_folder(here: Path) -> None:
    files.write_files(here / "omniglot", files.picture_files())
    assert "write './omniglot' to open that" in _error("omniglot")
    assert len(load_pool("./omniglot")) == 6
    assert len(load_pool(Path("omniglot"))) == 6


def test_options_are_those_of_the_source(here: Path) -> None:
    assert "colour=… is not an option for 'omniglot'; it takes image_size" in _error(
        "omniglot", colour=True
    )
    assert "it takes seed, n_drawings, image_size, splits" in _error("glyphs", colour=True)
    pair = files.features()
    assert "colour=… is not an option for a pair (X, y)" in _error(pair, colour=True)
    assert "it takes groups, splits, name" in _error({"a": [[1.0]]}, class_names=["b"])
    assert "is not an option for a pool; it takes splits," in _error(load_pool(pair), name="x")
    np.savez(here / "x.npz", X=pair[0], y=pair[1])
    assert "not an option for an npz file; it takes name, features_key" in _error(
        here / "x.npz", path=1
    )
    assert "not an option for Omniglot; it takes image_size" in _error(
        files.write_files(here / "o", files.omniglot_files()), colour=True
    )


def test_a_split_is_checked_first(here: Path) -> None:
    assert _error("nowhere", split="tain").startswith("split='tain': 'tain' is not a split.")
    assert _error("nowhere", split=3).startswith("split='3': '3' is not a split.")


def test_splits_are_applied(here: Path) -> None:
    pool = load_pool(files.features(), splits=files.SPLIT_OF)
    assert len(load_pool(pool, split="train+val")) == 4
    assert "has no splits" in _error(files.features(), split="train")
    part = pool.split("train")
    assert "has no 'test' classes; it has train" in _error(part, split="test")


def test_stored_pools_are_opened(here: Path) -> None:
    pool = load_pool(files.features(), splits=files.SPLIT_OF)
    write_pool(pool, here / "stored")
    assert load_pool(here / "stored", split="val").class_names == ("3",)
    (here / "stored" / "samples.npy").write_bytes(b"-")
    assert "is not a readable pool" in _error(here / "stored")


def test_files_of_other_kinds(here: Path) -> None:
    for name, hint in (
        ("x.npy", "A .npy holds no labels"),
        ("x.csv", "x.csv is not a readable csv table"),
        ("x.pkl", "Pickles are read only as LEO's"),
        ("x.mat", "cannot open a .mat; expected a folder, .npz, .zip, .parquet"),
        ("x", "cannot open a file without an ending"),
    ):
        (here / name).write_bytes(b"-")
        assert hint in _error(name)


@pytest.mark.parametrize("source", [None, 3, {1, 2}, np.zeros((3, 2))])
def test_sources_of_other_kinds(source: object) -> None:
    message = _error(source)
    assert message.startswith(f"source=a {type(source).__name__}: expected a known name (")


def test_known_sets_say_what_they_are() -> None:
    for name, known in POOLS.items():
        assert known.name == name
        assert "\n" not in known.description
    located = {name: known.locate() for name, known in POOLS.items()}
    assert located["omniglot"] is None
    assert located["mini_imagenet"] is None
    assert located["glyphs"] is not None
    assert (located["glyphs"] / "DejaVuSans.ttf").is_file()


def test_hidden_folders_of_paths_are_fine(here: Path) -> None:
    inside = files.write_files(here / ".cache" / "pictures", files.picture_files())
    assert len(load_pool(str(inside))) == 6
    assert len(load_pool(files.write_zip(here / "P.ZIP", files.picture_files()))) == 6


def test_glyphs_get_their_options(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {}

    def drawn(name: str, **options: object) -> ClassPool:
        given.update(options)
        return ClassPool.from_classes({"a": np.zeros((2, 2))})

    monkeypatch.setattr("taskscape.pools.glyphs.load_glyphs", drawn)
    assert len(load_pool("glyphs", seed=3, image_size=20)) == 1
    assert given == {"seed": 3, "n_drawings": 20, "image_size": 20}
    with pytest.raises(DataError, match=r"image_size='small' must be a whole number"):
        load_pool("glyphs", image_size="small")


def test_raw_colour_pictures_get_the_advice_to_bring_an_encoder():
    X, y = np.zeros((4, 8, 8, 3), np.uint8), [0, 0, 1, 1]
    pool = load_pool((X, y))
    assert [n for n in pool.info["notes"] if "encoder" in n] == load_pool(pool).info["notes"]
    for other in (load_pool((X[..., 0], y)), load_pool((X, y), encoder=lambda b: b.mean((1, 2)))):
        assert "notes" not in other.info
