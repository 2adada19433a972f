"""ClassPool: construction, reading, splits and identity."""

import re

import numpy as np
import pytest

from taskscape.errors import DataError
from taskscape.pools import ClassPool, parse_split


def features(n: int = 12, dims: int = 3) -> np.ndarray:
    return np.arange(n * dims, dtype=np.float32).reshape(n, dims)


def test_arrays_are_grouped_by_class_in_sorted_order_and_keep_their_order_within():
    pool = ClassPool.from_arrays(features(6), np.array(["b", "a", "b", "a", "c", "a"]))
    assert pool.class_names == ("a", "b", "c")
    assert pool.counts.tolist() == [3, 2, 1]
    np.testing.assert_array_equal(pool.samples_of("a"), features(6)[[1, 3, 5]])
    np.testing.assert_array_equal(pool.samples_of(1), features(6)[[0, 2]])


def test_class_names_by_label_may_name_classes_that_do_not_occur():
    pool = ClassPool.from_arrays(
        features(4),
        np.array([0, 2, 0, 2]),
        class_names=["ant", "bee", "cat"],
        groups=["insect", "insect", "mammal"],
        splits=["train", "train", "validation"],
    )
    assert pool.class_names == ("ant", "cat")
    assert pool.groups == ("insect", "mammal")
    assert pool.splits == ("train", "val")


def test_float_images_become_pixels_and_come_back_scaled():
    images = np.linspace(0, 1, 2 * 4 * 4).reshape(2, 4, 4)
    pool = ClassPool.from_arrays(images, np.array([0, 1]))
    assert pool.is_images
    assert pool.samples.dtype == np.uint8
    np.testing.assert_allclose(pool.take(np.array([0, 1])), images, atol=0.5 / 255 + 1e-6)
    assert pool.take(np.array([[0], [1]])).shape == (2, 1, 4, 4)


def test_half_precision_features_are_kept_small_and_read_as_float32():
    pool = ClassPool.from_arrays(features().astype(np.float16), np.repeat([0, 1], 6))
    assert pool.samples.dtype == np.float16
    assert pool.take(np.array([0])).dtype == np.float32


def test_splits_join_share_samples_and_know_their_own_fingerprint():
    pool = ClassPool.from_arrays(
        features(), np.repeat(np.arange(4), 3), splits=["train", "val", "test", "train"]
    )
    joined = pool.split("train+val")
    assert joined.class_names == ("0", "1", "3")
    assert joined.samples is pool.samples
    assert joined.name == "arrays[train+val]"
    assert len({pool.fingerprint, joined.fingerprint, pool.split("train").fingerprint}) == 3
    again = ClassPool.from_arrays(
        features(), np.repeat(np.arange(4), 3), splits=["train", "val", "test", "train"], name="x"
    )
    assert again.fingerprint == pool.fingerprint
    assert again.split("train+val").fingerprint == joined.fingerprint


@pytest.mark.parametrize("change", ["sample", "name", "split", "group", "order"])
def test_the_fingerprint_sees_every_change(change: str):
    X, names = features(), ["a", "b", "c", "d"]
    splits, groups = ["train"] * 4, ["g"] * 4
    y = np.repeat(np.arange(4), 3)
    before = ClassPool.from_arrays(X, y, class_names=names, splits=splits, groups=groups)
    if change == "sample":
        X = X.copy()
        X[5, 1] += 1e-3
    elif change == "name":
        names = ["a", "b", "c", "e"]
    elif change == "split":
        splits = ["train"] * 3 + ["test"]
    elif change == "group":
        groups = ["g"] * 3 + ["h"]
    else:
        X = X[::-1]
    after = ClassPool.from_arrays(X, y, class_names=names, splits=splits, groups=groups)
    assert before.fingerprint != after.fingerprint


def test_the_fingerprint_is_the_same_on_every_machine():
    pool = ClassPool.from_arrays(features(), np.repeat(np.arange(4), 3))
    big_endian = ClassPool.from_arrays(features().astype(">f4"), np.repeat(np.arange(4), 3))
    assert big_endian.digests == pool.digests


def test_empty_classes_are_impossible_and_one_sample_classes_are_not():
    pool = ClassPool.from_classes({"one": np.zeros((1, 2)), "two": np.zeros((2, 2))})
    assert pool.counts.tolist() == [1, 2]
    with pytest.raises(DataError, match=r"^class 'none' has no samples\."):
        ClassPool.from_classes({"one": np.zeros((1, 2)), "none": np.zeros((0, 2))})


def test_require_names_the_classes_and_their_counts():
    pool = ClassPool.from_classes({"Greek/07": np.zeros((20, 2)), "big": np.zeros((30, 2))})
    with pytest.raises(DataError, match=r"needs 25 samples per class; 'Greek/07' has 20\. Lower"):
        pool.require(25, "n_shot=5 + n_query=20")


