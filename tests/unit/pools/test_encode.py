"""Encoders: features made once, never stale, and only by encoders that are functions."""

import functools
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import pool_files as files
from taskscape.errors import DataError
from taskscape.pools.encode import encoder_label
from taskscape.pools.load import load_pool
from taskscape.pools.pool import ClassPool
from taskscape.targets import find_target


@pytest.fixture
def pool(tmp_path: Path) -> ClassPool:
    return load_pool(files.write_files(tmp_path / "pictures", files.picture_files()))


class Encoder:
    """Counts how many samples it was given."""

    def __init__(self, weight: float = 1.0, scale: float = 1.0) -> None:
        self.weight, self.scale, self.seen, self.batches = weight, scale, 0, list[tuple]()

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        assert batch.dtype == np.float32
        assert 0 <= batch.min() <= batch.max() <= 1
        self.seen += len(batch)
        self.batches.append(batch.shape)
        return self.weight * batch.mean(axis=2)


def test_features_are_those_of_the_encoder(pool: ClassPool) -> None:
    encoded = load_pool(pool, encoder=Encoder(2.0), encoder_batch=7)
    assert encoded.sample_shape == (28,)
    assert encoded.samples.dtype == np.float32
    assert encoded.class_names == pool.class_names
    assert encoded.splits == pool.splits
    assert encoded.info["encoded_from"] == pool.fingerprint
    for c in range(len(pool)):
        expected = 2 * pool.samples_of(c).astype(np.float32).mean(axis=2) / 255
        np.testing.assert_allclose(encoded.samples_of(c), expected, rtol=1e-5)


def test_only_the_split_asked_for_is_encoded(pool: ClassPool) -> None:
    encoder = Encoder()
    encoded = load_pool(pool, split="test", encoder=encoder)
    assert len(encoded) == 2
    assert encoded.name == "pictures[test]"
    assert encoder.batches[-1] == (10, 28, 28)
    np.testing.assert_allclose(
        encoded.samples_of("class5"), pool.take(np.arange(25, 30)).mean(axis=2), rtol=1e-5
    )


def test_the_second_time_only_a_probe_is_encoded(pool: ClassPool) -> None:
    first, second = Encoder(), Encoder()
    a = load_pool(pool, encoder=first)
    b = load_pool(pool, encoder=second)
    assert first.seen - second.seen == pool.n_samples
    assert a.fingerprint == b.fingerprint
    np.testing.assert_array_equal(a.samples, b.samples)


def test_new_weights_never_get_old_features(pool: ClassPool) -> None:
    encoder = Encoder(1.0)
    before = load_pool(pool, encoder=encoder, encoder_name="mine")
    encoder.weight = 1.001
    after = load_pool(pool, encoder=encoder, encoder_name="mine")
    assert after.fingerprint != before.fingerprint


def test_other_data_never_get_old_features(pool: ClassPool, tmp_path: Path) -> None:
    other = load_pool(files.write_files(tmp_path / "other", files.picture_files(seed=1)))
    constant = lambda batch: np.ones((len(batch), 2))  # noqa: E731
    a, b = load_pool(pool, encoder=constant), load_pool(other, encoder=constant)
    assert a.info["encoded_from"] != b.info["encoded_from"]


class FakeTensor:
    def __init__(self, values: np.ndarray, ready: int = 0) -> None:
        self.values, self.ready = values, ready

    def detach(self) -> "FakeTensor":
        return FakeTensor(self.values, self.ready + 1)

    def cpu(self) -> "FakeTensor":
        return FakeTensor(self.values, self.ready + 1)

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        assert self.ready == 2
        return self.values


def test_what_networks_return(pool: ClassPool) -> None:
    plain = lambda batch: batch.mean(axis=2)  # noqa: E731
    expected = load_pool(pool, encoder=plain).samples
    torch_like = load_pool(pool, encoder=lambda batch: FakeTensor(plain(batch)))
    jax_like = load_pool(pool, encoder=lambda batch: jnp.asarray(plain(batch)))
    halves = load_pool(pool, encoder=lambda b: jnp.asarray(plain(b), dtype=jnp.bfloat16))
    np.testing.assert_array_equal(torch_like.samples, expected)
    np.testing.assert_array_equal(jax_like.samples, expected)
    np.testing.assert_allclose(halves.samples, expected, rtol=0.01)


def test_noise_is_refused(pool: ClassPool, own_cache: Path) -> None:
    rng = np.random.default_rng(0)
    before = sorted(own_cache.rglob("*"))
    with pytest.raises(DataError, match=r"answers differently .* dropout"):
        load_pool(pool, encoder=lambda b: b.mean(axis=2) * (rng.random((len(b), 28)) > 0.2))
    assert sorted(own_cache.rglob("*")) == before


def test_batch_statistics_are_refused(pool: ClassPool) -> None:
    def normalised(batch: np.ndarray) -> np.ndarray:
        features = batch.mean(axis=2)
        return (features - features.mean(axis=0)) / features.std(axis=0)

    with pytest.raises(DataError, match=r"depend on the other samples of its batch\. Switch off"):
        load_pool(pool, encoder=normalised)


