"""Splits, groups, sizes and least samples, for any source; splits dealt out by chance."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import pool_files as files
from taskscape import load_pool
from taskscape.errors import DataError
from taskscape.pools import split_classes
from taskscape.pools.pool import ClassPool

X, Y = files.features()
BY_NAME = {str(c): split for c, split in enumerate(files.SPLIT_OF)}


@pytest.fixture(params=["arrays", "npz", "parquet", "csv", "folder", "stored", "pool"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    """Six classes called 0 to 5, in every form."""
    columns = {"label": Y, **{f"f{d}": X[:, d] for d in range(4)}}
    if request.param == "npz":
        np.savez(tmp_path / "d.npz", X=X, y=Y)
        return tmp_path / "d.npz"
    if request.param == "parquet":
        pyarrow.parquet.write_table(pa.table(columns), tmp_path / "d.parquet")
        return tmp_path / "d.parquet"
    if request.param == "csv":
        rows = [
            ",".join(columns),
            *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
        ]
        (tmp_path / "d.csv").write_text("\n".join(rows) + "\n")
        return str(tmp_path / "d.csv")
    if request.param == "folder":
        names = [f"{c}/{n}.png" for c in range(6) for n in range(3)]
        files.write_files(tmp_path / "d", {n: files.drawing(i, 8) for i, n in enumerate(names)})
        return tmp_path / "d"
    if request.param == "stored":
        load_pool((X, Y)).save(tmp_path / "stored")
        return tmp_path / "stored"
    return load_pool((X, Y)) if request.param == "pool" else (X, Y)


def write_splits(path: Path, by_name: dict[str, str], header: str = "class,split") -> Path:
    path.write_text("\n".join([header, *(f"{c},{s}" for c, s in by_name.items())]) + "\n")
    return path


def test_splits_and_groups_for_any_source(source: object, tmp_path: Path) -> None:
    assert load_pool(source).splits is None
    assert load_pool(source, splits=files.SPLIT_OF).splits == files.SPLIT_OF
    file = write_splits(tmp_path / "splits.csv", dict(reversed(BY_NAME.items())))
    by_file = load_pool(source, splits=file)
    assert by_file.splits == load_pool(source, splits=BY_NAME).splits == files.SPLIT_OF
    assert load_pool(source, splits=str(file), split="test").class_names == ("4", "5")
    assert load_pool(source, groups={str(c): "ab"[c % 2] for c in range(6)}).groups[:2] == (
        "a",
        "b",
    )


def test_a_class_without_a_split_is_left_out_and_said(tmp_path: Path) -> None:
    pool = load_pool((X, Y), splits={**BY_NAME, "1": "", "2": None})
    assert pool.class_names == ("0", "3", "4", "5")
    assert pool.info["notes"] == ["2 of 6 classes were left out: they have no split."]


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"0": "train"}, "splits has no split for 5 of the 6 classes of 'arrays', such as '1', "
            "'2', '3', …. Give one for each class; an empty one leaves a class out."),
        ({**BY_NAME, "6": "test"}, "splits: pool 'arrays' has no class '6'; it has '0', '1'"),
        ({**BY_NAME, "5": "tst"}, "'tst' is not a split"),
        (["train"] * 4, "splits has 4 entries for 6 classes and 30 samples"),
        ("nowhere.csv", "no such file: nowhere.csv; expected a CSV file with the columns"),
        (dict.fromkeys(BY_NAME), "splits leaves out all classes"),
    ],
)  # fmt: skip
def test_splits_that_do_not_fit(splits: object, message: str) -> None:
    with pytest.raises(DataError) as raised:
        load_pool((X, Y), splits=splits)
    assert message in str(raised.value)


def test_split_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    for text, message in (
        (
            "class,part\na,train\n",
            "has no column 'split', but class, part; expected a CSV file",
        ),
        ("part,split\na,train\n", "has no column 'class', but part, split"),
        ("", "s.csv is empty or names no columns; expected a CSV file with the columns class"),
        ("class,split\n0\n", "line 2: 1 values for 2 columns"),
        ("class,split\n0,train\n0,test\n", "line 3: class '0' is in both 'train' and 'test'"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            load_pool((X, Y), splits=path)


def test_small_classes_are_dropped_and_said(tmp_path: Path) -> None:
    part = np.r_[np.arange(30)[Y != 2], np.flatnonzero(Y == 2)[:2]]
    pool = load_pool((X[part], Y[part]), min_samples=5)
    assert pool.class_names == ("0", "1", "3", "4", "5")
    assert pool.info["notes"] == [
        "1 of 6 classes have fewer than 5 samples and were left out: '2' (2)."
    ]
    # a list of splits may name them, or not
    for names in (BY_NAME, {c: s for c, s in BY_NAME.items() if c != "2"}):
        assert load_pool((X[part], Y[part]), min_samples=5, splits=names).splits == (
            "train", "train", "val", "test", "test"
        )  # fmt: skip
    with pytest.raises(DataError, match="min_samples=9: the largest class of 'arrays' has 5"):
        load_pool((X, Y), min_samples=9)
    with pytest.raises(DataError, match="min_samples=0 must be at least 1"):
        load_pool((X, Y), min_samples=0)


def test_pictures_of_any_source_can_be_brought_to_a_size(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 9, 7, 3), dtype=np.uint8)
    np.savez(tmp_path / "d.npz", images=images, y=np.arange(6))
    assert load_pool(tmp_path / "d.npz", image_size=4).sample_shape == (4, 4, 3)
    assert load_pool((images, np.arange(6)), image_size=(4, 5)).sample_shape == (4, 5, 3)
    with pytest.raises(DataError, match="image_size is for pictures; 'arrays' has feature vectors"):
        load_pool((X, Y), image_size=4)


def test_dealing_classes_out_by_chance() -> None:
    pool = ClassPool.from_classes({str(c): np.zeros((2, 2)) for c in range(20)})
    dealt = split_classes(pool, seed=3)
    assert [dealt.splits.count(s) for s in ("train", "val", "test")] == [12, 4, 4]
    assert split_classes(pool, seed=3).splits == dealt.splits != split_classes(pool, seed=4).splits
    assert "dealt out by class with seed 3: 12 train, 4 val, 4 test" in dealt.info["notes"][0]
    assert split_classes(dealt, seed=4).splits == dealt.splits
    with pytest.raises(
        DataError, match=r"test_share=2\.0 must be a number of at least 0 and at most 0\.8"
    ):
        split_classes(pool, test_share=2.0)


def test_a_pool_is_kept_with_all_that_was_decided(tmp_path: Path) -> None:
    pool = load_pool((X, Y), splits=BY_NAME, sample_names=[f"s{i}" for i in range(30)])
    pool.save(tmp_path / "mine")
    again = load_pool(tmp_path / "mine")
    assert again.fingerprint == pool.fingerprint
    assert again.names_of("2") == tuple(f"s{i}" for i in np.flatnonzero(Y == 2))
    pool.split("test").save(tmp_path / "mine")
    assert len(load_pool(tmp_path / "mine")) == 2
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    with pytest.raises(DataError, match="exists and is not a stored pool"):
        pool.save(tmp_path / "other")


def test_a_class_belongs_to_one_split() -> None:
    X, y = np.zeros((4, 2), np.float32), ["a", "a", "b", "b"]
    for splits in (["train+val", "test"], {"a": "train+val", "b": "test"}):
        with pytest.raises(DataError, match=r"split='train\+val' of a class: every class bel"):
            load_pool((X, y), splits=splits)
