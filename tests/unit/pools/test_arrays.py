"""A user's own arrays, in whatever form they come."""

import jax.numpy as jnp
import numpy as np
import pytest

from taskscape.errors import DataError
from taskscape.pools.arrays import as_numpy, clean_labels, load_arrays, load_classes

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.array([2, 0, 2, 0, 5, 5])


class FakeTensor:
    """What torch's tensors ask of their readers: to be detached and brought to the CPU."""

    def __init__(self, values: np.ndarray, *, ready: int = 0, half: bool = False) -> None:
        self.values, self.ready, self.half = values, ready, half

    def detach(self) -> "FakeTensor":
        return FakeTensor(self.values, ready=1, half=self.half)

    def cpu(self) -> "FakeTensor":
        return FakeTensor(self.values, ready=self.ready + 1, half=self.half)

    def float(self) -> "FakeTensor":
        return FakeTensor(self.values, ready=self.ready)

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        assert self.ready == 2
        if self.half:
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.values


def test_arrays_of_all_kinds() -> None:
    expected = load_arrays(X, Y).fingerprint
    for make in (jnp.asarray, FakeTensor, lambda a: FakeTensor(a, half=True), np.ndarray.tolist):
        assert load_arrays(make(X), make(Y)).fingerprint == expected


def test_labels_of_all_kinds() -> None:
    names = ("0", "2", "5")
    for y in (Y, Y[:, None], Y.astype(float), Y.astype(object), Y.astype("U1"), Y.astype("S1")):
        assert load_arrays(X, y).class_names == names


def test_names_groups_and_splits_per_class_or_per_sample() -> None:
    by_class = load_arrays(
        X, Y, class_names=["a", "b", "c"], groups=["g", "g", "h"], splits=["train", "dev", "test"]
    )
    assert by_class.class_names == ("a", "b", "c")
    assert by_class.groups == ("g", "g", "h")
    assert by_class.splits == ("train", "val", "test")
    by_label = load_arrays(X, Y, class_names=list("abcdefg"))
    assert by_label.class_names == ("a", "c", "f")
    by_sample = load_arrays(X, Y, splits=["val", "train", "val", "train", "test", "test"])
    assert by_sample.splits == ("train", "val", "test")


def test_a_split_within_a_class_is_an_error() -> None:
    with pytest.raises(DataError, match="class '2' is in both 'train' and 'test'"):
        load_arrays(X, Y, splits=["train", "train", "test", "train", "test", "test"])


def test_grey_pictures_may_have_a_channel_axis() -> None:
    assert load_arrays(np.zeros((6, 5, 5, 1), dtype=np.uint8), Y).sample_shape == (5, 5)


@pytest.mark.parametrize(("channels", "shape"), [(1, (5, 4)), (3, (5, 4, 3))])
def test_pictures_may_come_as_torch_has_them(channels: int, shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, channels, 5, 4), dtype=np.uint8)
    pool = load_arrays(images, Y)
    assert pool.sample_shape == shape
    first = pool.samples_of(str(Y[0]))[0].reshape(5, 4, -1)
    np.testing.assert_array_equal(first[..., 0], images[0, 0])


def test_one_sample_classes_are_fine() -> None:
    pool = load_arrays(X, [3, 1, 0, 2, 5, 4])
    assert pool.counts.tolist() == [1] * 6
    np.testing.assert_array_equal(pool.samples_of("3")[0], X[0])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, Y[:5], "X has 6 samples and y has 5 labels; give one per sample."),
        (X[:0], Y[:0], "pool 'arrays' has no samples."),
        (X, np.eye(6), "y has shape (6, 6); expected one label per sample. One-hot"),
        (X, Y + 0.5, "y holds fractions or NaN: expected class labels"),
        (X, 1e300 * (Y + 1.0), "y holds fractions or NaN: expected class labels"),
        (X, np.array([1, "1", 2, "2", 3, 3], object), "y has different labels that read alike"),
        (X, [None, *Y[1:]], "y has missing labels. Remove these samples."),
        (X, 3, "y is a single int, not an array of rows."),
        ([[1], [1, 2]], [0, 1], "X is not an array"),
        (np.where(X == 4, np.nan, X), Y, "class '2' has NaN or infinite features in 1 of its 2"),
        (X.astype("U3"), Y, "samples have type <U3; expected numbers."),
        (X[:, 0], Y, "samples have shape (6,) and type float32; expected"),
        (np.zeros((6, 4, 8, 8), np.uint8), Y, "colour images must have 3 channels last"),
        (X, np.array(["2020-01-01"] * 6, dtype="datetime64"), "y has type datetime64[D]; expected"),
    ],
)
def test_arrays_that_make_no_pool(x: object, y: object, message: str) -> None:
    with pytest.raises(DataError) as raised:
        load_arrays(x, y)
    assert str(raised.value).startswith(message)


def test_entries_that_fit_neither_classes_nor_samples() -> None:
    with pytest.raises(DataError, match="groups has 2 entries for 3 classes and 6 samples"):
        load_arrays(X, Y, groups=["a", "b"])


def test_classes_keep_the_order_of_the_dict() -> None:
    pool = load_classes({"z": X[:2], 7: X[2:]}, splits=["train", "test"], groups=["g", "h"])
    assert pool.class_names == ("z", "7")
    assert pool.splits == ("train", "test")
    assert pool.groups == ("g", "h")
    np.testing.assert_array_equal(pool.samples_of("7"), X[2:])


def test_pixels_are_scaled_for_all_classes_alike() -> None:
    dark, bright = np.full((1, 2, 2), 1.0), np.full((1, 2, 2), 200.0)
    pool = load_classes({"dark": dark, "bright": bright})
    assert pool.samples[:, 0, 0].tolist() == [1, 200]


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ({}, "the dict of classes is empty"),
        ({"a": X, "b": X[:0]}, "class 'b' has no samples."),
        ({"a": X, "b": X[:, :1]}, "class 'b' has samples of shape (1,), class 'a' of shape (2,)"),
        ({1: X, "1": X}, "class name '1' is used twice"),
        (
            {"a": np.zeros((1, 2, 2), np.uint8), "b": np.zeros((1, 2, 2))},
            "class 'b' has pixels of type float64, class 'a' of type uint8",
        ),
    ],
)
def test_dicts_that_make_no_pool(classes: dict, message: str) -> None:
    with pytest.raises(DataError) as raised:
        load_classes(classes)
    assert str(raised.value).startswith(message)


def test_arrays_are_left_alone() -> None:
    assert as_numpy(X, "X") is X
    assert clean_labels(Y) is Y
