"""npz files under any sensible key names."""

import re
from pathlib import Path

import numpy as np
import pytest

import pool_files as files
from taskscape.errors import DataError
from taskscape.pools.npz import load_npz
from taskscape.pools.pool import ClassPool

X, Y = files.features()
SPLIT = np.array(files.SPLIT_OF)


def _load(folder: Path, options: dict[str, object] | None = None, **arrays: object) -> ClassPool:
    np.savez(folder / "own.npz", **arrays)
    return load_npz(folder / "own.npz", **(options or {}))


def _error(
    folder: Path, cache: Path, options: dict[str, object] | None = None, **arrays: object
) -> str:
    with pytest.raises(DataError) as raised:
        _load(folder, options, **arrays)
    assert not list(cache.rglob("*"))
    return str(raised.value).replace(str(folder / "own.npz"), "own")


@pytest.mark.parametrize(
    ("samples", "labels"),
    [
        ("features", "label"),
        ("X", "y"),
        ("x", "targets"),
        ("data", "target"),
        ("embeddings", "labels"),
        ("samples", "Labels"),
    ],
)
def test_usual_names(tmp_path: Path, samples: str, labels: str) -> None:
    pool = _load(tmp_path, **{samples: X, labels: Y})
    assert pool.counts.tolist() == [5] * 6
    assert pool.splits is None
    np.testing.assert_array_equal(pool.samples_of("2"), X[Y == 2])


def test_other_names_can_be_given(tmp_path: Path) -> None:
    options = {"features_key": "a", "labels_key": "b", "name": "mine"}
    pool = _load(tmp_path, options, a=X, b=Y, X=X[:2])
    assert pool.n_samples == 30
    assert pool.name == "mine"


def test_names_groups_and_splits(tmp_path: Path) -> None:
    names = np.array([f"n{c}".encode() for c in range(6)])
    pool = _load(tmp_path, X=X, y=Y, class_name=names, class_split=SPLIT, groups=SPLIT[Y], z=0)
    assert pool.class_names == ("n0", "n1", "n2", "n3", "n4", "n5")
    assert pool.splits == files.SPLIT_OF
    assert pool.groups == files.SPLIT_OF
    assert pool.info["unused_keys"] == ["z"]


def test_splits_per_sample(tmp_path: Path) -> None:
    assert _load(tmp_path, X=X, y=Y, split=SPLIT[Y]).splits == files.SPLIT_OF


def test_one_sample_per_class_in_mixed_order(tmp_path: Path) -> None:
    y = np.array([2, 0, 1])
    split = np.array(["test", "train", "val"])
    assert _load(tmp_path, X=X[:3], y=y, split=split).splits == ("train", "val", "test")
    per_class = _load(tmp_path, X=X[:3], y=y, class_split=split)
    assert per_class.splits == ("test", "train", "val")


@pytest.mark.parametrize("form", ["X_{}", "{}_features"])
def test_a_pair_for_each_split(tmp_path: Path, form: str) -> None:
    label_form = "y_{}" if form == "X_{}" else "{}_labels"
    arrays = {}
    for word, split in (("train", "train"), ("valid", "val"), ("test", "test")):
        rows = SPLIT[Y] == split
        arrays |= {form.format(word): X[rows], label_form.format(word): Y[rows]}
    pool = _load(tmp_path, **arrays)
    assert pool.splits == files.SPLIT_OF
    np.testing.assert_array_equal(pool.samples_of("4"), X[Y == 4])


def test_a_supervised_split_is_explained(tmp_path: Path, own_cache: Path) -> None:
    message = _error(
        tmp_path, own_cache, X_train=X[:20], y_train=Y[:20], X_test=X[20:], y_test=Y[20:]
    )
    assert re.match(r"splits: class '\d' is in both 'train' and 'test'\. Splits and", message)
    assert "of classes, not of samples" in message


def test_keys_that_cannot_be_told(tmp_path: Path, own_cache: Path) -> None:
    message = _error(tmp_path, own_cache, stuff=X, y=Y)
    assert "no samples under a known key: found 'stuff', 'y'; expected one of 'features'" in message
    assert "features_key=…" in message
    assert "own has no labels under a known key: found 'X'" in _error(tmp_path, own_cache, X=X)
    assert "'X' and 'features' could both be the samples" in _error(
        tmp_path, own_cache, X=X, features=X, y=Y
    )
    assert "come in pairs such as X_train, y_train" in _error(tmp_path, own_cache, X_train=X)
    assert "X_train, y_train, and not besides those of the whole" in _error(
        tmp_path, own_cache, X=X, y=Y, X_train=X, y_train=Y
    )
    assert "own has no key 'q'; it has 'X', 'y'." in _error(
        tmp_path, own_cache, {"features_key": "q"}, X=X, y=Y
    )


def test_python_objects_are_not_read(tmp_path: Path, own_cache: Path) -> None:
    names = np.array(["a", None], dtype=object)
    message = _error(tmp_path, own_cache, X=X, y=Y, class_names=names)
    assert message.startswith("own: 'class_names' holds Python objects, which would need pickle")


def test_splits_that_differ_in_shape(tmp_path: Path, own_cache: Path) -> None:
    message = _error(tmp_path, own_cache, X_train=X, y_train=Y, X_test=X[:, :2], y_test=Y + 10)
    assert "the splits have samples of different shape or type: (4,) float32, (2,)" in message


def test_nan_is_an_error(tmp_path: Path, own_cache: Path) -> None:
    message = _error(tmp_path, own_cache, X=np.where(X[3, 1] == X, np.nan, X), y=Y)
    assert f"class '{Y[3]}' has NaN or infinite features in 1 of its 5 samples" in message


def test_an_empty_file_of_arrays(tmp_path: Path, own_cache: Path) -> None:
    assert "has no samples" in _error(tmp_path, own_cache, X=X[:0], y=Y[:0])
    assert "found nothing; expected one of" in _error(tmp_path, own_cache)


@pytest.mark.parametrize("part", [0.0, 0.2, 0.7, 0.95])
def test_a_truncated_file(tmp_path: Path, own_cache: Path, part: float) -> None:
    path = tmp_path / "own.npz"
    np.savez_compressed(path, X=X, y=Y)
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.raises(DataError, match=r"own\.npz is not a readable npz file"):
        load_npz(path)
    assert not list(own_cache.rglob("*"))


def test_damage_inside_names_the_key(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    np.savez(path, X=X, y=Y)
    data = bytearray(path.read_bytes())
    data[300:340] = b"\xff" * 40
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"own\.npz: 'X' is damaged or cut short"):
        load_npz(path)


def test_a_single_array_in_disguise(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "x.npy").rename(tmp_path / "x.npz")
    with pytest.raises(DataError, match=r"holds a single array and no labels"):
        load_npz(tmp_path / "x.npz")


def test_numbers_that_are_too_large_are_told_without_more(tmp_path: Path) -> None:
    """A warning of NumPy's besides would be an error here."""
    X = np.zeros((4, 2))
    X[3, 1] = 1e300
    np.savez(tmp_path / "large.npz", X=X, y=[0, 0, 1, 1])
    with pytest.raises(DataError, match="'1' has NaN or infinite features in 1 of its 2 samples"):
        load_npz(tmp_path / "large.npz")
