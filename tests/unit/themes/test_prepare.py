"""Feature preparation: each step against plain NumPy, and what is refused."""

import re

import numpy as np
import pytest

from taskscape import ClassPool
from taskscape.errors import DataError
from taskscape.themes import PrepareConfig, prepare
from taskscape.themes.prepare import (
    Preparation,
    PreparedSamples,
    all_rows,
    choose_config,
    learn_preparation,
    parse_prepare,
)

RAW = PrepareConfig(centre=False, pca=None)


def pool_of(samples: np.ndarray, n_classes: int = 4) -> ClassPool:
    return ClassPool.from_arrays(
        samples, np.repeat(np.arange(n_classes), len(samples) // n_classes)
    )


@pytest.fixture
def features() -> np.ndarray:
    return np.random.default_rng(0).gamma(1.0, 2.0, (40, 6)).astype(np.float32)


@pytest.fixture
def pool(features: np.ndarray) -> ClassPool:
    return pool_of(features)


def test_every_step_can_be_left_out(pool: ClassPool, features: np.ndarray):
    nothing = learn_preparation(pool, np.arange(4), RAW)
    np.testing.assert_array_equal(nothing(features), features)
    assert nothing.dims == 6
    assert nothing.settings() == {
        "edges": None, "power": None, "l2": False, "centre": False, "pca": None, "explained": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize("power", [0.5, 0.3])
def test_the_steps_are_taken_in_their_order(pool: ClassPool, features: np.ndarray, power: float):
    train = np.arange(3)
    preparation = learn_preparation(pool, train, PrepareConfig(power=power, l2=True, pca=2))
    X = features.astype(np.float64) ** power
    X /= np.sqrt((X**2).sum(axis=1, keepdims=True))
    centred = X - X[:30].mean(axis=0)  # the fourth class is not trained on
    _, values, axes = np.linalg.svd(centred[:30])
    expected = centred @ axes[:2].T
    got = preparation(features)
    assert got.dtype == np.float32
    np.testing.assert_allclose(np.abs(got), np.abs(expected), atol=2e-5)
    assert preparation.explained == pytest.approx(
        (values[:2] ** 2).sum() / (values**2).sum(), rel=1e-4
    )
    assert preparation.dims == 2


def test_a_sample_of_zeros_stays_finite(pool: ClassPool):
    preparation = learn_preparation(pool, np.arange(4), PrepareConfig(power=0.5, l2=True, pca=None))
    np.testing.assert_allclose(preparation(np.zeros((1, 6), np.float32)), -preparation.mean[None])


def test_images_are_laid_flat():
    images = np.random.default_rng(0).integers(0, 256, (8, 3, 3)).astype(np.uint8)
    pool = pool_of(images)
    preparation = learn_preparation(pool, np.arange(4), PrepareConfig(pca=None))
    flat = images.reshape(8, 9) / 255
    np.testing.assert_allclose(
        preparation(pool.take(np.arange(8))), flat - flat.mean(axis=0), atol=1e-6
    )


def test_a_spread_of_a_large_pool_is_enough(
    pool: ClassPool, features: np.ndarray, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(prepare, "_ROWS_TO_LEARN_FROM", 20)
    monkeypatch.setattr(prepare, "_ROWS_AT_ONCE", 7)
    preparation = learn_preparation(pool, np.arange(4), PrepareConfig(pca=None))
    rows = np.linspace(0, 39, 20).astype(int)
    np.testing.assert_allclose(preparation.mean, features[rows].mean(axis=0), rtol=1e-6)


def test_the_default_is_chosen_from_the_data():
    rng = np.random.default_rng(0)
    part, relu, signed = np.arange(4), rng.gamma(1, 1, (80, 40)), rng.normal(size=(80, 40))
    images = rng.integers(0, 256, (80, 6, 6)).astype(np.uint8)
    network = PrepareConfig(power=0.5, l2=True, pca=32)
    assert choose_config(pool_of(relu), part) == network
    assert choose_config(pool_of(signed), part) == PrepareConfig(pca=32)
    assert choose_config(pool_of(images), part) == PrepareConfig(pca=32)
    large = np.kron(images, np.ones((1, 3, 3), np.uint8))
    assert choose_config(pool_of(large), part) == PrepareConfig(edges=5, pca=64)
    assert choose_config(pool_of(large[:20]), part) == PrepareConfig(edges=5, pca=20)
    assert choose_config(pool_of(relu[:, :5]), part) == PrepareConfig(power=0.5, l2=True, pca=None)
    # one non-negative number of unit length would be a constant
    assert choose_config(pool_of(relu[:, :1]), part) == PrepareConfig(pca=None)
    # only the classes asked for are looked at, and a few samples have fewer components
    half = np.concatenate([relu[:40], signed[:40]])
    assert choose_config(pool_of(half), np.arange(2)) == network
    assert choose_config(pool_of(half), part) == PrepareConfig(pca=32)
    assert choose_config(pool_of(relu[:20]), part) == PrepareConfig(power=0.5, l2=True, pca=20)


@pytest.mark.parametrize("limit", [1 << 29, 0])
def test_prepared_samples_are_found_by_their_rows(
    pool: ClassPool, features: np.ndarray, monkeypatch: pytest.MonkeyPatch, limit: int
):
    monkeypatch.setattr(prepare, "_KEEP_BELOW_BYTES", limit)
    monkeypatch.setattr(prepare, "_ROWS_AT_ONCE", 3)
    preparation = learn_preparation(pool, np.arange(4), PrepareConfig(pca=3))
    prepared = PreparedSamples(pool, preparation, np.array([3, 1]))
    rows = np.array([35, 12, 12, 39, 10])
    np.testing.assert_allclose(prepared.take(rows), preparation(features[rows]), atol=1e-6)
    assert prepared.take(np.array([], dtype=np.int64)).shape == (0, 3)


def test_rows_of_classes_ascend_in_any_pool(pool: ClassPool):
    np.testing.assert_array_equal(all_rows(pool, np.array([2, 0])), [*range(10), *range(20, 30)])
    turned = pool.subset(["3", "0"])
    np.testing.assert_array_equal(all_rows(turned, np.array([0, 1])), [*range(10), *range(30, 40)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"power": 0.0}, "power=0.0 must be a number above 0 and at most 1."),
        ({"power": 1.5}, "power=1.5 must be a number above 0 and at most 1."),
        ({"pca": 0}, "pca=0 must be at least 1."),
    ],
)
def test_settings_are_checked(settings: dict, message: str):
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        PrepareConfig(**settings)


def test_steps_in_words():
    assert RAW.describe() == "none"
    assert PrepareConfig().describe() == "centring → 32 principal components"


def test_a_power_needs_features_that_are_not_negative(features: np.ndarray):
    features[7, 2] = -1.5
    message = "power=0.5 needs non-negative features; the smallest is -1.5. Set power=None."
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        learn_preparation(pool_of(features), np.arange(4), PrepareConfig(power=0.5, pca=None))


def test_there_are_only_so_many_components(pool: ClassPool):
    message = (
        "pca=7 is more than the 6 that 40 samples of 6 dimensions allow. Lower it, or leave it "
        "out with pca=None."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        learn_preparation(pool, np.arange(4), PrepareConfig(pca=7))


def test_other_data_are_refused(pool: ClassPool):
    preparation = Preparation(RAW, np.zeros(6, np.float32), None)
    message = (
        "samples have 5 dimensions; the preparation was learned on 6. Use data of the same kind "
        "as the model was fitted on."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        preparation(np.zeros((2, 5), np.float32))


def test_samples_that_are_all_the_same_are_refused_with_components():
    message = "all samples are the same; there is nothing to tell apart."
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        learn_preparation(pool_of(np.ones((8, 6))), np.arange(4), PrepareConfig(pca=2))


def test_unit_length_survives_values_whose_squares_overflow():
    samples = np.array([[3e25, 4e25], [3.0, 4.0], [0.0, 0.0]], dtype=np.float32)
    result = prepare._before_centring(samples, PrepareConfig(l2=True))
    np.testing.assert_allclose(result, [[0.6, 0.8], [0.6, 0.8], [0, 0]], rtol=1e-6)


def test_preparations_are_read_from_text():
    assert parse_prepare("auto") == "auto"
    assert parse_prepare("none") is None
    assert parse_prepare("edges=4,power=0.5,l2,centre,pca=16") == PrepareConfig(
        4, 0.5, True, True, 16
    )
    for wrong in ("pcb=3", "l2=3", "pca", ""):
        with pytest.raises(DataError, match=f"^--prepare '{wrong}': use auto, none, or some of"):
            parse_prepare(wrong, "--prepare ")
    with pytest.raises(DataError, match="pca=0 must be at least 1"):
        parse_prepare("pca=0")
