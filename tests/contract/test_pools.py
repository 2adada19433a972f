"""Every kind of source gives a pool that behaves the same."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import pool_files as files
from taskscape.errors import DataError
from taskscape.pools import POOLS, ClassPool, load_pool
from taskscape.pools.cache import write_pool


def _arrays(folder: Path, seed: int) -> ClassPool:
    return load_pool(files.features(seed), splits=files.SPLIT_OF)


def _classes(folder: Path, seed: int) -> ClassPool:
    X, y = files.features(seed)
    classes = {f"class{c}": X[y == c] for c in range(files.N_CLASSES)}
    return load_pool(classes, splits=files.SPLIT_OF)


def _npz(folder: Path, seed: int) -> ClassPool:
    X, y = files.features(seed)
    np.savez(folder / "own.npz", features=X, label=y, class_split=np.array(files.SPLIT_OF))
    return load_pool(folder / "own.npz")


def _npz_parts(folder: Path, seed: int) -> ClassPool:
    X, y = files.features(seed)
    split = np.array(files.SPLIT_OF)[y]
    parts = {}
    for s in ("train", "val", "test"):
        parts |= {f"X_{s}": X[split == s], f"y_{s}": y[split == s]}
    np.savez(folder / "parts.npz", **parts)
    return load_pool(folder / "parts.npz")


def _table(seed: int) -> pa.Table:
    X, y = files.features(seed)
    columns = {"label": [f"class{c}" for c in y], "split": [files.SPLIT_OF[c] for c in y]}
    return pa.table(columns | {f"f{d}": X[:, d] for d in range(X.shape[1])})


def _parquet(folder: Path, seed: int) -> ClassPool:
    pyarrow.parquet.write_table(_table(seed), folder / "own.parquet")
    return load_pool(folder / "own.parquet")


def _arrow(folder: Path, seed: int) -> ClassPool:
    pyarrow.feather.write_feather(_table(seed), folder / "own.arrow")
    return load_pool(str(folder / "own.arrow"))


def _folder(folder: Path, seed: int) -> ClassPool:
    return load_pool(files.write_files(folder / "pictures", files.picture_files(seed)))


def _zipped_folder(folder: Path, seed: int) -> ClassPool:
    contents = files.picture_files(seed, prefix="around/")
    return load_pool(files.write_zip(folder / "pictures.zip", contents))


def _omniglot_folders(folder: Path, seed: int) -> ClassPool:
    return load_pool(files.write_files(folder / "official", files.omniglot_files(seed)))


def _omniglot_zip(folder: Path, seed: int) -> ClassPool:
    contents = files.write_zip(folder / "omniglot.zip", files.omniglot_files(seed))
    return load_pool("omniglot", path=contents)


def _leo(folder: Path, seed: int) -> ClassPool:
    return load_pool(files.write_leo(folder / "center", seed))


def _encoded(folder: Path, seed: int) -> ClassPool:
    pictures = files.write_files(folder / "pictures", files.picture_files(seed))
    return load_pool(pictures, encoder=lambda batch: batch.mean(axis=2) + 1)


def _stored(folder: Path, seed: int) -> ClassPool:
    if not (folder / f"stored{seed}").exists():
        write_pool(_arrays(folder, seed), folder / f"stored{seed}")
    return load_pool(folder / f"stored{seed}")


SOURCES: dict[str, Callable[[Path, int], ClassPool]] = {
    "arrays": _arrays,
    "classes": _classes,
    "npz": _npz,
    "npz parts": _npz_parts,
    "parquet": _parquet,
    "arrow": _arrow,
    "folder": _folder,
    "zipped folder": _zipped_folder,
    "omniglot folders": _omniglot_folders,
    "omniglot zip": _omniglot_zip,
    "leo": _leo,
    "encoded": _encoded,
    "stored": _stored,
}
"""Each opens 6 classes of 5 samples with splits; the seed decides their content."""


@pytest.fixture(params=SOURCES)
def open_pool(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], ClassPool]:
    return lambda seed=0: SOURCES[request.param](tmp_path, seed)


def test_classes_and_counts(open_pool: Callable[..., ClassPool]) -> None:
    pool = open_pool()
    assert len(pool) == len(set(pool.class_names)) == files.N_CLASSES
    assert pool.counts.tolist() == [files.PER_CLASS] * files.N_CLASSES
    assert pool.n_samples == files.N_CLASSES * files.PER_CLASS
    assert all(
        pool.samples_of(c).shape == (files.PER_CLASS, *pool.sample_shape) for c in range(len(pool))
    )
    assert "source" in pool.info


def test_splits_are_of_classes(open_pool: Callable[..., ClassPool]) -> None:
    pool = open_pool()
    assert pool.splits is not None
    train, test = pool.split("train"), pool.split("test")
    assert not set(train.class_names) & set(test.class_names)
    assert len(train) >= 3
    assert len(test) == 2
    present = "+".join(sorted(set(pool.splits)))
    assert len(pool.split(present)) == len(pool)


def test_the_fingerprint_is_that_of_the_content(
    open_pool: Callable[..., ClassPool], own_cache: Path
) -> None:
    first, again = open_pool(), open_pool()
    assert first.fingerprint == again.fingerprint
    assert open_pool(1).fingerprint != first.fingerprint


def test_a_second_load_gives_the_same_content(open_pool: Callable[..., ClassPool]) -> None:
    first, again = open_pool(), open_pool()
    assert again.name == first.name
    assert again.class_names == first.class_names
    assert again.splits == first.splits
    assert again.groups == first.groups
    assert again.samples.dtype == first.samples.dtype
    for c in range(len(first)):
        np.testing.assert_array_equal(again.samples_of(c), first.samples_of(c))


def test_take_gives_float32(open_pool: Callable[..., ClassPool]) -> None:
    pool = open_pool()
    taken = pool.take(np.array([[0, 3], [7, 1]]))
    assert taken.shape == (2, 2, *pool.sample_shape)
    assert taken.dtype == np.float32
    assert np.isfinite(taken).all()
    if pool.is_images:
        assert taken.min() >= 0
        assert 0 < taken.max() <= 1


def test_a_subset_keeps_its_samples(open_pool: Callable[..., ClassPool]) -> None:
    pool = open_pool()
    part = pool.subset([4, 1])
    assert part.class_names == (pool.class_names[4], pool.class_names[1])
    np.testing.assert_array_equal(part.samples_of(0), pool.samples_of(4))
    assert load_pool(part) is part


def test_the_cache_holds_whole_pools_only(
    open_pool: Callable[..., ClassPool], own_cache: Path
) -> None:
    open_pool()
    left = [entry for entry in own_cache.glob("pools/*") if not (entry / "pool.json").is_file()]
    assert left == []


@pytest.mark.slow
@pytest.mark.usefixtures("shared_cache")
@pytest.mark.parametrize("name", POOLS)
def test_a_known_data_set_is_a_pool_or_says_how_to_get_it(name: str) -> None:
    known = POOLS[name]
    assert known.name == name
    assert known.description
    assert "\n" not in known.description + known.how_to_get
    assert len(repr(known)) < 200
    if known.locate() is None:
        with pytest.raises(DataError, match="is a known data set but is not on this machine"):
            load_pool(name)
        return
    pool = load_pool(name)
    assert len(pool) == len(set(pool.class_names)) > 1
    assert pool.splits is not None
    assert not set(pool.split("train").class_names) & set(pool.split("test").class_names)
    assert load_pool(name).fingerprint == pool.fingerprint
