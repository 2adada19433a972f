"""Tables in memory, CSV files, sparse matrices, tensors and `datasets`; what is damaged in them."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse

import pool_files as files
from taskscape import load_pool
from taskscape.errors import DataError

X, Y = files.features()
NAMES = [f"c{c}" for c in Y]
WIDE = {f"f{d}": X[:, d] for d in range(4)}


class Frame:
    """What data frames of pandas and polars have in common: they speak Arrow."""

    def __init__(self, columns: dict) -> None:
        self._table = pa.table(columns)

    def __arrow_c_stream__(self, schema: object = None) -> object:
        return self._table.__arrow_c_stream__(schema)


class Dataset:
    """As much of a dataset of Hugging Face's `datasets` as is used."""

    def __init__(self, columns: dict, features: dict) -> None:
        self.columns, self.features, self.column_names = columns, features, list(columns)

    def with_format(self, kind: str) -> "Dataset":
        assert kind == "arrow"
        return self

    def __getitem__(self, which: slice) -> pa.Table:
        assert which == slice(None)
        return pa.table(self.columns)


class ClassLabel:
    names = ("ant", "bee", "cat", "dog", "eel", "fox")


class Tensor:
    """A tensor on another device, as torch has them."""

    def __init__(self, values: np.ndarray, on: str = "cuda") -> None:
        self.values, self.on = values, on

    def detach(self) -> "Tensor":
        return self

    def cpu(self) -> "Tensor":
        return Tensor(self.values, "cpu")

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        assert self.on == "cpu"
        return self.values


@pytest.mark.parametrize("kind", [Frame, pa.table])
def test_data_frames(kind: type) -> None:
    pool = load_pool(kind({"file": [f"{i}.wav" for i in range(30)], "species": NAMES, **WIDE}))
    assert pool.class_names == ("c0", "c1", "c2", "c3", "c4", "c5")
    np.testing.assert_array_equal(pool.samples_of("c2"), X[Y == 2])
    assert pool.names_of("c2")[0] == f"{np.flatnonzero(Y == 2)[0]}.wav"
    with pytest.raises(DataError, match="label_column='q': the "):
        load_pool(kind({"label": NAMES, **WIDE}), label_column="q")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,a\n3,4,a\n", "line 1: 'a' is also in a row below. Is this the first row of data?"),
        ("1,2,0.5\n3,4,0.5\n", "line 1: numbers in every column (1, 2, 0.5, …). Is this the fir"),
        ("1,,2, nan\n3,4,5,6\n", "line 1: numbers in every column (1, , 2,  nan, …). Is this the"),
        ('x,label\n1,a\n2,"b\n3,c\n', "line 3: a quote is opened and never closed."),
        ('x,label\n1,a\n2,"b\n3,"c\n4,d\n', "line 3: ',' expected after"),
    ],
)
def test_a_csv_file_without_a_header_or_with_an_open_quote(tmp_path, text, message) -> None:
    (tmp_path / "own.csv").write_text(text)
    with pytest.raises(DataError, match=re.escape(message)):
        load_pool(tmp_path / "own.csv", label_column="2" if text[0] == "1" else None)


def test_labels_with_zeros_in_front_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("species,id,x\n007,01,1\n7,1,2\n007,001,3\n")
    pool = load_pool(tmp_path / "own.csv", label_column="species")
    assert pool.class_names == ("007", "7")
    assert pool.names_of("007") == ("01", "001")
    (tmp_path / "plain.csv").write_text("label,x\n10,1\n9,2\n0,3\n")
    assert load_pool(tmp_path / "plain.csv").class_names == ("0", "9", "10")


def test_views_of_text_as_polars_exports() -> None:
    views = pa.array(NAMES, pa.string_view())
    coded = pa.DictionaryArray.from_arrays(pa.array(Y), pa.array("abcdef", pa.string_view()))
    columns = {"id": views, "split": pa.array([files.SPLIT_OF[c] for c in Y], pa.string_view())}
    for label in (views, coded):
        pool = load_pool(Frame({"label": label, **columns, **WIDE}))
        assert (pool.splits, pool.names_of(2)[0]) == (files.SPLIT_OF, "c2")
        np.testing.assert_array_equal(pool.samples_of(2), X[Y == 2])


def test_pictures_in_views_of_bytes_as_polars_exports() -> None:
    pictures = pa.array([files.drawing(i, 8) for i in range(30)], pa.binary_view())
    assert load_pool(Frame({"label": NAMES, "image": pictures})).sample_shape == (8, 8)


def test_rows_without_a_list_are_skipped_like_others_without_numbers() -> None:
    lists = [None if i in (0, 7) else row for i, row in enumerate(X.tolist())]
    pool = load_pool(pa.table({"label": NAMES, "x": pa.array(lists)}), skip_damaged=True)
    assert pool.n_samples == 28
    np.testing.assert_array_equal(pool.samples, X[pool.given_rows])
    assert not {0, 7} & set(pool.given_rows.tolist())