def test_rounding_is_tolerated(pool: ClassPool) -> None:
    rng = np.random.default_rng(0)
    noisy = lambda b: b.mean(axis=2) + 1e-4 * rng.normal(size=(len(b), 28))  # noqa: E731
    assert load_pool(pool, encoder=noisy).sample_shape == (28,)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (lambda b: b, r"returned shape \(16, 28, 28\) for a float32 batch of shape \(16, 28, 28\)"),
        (lambda b: b.mean(), r"what the encoder returned is a single float32"),
        (lambda b: b.mean(axis=2)[:3], r"returned shape \(3, 28\) .*expected \(16, dims\)"),
        (lambda b: np.zeros((len(b), 0)), r"returned shape \(16, 0\)"),
        (lambda b: np.log(b.mean(axis=2) * 0 - 1), r"NaN or infinite features for 16 of 16"),
        (lambda b: np.full((len(b), 1), "x"), r"the encoder returned <U1, not numbers"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_answers_that_cannot_be_used(pool: ClassPool, encoder: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_pool(pool, encoder=encoder)


def test_nan_midway_leaves_nothing(pool: ClassPool, own_cache: Path) -> None:
    before = sorted(own_cache.rglob("*"))
    with pytest.raises(DataError, match=r"NaN or infinite features for 6 of 6 samples"):
        load_pool(
            pool,
            encoder=lambda b: b.mean(axis=2) * (np.nan if len(b) == 6 else 1),
            encoder_batch=24,
        )
    assert sorted(own_cache.rglob("*")) == before


def test_a_crash_midway_leaves_nothing(pool: ClassPool, own_cache: Path) -> None:
    before = sorted(own_cache.rglob("*"))

    def crashes(batch: np.ndarray) -> np.ndarray:
        if len(batch) == 6:
            raise RuntimeError("out of memory")
        return batch.mean(axis=2)

    with pytest.raises(RuntimeError, match="out of memory") as raised:
        load_pool(pool, encoder=crashes, encoder_batch=24)
    (note,) = raised.value.__notes__
    assert note.startswith("The encoder was called with a float32 batch of shape (6, 28, 28).")
    assert "batch.reshape(len(batch), -1)" in note
    assert sorted(own_cache.rglob("*")) == before


def test_features_can_be_encoded_too() -> None:
    encoded = load_pool(files.features(), encoder=lambda b: b[:, :2] ** 2)
    assert encoded.sample_shape == (2,)


def test_a_pool_of_one_sample() -> None:
    assert load_pool({"a": [[1.0, 2.0]]}, encoder=lambda b: b * 2).samples.tolist() == [[2.0, 4.0]]


def test_arguments_are_checked_before_anything_is_opened(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for options, message in (
        ({"encoder": 3}, r"encoder=3 cannot be called"),
        ({"encoder_name": "x"}, r"encoder_name='x' was given without an encoder"),
        ({"encoder": len, "encoder_name": 3}, r"encoder_name=3: expected text"),
        ({"encoder": len, "encoder_batch": 0}, r"encoder_batch=0 must be at least 1"),
        ({"encoder": len, "encoder_batch": 2.0}, r"encoder_batch=2\.0"),
    ):
        with pytest.raises(DataError, match=message):
            load_pool(nowhere, **options)


def test_what_an_encoder_is_called() -> None:
    assert encoder_label(np.mean) == "numpy.mean"
    assert encoder_label(functools.partial(np.mean, axis=1)) == "numpy.mean"
    assert encoder_label(Encoder()).endswith("test_encode.Encoder")


def rows_of_pixels(batch: np.ndarray) -> np.ndarray:
    return batch.mean(axis=2)


@pytest.mark.parametrize("stored", [False, True])
def test_a_pool_of_features_brings_a_target_of_pictures_to_its_own_form(
    pool: ClassPool, tmp_path: Path, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_network.py").write_text("def rows(batch):\n    return batch.mean(axis=2)\n")
    monkeypatch.chdir(tmp_path)
    encoded = load_pool(pool, encoder="my_network:rows" if stored else rows_of_pixels)
    if stored:  # which remembers what to import
        encoded.save(tmp_path / "mine")
        encoded = load_pool(tmp_path / "mine")
        assert encoded.encoder is None
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (12, 56, 56), dtype=np.uint8)  # of another size, too
    target = find_target((pixels, np.repeat([0, 1], 6)), encoded, n_shot=3)
    assert target.pool.sample_shape == (28,)
    assert [note.split(":")[0] for note in target.notes] == ["target", "target"]
    half = load_pool((pixels, np.repeat([0, 1], 6)), image_size=28)
    np.testing.assert_allclose(target.pool.samples, rows_of_pixels(half.take(half.rows)), rtol=1e-5)


@pytest.mark.parametrize("name", ["no_such_module:rows", "numpy", "numpy:no_such", ":rows"])
def test_an_encoder_that_cannot_be_imported_is_named(name: str) -> None:
    with pytest.raises(DataError, match=rf"encoder='{name}' .*module:function"):
        load_pool({"a": np.zeros((3, 2)), "b": np.ones((3, 2))}, encoder=name)
