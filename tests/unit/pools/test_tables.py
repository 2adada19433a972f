"""Tables of features: which columns are what, and what is wrong with them."""

import pickle
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import pool_files as files
from taskscape import load_pool
from taskscape.errors import DataError
from taskscape.pools.pool import ClassPool
from taskscape.pools.tables import load_table

X, Y = files.features()
WIDE = {f"f{d}": X[:, d] for d in range(4)}
NAMES = [f"c{c}" for c in Y]


def _load(folder: Path, columns: dict, **options: object) -> ClassPool:
    pyarrow.parquet.write_table(pa.table(columns), folder / "t.parquet")
    return load_table(folder / "t.parquet", **options)


def _error(folder: Path, cache: Path, columns: dict, **options: object) -> str:
    with pytest.raises(DataError) as raised:
        _load(folder, columns, **options)
    assert not list(cache.rglob("*"))
    return str(raised.value).replace(str(folder / "t.parquet"), "t")


def test_a_column_that_is_left_out_because_it_has_text_is_told(tmp_path: Path) -> None:
    """One value that is no number makes a column text; it must not go unnoticed."""
    (tmp_path / "t.csv").write_text("a,b,label\n1,2,x\n3,n/a?,y\n5,6,x\n")
    pool = load_table(tmp_path / "t.csv")
    assert pool.sample_shape == (1,)
    assert pool.info["notes"] == ["1 of 3 columns are not features and were left out: b."]
    chosen = load_table(tmp_path / "t.csv", feature_columns=["a"])
    assert chosen.info["notes"] == []


@pytest.mark.parametrize("label", ["label", "y", "class", "Target"])
def test_numeric_columns(tmp_path: Path, label: str) -> None:
    pool = _load(tmp_path, {"id": np.arange(30), label: NAMES, "file": NAMES, **WIDE})
    assert pool.class_names == ("c0", "c1", "c2", "c3", "c4", "c5")
    np.testing.assert_array_equal(pool.samples_of("c2"), X[Y == 2])
    assert pool.info["unused_columns"] == ["file"]
    assert pool.info["notes"] == []
    assert pool.names_of("c2") == tuple(str(i) for i in np.flatnonzero(Y == 2))


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 4)]
)
def test_a_column_of_lists(tmp_path: Path, kind: pa.DataType) -> None:
    features = pa.array(X.tolist(), type=kind)
    pool = _load(tmp_path, {"features": features, "label": Y, "area": np.arange(30.0)})
    np.testing.assert_array_equal(pool.samples_of("2"), X[Y == 2])


def test_splits_groups_and_dictionary_columns(tmp_path: Path) -> None:
    splits = pa.array([files.SPLIT_OF[c] for c in Y]).dictionary_encode()
    labels = pa.array(NAMES).dictionary_encode()
    pool = _load(tmp_path, {"label": labels, "split": splits, "group": ["g"] * 30, **WIDE})
    assert pool.splits == files.SPLIT_OF
    assert pool.groups == ("g",) * 6


def test_columns_can_be_named(tmp_path: Path) -> None:
    columns = {"species": NAMES, "label": Y, "part": ["train"] * 30, "family": ["g"] * 30, **WIDE}
    pool = _load(
        tmp_path,
        columns,
        label_column="species",
        feature_columns=["f2", "f0"],
        split_column="part",
        group_column="family",
    )
    np.testing.assert_array_equal(pool.samples_of("c2"), X[Y == 2][:, [2, 0]])
    assert pool.splits == ("train",) * 6


@pytest.mark.parametrize("form", ["feather", "arrow file", "arrow stream"])
def test_arrow_files(tmp_path: Path, form: str) -> None:
    table = pa.table({"label": NAMES, **WIDE})
    path = tmp_path / ("t.feather" if form == "feather" else "t.arrow")
    if form == "feather":
        pyarrow.feather.write_feather(table, path)
    else:
        new = pa.ipc.new_file if form == "arrow file" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as writer:
            writer.write_table(table)
    np.testing.assert_array_equal(load_table(path).samples_of("c2"), X[Y == 2])


def test_columns_that_cannot_be_told(tmp_path: Path, own_cache: Path) -> None:
    message = _error(tmp_path, own_cache, {"species": NAMES, "town": NAMES, "f": X[:, 0]})
    assert "no label column: found 'species', 'town', 'f'; expected one of 'label'" in message
    assert "label_column=…" in message
    assert "'label', 'y' could each be meant. Say which with label_column" in _error(
        tmp_path, own_cache, {"label": NAMES, "y": Y, **WIDE}
    )
    assert _error(tmp_path, own_cache, {"label": NAMES, **WIDE}, label_column="q").startswith(
        "label_column='q': t has no such column; it has 'label', 'f0'"
    )
    lists = pa.array(X.tolist())
    assert "'p', 'q' all hold lists. Say which with feature_columns" in _error(
        tmp_path, own_cache, {"label": Y, "p": lists, "q": lists}
    )
    assert "t has no features" in _error(tmp_path, own_cache, {"label": Y, "text": NAMES})
    assert "no numeric column 'text' besides" in _error(
        tmp_path, own_cache, {"label": Y, "text": NAMES}, feature_columns="text"
    )