NAN = features()
NAN[7, 2] = np.nan


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: ClassPool.from_arrays(NAN, np.repeat([0, 1], 6), class_names=["a", "b"]),
            "class 'b' has NaN or infinite features in 1 of its 6 samples (the first is sample 1). "
            "Remove or impute them; what is beyond 3e38 counts as infinite: scale it.",
        ),
        (
            lambda: ClassPool.from_arrays(features(), np.zeros(5)),
            "X has 12 samples and y has 5 labels; give one per sample.",
        ),
        (
            lambda: ClassPool.from_arrays(features(), np.linspace(0, 1, 12)),
            "y holds fractions or NaN: expected class labels, not regression values.",
        ),
        (
            lambda: ClassPool.from_arrays(np.zeros((0, 2)), np.zeros(0)),
            "pool 'arrays' has no samples.",
        ),
        (
            lambda: ClassPool.from_arrays(
                features(), np.repeat([0, 1], 6), class_names=["a", "b", "c"], groups=["x"]
            ),
            "groups has 1 entries for 2 classes and 12 samples; give one per class or one per "
            "sample.",
        ),
        (
            lambda: ClassPool.from_arrays(features(), np.repeat([0, 5], 6), class_names=["a"]),
            "class_names has 1 entries for 2 classes and 12 samples; give one per class or one per "
            "sample.",
        ),
        (
            lambda: ClassPool.from_arrays(features(), np.repeat([0, 1], 6), class_names=["a", "a"]),
            "class name 'a' is used twice; class names must differ.",
        ),
        (
            lambda: ClassPool.from_arrays(np.zeros((2, 4, 4, 5), np.uint8), np.array([0, 1])),
            "colour images must have 3 channels last; samples have shape (4, 4, 5). "
            "Move the channels last, or make them grey.",
        ),
        (
            lambda: ClassPool.from_arrays(np.full((2, 4, 4), -1.0), np.array([0, 1])),
            "images have pixels from -1 to -1; expected 0 to 255, or 0 to 1. Undo any "
            "normalisation, or pass flat feature vectors (rows, dims).",
        ),
        (
            lambda: ClassPool.from_arrays([["x"], ["y"]], [0, 1]),
            "samples have type <U1; expected numbers.",
        ),
        (
            lambda: ClassPool.from_classes({"a": np.zeros((2, 2)), "b": np.zeros((2, 3))}),
            "class 'b' has samples of shape (3,), class 'a' of shape (2,); all samples need the "
            "same shape.",
        ),
        (
            lambda: ClassPool.from_classes({}),
            "the dict of classes is empty; give at least one class name and its samples.",
        ),
        (
            lambda: ClassPool.from_arrays(features(), np.repeat([0, 1], 6)).split("train"),
            "split='train': pool 'arrays' has no splits. Leave split out, or give it some: "
            "load_pool(…, splits=…), folders train/val/test, or split_classes(pool); on the "
            "command line, `taskscape data save` with --split-file or --deal.",
        ),
        (
            lambda: ClassPool.from_arrays(
                features(), np.repeat([0, 1], 6), splits=["train", "test"]
            ).split("train+val"),
            "split='train+val': pool 'arrays' has no 'val' classes; it has train, test.",
        ),
        (
            lambda: ClassPool.from_arrays(features(), np.repeat([0, 1], 6)).class_index("dog"),
            "no class 'dog' in pool 'arrays'; it has 2 classes such as '0', '1'.",
        ),
        (
            lambda: parse_split("trian"),
            "split='trian': 'trian' is not a split. "
            "Use 'train', 'val', 'test', or several joined by '+', such as 'train+val'.",
        ),
    ],
)
def test_bad_input_is_named(build, message: str):
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        build()


def test_a_mask_is_not_lost():
    X = np.ma.masked_equal(features(4), 5.0)
    for ask, what in (
        (lambda: ClassPool.from_arrays(X, [0, 0, 1, 1]), "X"),
        (lambda: ClassPool.from_arrays(features(4), np.ma.masked_equal([0, 0, 1, 9], 9)), "y"),
        (lambda: ClassPool.from_classes({"a": X}), "class 'a'"),
        (lambda: ClassPool.from_arrays(list(X), [0, 0, 1, 1]), "X"),
    ):
        with pytest.raises(DataError, match=f"^{what} has 1 masked values. Leave these rows out"):
            ask()
    whole = np.ma.masked_equal(features(4), -1.0)  # nothing is masked
    assert ClassPool.from_arrays(whole, [0, 0, 1, 1]).n_samples == 4


def test_classes_of_a_subset_are_whole_numbers_of_the_pool():
    pool = ClassPool.from_arrays(features(), np.repeat(np.arange(4), 3))
    assert pool.subset(np.array([2, 0])).class_names == ("2", "0")
    for wrong in ([1.7], [-1], [4], [True, False]):
        with pytest.raises(DataError, match=r"^class=.* must be"):
            pool.subset(wrong)


def test_samples_without_a_single_number_are_refused():
    with pytest.raises(DataError, match=r"^samples of shape \(0,\) hold no numbers"):
        ClassPool.from_arrays(np.zeros((4, 0)), [0, 0, 1, 1])
