"""Datasets as PyTorch has them, without PyTorch: `tests/pytorch` has the real ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from taskscape import load_pool
from taskscape.errors import DataError
from taskscape.pools import cache

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (6, 5, 4), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
FEATURES = RNG.normal(size=(6, 3)).astype(np.float32)


class Dataset:
    """What torch's is: a length and items, here with the names of its classes."""

    classes = ("ant", "bee", "cow")

    def __init__(self, samples: Sequence[Any], labels: Sequence[Any] = (2, 0, 2, 0, 0, 2)):
        self.samples, self.labels, self.asked = samples, labels, 0

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        self.asked += 1
        return self.samples[i], self.labels[i]


class Subset:
    def __init__(self, dataset: Dataset, indices: list[int]):
        self.dataset, self.indices = dataset, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        return self.dataset[self.indices[i]]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (GREY, GREY),
        (COLOUR, COLOUR),
        ([Image.fromarray(image) for image in COLOUR], COLOUR),
        (COLOUR.transpose(0, 3, 1, 2) / np.float32(255), COLOUR),
        (GREY[:, None] / np.float32(255), GREY),
        (FEATURES, FEATURES),
    ],
    ids=["grey", "colour", "PIL", "ToTensor", "grey ToTensor", "features"],
)
def test_samples_come_as_torch_has_them(items: Any, expected: np.ndarray):
    dataset = Dataset(items)
    pool = load_pool(dataset)
    assert pool.class_names == ("ant", "cow")
    np.testing.assert_array_equal(pool.samples_of("cow"), expected[[0, 2, 5]])
    assert dataset.asked == 6  # each sample is read once


def test_a_subset_has_the_names_of_its_dataset_and_rows_of_its_own():
    pool = load_pool(Subset(Dataset(GREY), [5, 1, 4, 0]), name="mine")
    assert repr(pool) == "ClassPool('mine': 2 classes, 4 samples of 5×4)"
    np.testing.assert_array_equal(pool.given(pool.rows), [1, 2, 0, 3])


def test_labels_may_be_scalars_of_numpy_or_text():
    assert load_pool(Dataset(GREY, np.array([7, 7, 1, 1, 7, 1]))).class_names == ("1", "7")
    assert load_pool(Dataset(GREY, list("ababab"))).class_names == ("a", "b")


def test_pictures_of_several_sizes_are_brought_to_one():
    pictures = [Image.new("RGB", (8 + i, 9), "red") for i in range(6)]
    with pytest.raises(DataError, match=r"sample 1 of the Dataset.*image_size"):
        load_pool(Dataset(pictures))
    assert load_pool(Dataset(pictures), image_size=4).sample_shape == (4, 4, 3)


def test_a_large_dataset_stays_out_of_memory(monkeypatch: pytest.MonkeyPatch, shared_cache: None):
    monkeypatch.setattr(cache, "_MAP_ABOVE_BYTES", 10)
    pool = load_pool(Dataset(GREY))
    assert isinstance(pool.samples.base, np.memmap) or isinstance(pool.samples, np.memmap)
    np.testing.assert_array_equal(pool.samples_of("ant"), GREY[[1, 3, 4]])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ([], r"list has no items"),
        ([1, 2], r"item 0 of the list is a int; expected a pair \(x, y\)"),
        (Dataset(GREY / 64.0 - 2), r"sample 0 .* pixels from -.*Leave Normalize out"),
        (Dataset(GREY.astype(np.float32)), r"expected fractions from 0 to 1"),
        (GREY, r"of a DataLoader, its \.dataset"),
    ],
)
def test_what_is_no_dataset_is_said(source: Any, said: str):
    with pytest.raises(DataError, match=said):
        load_pool(source)