def test_datasets_with_names_and_pictures() -> None:
    pictures = [{"bytes": files.drawing(i, 8 + i % 3), "path": None} for i in range(30)]
    data = Dataset({"image": pictures, "label": Y}, {"label": ClassLabel()})
    pool = load_pool(data, image_size=8, name="animals")
    assert pool.class_names == ClassLabel.names
    assert pool.sample_shape == (8, 8)
    pictures[3] = {"bytes": b"no picture", "path": None}
    with pytest.raises(DataError, match="row 3, column 'image' is not a picture"):
        load_pool(data)
    skipped = load_pool(data, skip_damaged=True)
    assert (skipped.n_samples, skipped.sample_shape) == (29, (84, 84))
    assert skipped.info["notes"] == [
        "1 of 30 pictures could not be read and were left out: the Dataset, row 3, column 'image'."
    ]
    with pytest.raises(DataError, match=r"a dict of datasets .*concatenate_datasets"):
        load_pool({"train": data, "test": data})


@pytest.mark.parametrize("divider", [",", ";", "\t"])
def test_csv_files(tmp_path: Path, divider: str) -> None:
    lines = ["id,species,a,b", *(f"s{i},{n},{i},{-i}.5" for i, n in enumerate(NAMES))]
    path = tmp_path / "d.csv"
    path.write_text("\n".join(lines).replace(",", divider))
    pool = load_pool(path)
    assert pool.sample_shape == (2,)
    rows = np.flatnonzero(Y == 2)
    np.testing.assert_array_equal(pool.samples_of("c2")[:, 0], rows)
    assert pool.names_of("c2") == tuple(f"s{i}" for i in rows)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,label\n1,größe\n2,y\n".encode("latin-1"), "column 'label' has letters that are not"),
        ("a,label\n1,größe\n2,y\n".encode("utf-16"), "is UTF-16 text. Save it as UTF-8."),
        (b"a,a,label\n1,2,x\n3,4,y\n", "has several columns called 'a'. Rename or drop one."),
    ],
)
def test_csv_files_that_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(message)):
        load_pool(path)


def test_rows_with_gaps_can_be_skipped(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("label,a,b\nx,1,2\nx,,4\n,5,6\ny,7,inf\ny,8,9\nz,nan,1\n")
    with pytest.raises(DataError, match="'label' has 1 missing values, the first in row 2"):
        load_pool(path)
    pool = load_pool(path, skip_damaged=True)
    assert pool.class_names == ("x", "y")
    assert pool.samples.tolist() == [[1, 2], [8, 9]]
    assert pool.info["notes"] == [
        "3 of 5 samples have NaN or infinite numbers and were left out: row 1, row 2, row 4.",
        "1 of 3 classes had no other samples and were left out: 'z'.",
        "1 of 6 rows lack a value and were left out: row 2.",
    ]


def test_a_table_of_gaps_alone_is_an_error() -> None:
    lists = pa.array([None, None], type=pa.list_(pa.float32()))
    with pytest.raises(DataError, match="no row has a value in column 'f'"):
        load_pool(pa.table({"label": ["x", "y"], "f": lists}), skip_damaged=True)


def test_arrays_with_damaged_rows_can_be_cleaned() -> None:
    holes = np.where(np.arange(30)[:, None] == 4, np.nan, X)
    with pytest.raises(DataError, match="has NaN or infinite features"):
        load_pool((holes, Y))
    names = [str(i) for i in range(30)]
    pool = load_pool((holes, Y), skip_damaged=True, sample_names=names, splits=files.SPLIT_OF)
    assert pool.n_samples == 29
    assert "4" not in pool.names_of(int(Y[4]))
    with pytest.raises(DataError, match="skip_damaged=3 must be True or False"):
        load_pool((X, Y), skip_damaged=3)


def test_sparse_matrices() -> None:
    pool = load_pool((scipy.sparse.csr_matrix(X), NAMES))
    np.testing.assert_array_equal(pool.samples_of("c2"), X[Y == 2])
    large = scipy.sparse.coo_array(([1.0], ([0], [0])), shape=(30, 10**12))
    with pytest.raises(DataError, match=r"sparse matrix of shape .* would take about .*Truncated"):
        load_pool((large, NAMES))


def test_tensors() -> None:
    pool = load_pool((Tensor(X), Tensor(Y)))
    np.testing.assert_array_equal(pool.samples_of("2"), X[Y == 2])
    images = np.zeros((30, 3, 6, 5), dtype=np.float32)
    assert load_pool((Tensor(images), Tensor(Y))).sample_shape == (6, 5, 3)


def test_missing_labels_of_pandas() -> None:
    class NA:
        def __ne__(self, other: object) -> object:
            return self

        def __bool__(self) -> bool:
            raise TypeError("boolean value of NA is ambiguous")

        __hash__ = None

    with pytest.raises(DataError, match="y has missing labels"):
        load_pool((X[:2], np.array(["a", NA()], dtype=object)))


def test_transformers_of_scikit_learn_get_rows(own_cache: Path) -> None:
    from sklearn.decomposition import PCA

    images = np.random.default_rng(0).integers(0, 256, (30, 6, 5), dtype=np.uint8)
    flat = (images / 255).reshape(30, -1).astype(np.float32)
    pca = PCA(3, random_state=0).fit(flat)
    for encoder in (pca, pca.transform):
        pool = load_pool((images, Y), encoder=encoder)
        np.testing.assert_allclose(pool.samples_of("2"), pca.transform(flat[Y == 2]), atol=1e-5)


def test_data_sets_of_scikit_learn() -> None:
    from sklearn.datasets import load_iris

    pool = load_pool(load_iris(), splits=["train", "train", "test"])
    assert pool.class_names == ("setosa", "versicolor", "virginica")
    assert (pool.n_samples, pool.sample_shape) == (150, (4,))