def test_rows_that_cannot_be_used(tmp_path: Path, own_cache: Path) -> None:
    holes = pa.array([None, *X[1:, 0].tolist()], type=pa.float32())
    assert "column 'f' has 1 missing values, the first in row 0" in _error(
        tmp_path, own_cache, {"label": Y, "f": holes}
    )
    ragged = [[1.0, 2.0], [1.0, 2.0], [1.0]]
    assert "column 'f' has 1 features in row 2 and 2 in rows before" in _error(
        tmp_path, own_cache, {"label": [0, 0, 1], "f": ragged}
    )
    assert "column 'f' has 1 missing features" in _error(
        tmp_path, own_cache, {"label": [0], "f": [[1.0, None]]}
    )
    assert "t has no rows" in _error(tmp_path, own_cache, {"label": [], "f": []})
    nan = np.where(np.arange(30) == 7, np.nan, X[:, 0])
    assert "has NaN or infinite features" in _error(tmp_path, own_cache, {"label": Y, "f": nan})


def test_a_split_within_a_class(tmp_path: Path, own_cache: Path) -> None:
    split = ["train", "test"] * 15
    message = _error(tmp_path, own_cache, {"label": np.zeros(30, int), "split": split, **WIDE})
    assert message.startswith("splits: class '0' is in both 'train' and 'test'")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
def test_damaged_files(tmp_path: Path, own_cache: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    for data in (b"", b"not a table", b"PAR1" + bytes(100)):
        path.write_bytes(data)
        with pytest.raises(DataError, match=rf"is not a readable {suffix[1:]} table"):
            load_table(path)
    assert not list(own_cache.rglob("*"))


def test_a_truncated_table(tmp_path: Path) -> None:
    _load(tmp_path, {"label": NAMES, **WIDE})
    path = tmp_path / "t.parquet"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"is not a readable parquet table"):
        load_table(path)


def test_a_folder_of_files_is_one_table_read_in_pieces(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    columns = {
        "features": list(rng.normal(size=(90, 3)).astype(np.float16)),
        "label": rng.permutation(np.repeat(["b", "a", "c"], 30)),
    }
    columns["split"] = np.where(columns["label"] == "c", "test", "train")
    whole = _load(tmp_path, columns)
    folder = tmp_path / "shards"
    folder.mkdir()
    for i in range(3):
        part = {name: values[30 * i : 30 * i + 30] for name, values in columns.items()}
        pyarrow.parquet.write_table(pa.table(part), folder / f"{i}.parquet")
    monkeypatch.setattr("taskscape.pools.tables._ROWS_AT_ONCE", 7)
    monkeypatch.setattr("taskscape.pools.cache._MAP_ABOVE_BYTES", 0)
    pool = load_pool(folder)
    assert pool.fingerprint == whole.fingerprint
    assert isinstance(pool.samples, np.memmap)
    parcel = pickle.dumps(pool)
    assert len(parcel) < 3000
    handed_over = pickle.loads(parcel)
    assert handed_over.fingerprint == pool.fingerprint
    np.testing.assert_array_equal(handed_over.samples, whole.samples)
    (own_cache / "pools").rename(own_cache / "elsewhere")
    with pytest.raises(DataError, match=r"which .* does not have\. Let TASKSCAPE_CACHE name a fol"):
        pickle.loads(parcel)


def test_files_of_a_folder_that_do_not_fit_together(tmp_path: Path, own_cache: Path) -> None:
    pyarrow.parquet.write_table(
        pa.table({"x": [1.0, 2.0], "label": [0, 1]}), tmp_path / "a.parquet"
    )
    pyarrow.parquet.write_table(
        pa.table({"z": [1.0, 2.0], "label": [0, 1]}), tmp_path / "b.parquet"
    )
    with pytest.raises(DataError, match=r"b\.parquet has other columns than .*a\.parquet; write"):
        load_pool(tmp_path)
    pyarrow.parquet.write_table(
        pa.table({"x": [1.0, None], "label": [0, 1]}), tmp_path / "b.parquet"
    )
    with pytest.raises(DataError, match=r"column 'x' has 1 missing values"):
        load_pool(tmp_path)
    message = (
        rf"^{re.escape(str(tmp_path))}: column 'f' has 1 features in row 3 and 2 in rows before"
    )
    for name, values in (("a", [[1.0, 2.0], [3.0, 4.0]]), ("b", [[1.0, 2.0], [3.0]])):
        table = pa.table({"f": values, "label": [0, 1]})
        pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet")
    with pytest.raises(DataError, match=message):
        load_pool(tmp_path)
    (tmp_path / "b.parquet").write_bytes(b"not a table")
    with pytest.raises(DataError, match=r"b\.parquet is not a readable parquet table"):
        load_pool(tmp_path)
