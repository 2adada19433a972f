"""mini-ImageNet features as an npz, and as the pickles published with LEO."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import pool_files as files
from taskscape.errors import DataError
from taskscape.pools.load import load_pool
from taskscape.pools.mini_imagenet import load_leo, load_mini_imagenet, locate_mini_imagenet


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TASKSCAPE_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def _write_npz(path: Path) -> None:
    X, y = files.features()
    names = np.array([f"n{c:08}" for c in range(6)])
    np.savez(path, features=X, label=y, class_name=names, class_split=np.array(files.SPLIT_OF))


@pytest.mark.parametrize("name", ["mini_imagenet.npz", "mini_imagenet_resnet12_640.npz"])
def test_an_npz_is_found(data: Path, name: str) -> None:
    _write_npz(data / name)
    pool = load_pool("mini_imagenet")
    assert pool.name == "mini_imagenet"
    assert pool.class_names[0] == "n00000000"
    assert len(load_pool("mini_imagenet", split="train+val")) == 4


@pytest.mark.parametrize(
    "place", ["", "mini_imagenet", "miniImageNet/center", "embeddings/miniImageNet/center"]
)
def test_pickles_are_found(data: Path, place: str) -> None:
    files.write_leo(data / place)
    assert locate_mini_imagenet() == data / place
    pool = load_pool("mini_imagenet")
    assert pool.name == "mini_imagenet"
    assert pool.splits == files.SPLIT_OF
    assert pool.class_names == tuple(f"n{c:08}" for c in range(6))
    X, y = files.features(dims=8)
    for c in range(6):
        np.testing.assert_array_equal(pool.samples_of(c), X[y == c])


def test_pickles_are_read_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_leo(data)
    first = load_pool("mini_imagenet")
    monkeypatch.setattr("taskscape.pools.mini_imagenet.load_plain_pickle", None)
    assert load_pool("mini_imagenet").fingerprint == first.fingerprint


def test_several_npz_files_must_be_chosen_from(data: Path) -> None:
    _write_npz(data / "mini_imagenet_a.npz")
    _write_npz(data / "mini_imagenet_b.npz")
    with pytest.raises(DataError, match=r"several mini-ImageNet files: .*_a\.npz, .*_b\.npz"):
        load_mini_imagenet()
    assert len(load_mini_imagenet(path=data / "mini_imagenet_b.npz")) == 6


def _write(folder: Path, split: str, **content: object) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{split}_embeddings.pkl").write_bytes(files.python2_pickle(content))


def test_numbers_take_their_names_from_the_keys(tmp_path: Path) -> None:
    X = np.zeros((2, 3), dtype=np.float32)
    keys = [b"00-n01-n01_0.JPEG", b"01-n02-n02_1.JPEG"]
    _write(tmp_path / "leo", "train", embeddings=X, labels=np.array([0, 1]), keys=keys)
    assert load_leo(tmp_path / "leo").class_names == ("n01", "n02")


def test_numbers_that_the_keys_contradict_stay_numbers(tmp_path: Path) -> None:
    X = np.zeros((2, 3), dtype=np.float32)
    keys = [b"00-n01-n01_0.JPEG", b"01-n01-n01_1.JPEG"]
    for split in ("train", "test"):  # the same numbers mean other classes here
        _write(tmp_path / "leo", split, embeddings=X, labels=[0, 1], keys=keys)
    pool = load_leo(tmp_path / "leo")
    assert pool.class_names == ("test/0", "test/1", "train/0", "train/1")
    assert pool.splits == ("test", "test", "train", "train")


def test_keys_alone_name_the_classes(tmp_path: Path) -> None:
    X = np.zeros((2, 3), dtype=np.float32)
    _write(tmp_path / "leo", "val", embeddings=X, keys=[b"0-n7-a.JPEG", b"1-n7-b.JPEG"])
    assert load_leo(tmp_path / "leo").class_names == ("n7",)


def _error(folder: Path, cache: Path) -> str:
    with pytest.raises(DataError) as raised:
        load_pool(folder)
    assert not list(cache.rglob("*"))
    return str(raised.value).replace(str(folder), "leo")


def test_contents_that_cannot_be_used(tmp_path: Path, own_cache: Path) -> None:
    X = np.zeros((2, 3), dtype=np.float32)
    folder = tmp_path / "leo"
    _write(folder, "train", images=X, labels=[0, 1])
    assert "train_embeddings.pkl has 'images', 'labels'; expected" in _error(folder, own_cache)
    _write(folder, "train", embeddings=X, labels=[0])
    assert "leo: 'train' has 2 samples and 1 labels" in _error(folder, own_cache)
    _write(folder, "train", embeddings=X[0], labels=[0])
    assert "embeddings have shape (3,) and type float32" in _error(folder, own_cache)
    _write(folder, "train", embeddings=X, keys=[b"a", b"b"])
    assert "its keys do not read 'image-class-file'" in _error(folder, own_cache)
    _write(folder, "train", embeddings=X * np.float32("nan"), labels=[b"a", b"b"])
    assert "class 'a' has NaN or infinite features" in _error(folder, own_cache)
    _write(folder, "train", embeddings=X, labels=[b"a", b"b"])
    _write(folder, "test", embeddings=X, labels=[b"b", b"c"])
    assert "splits: class 'b' is in both 'train' and 'test'" in _error(folder, own_cache)
    _write(folder, "test", embeddings=X[:, :2], labels=[b"c", b"d"])
    assert "different shape or type: (3,) float32, (2,)" in _error(folder, own_cache)
    (folder / "test_embeddings.pkl").write_bytes(pickle.dumps([1], 2))
    assert "leo/test_embeddings.pkl holds a list; expected a dict" in _error(folder, own_cache)


class _Bomb:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple:
        return os.system, (self.command,)


def test_a_malicious_pickle_runs_nothing_and_leaves_nothing(
    tmp_path: Path, own_cache: Path
) -> None:
    folder = files.write_leo(tmp_path / "leo")
    bomb = _Bomb(f"touch {tmp_path / 'mark'}")
    (folder / "val_embeddings.pkl").write_bytes(pickle.dumps({"embeddings": bomb}, 2))
    message = _error(folder, own_cache)
    assert message.startswith("leo/val_embeddings.pkl asks for ")
    assert "system, which plain data does not need: refused" in message
    assert not (tmp_path / "mark").exists()
