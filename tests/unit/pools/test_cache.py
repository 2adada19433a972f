"""Pools on disk: whole or not at all."""

import json
from pathlib import Path

import numpy as np
import pytest

from taskscape.errors import DataError
from taskscape.pools import ClassPool, cache
from taskscape.pools.cache import cache_key, cached, read_pool, write_pool


@pytest.fixture
def pool() -> ClassPool:
    return ClassPool.from_arrays(
        np.arange(24, dtype=np.float32).reshape(12, 2),
        np.repeat(np.arange(4), 3),
        groups=["x", "x", "y", "y"],
        splits=["train", "train", "val", "test"],
    )


def test_a_stored_pool_comes_back_the_same(pool: ClassPool, tmp_path: Path):
    write_pool(pool, tmp_path / "stored")
    back = read_pool(tmp_path / "stored")
    assert (back.class_names, back.groups, back.splits) == (
        pool.class_names, pool.groups, pool.splits,
    )  # fmt: skip
    np.testing.assert_array_equal(back.samples, pool.samples)
    assert back.fingerprint == pool.fingerprint


def test_numbers_of_numpy_in_notes_are_stored(tmp_path: Path):
    classes = {"a": np.zeros((2, 2)), "b": np.ones((2, 2))}
    ClassPool.from_classes(classes, info={"epoch": np.int64(3), "rate": np.float64(0.5)}).save(
        tmp_path / "stored"
    )
    assert read_pool(tmp_path / "stored").info == {"epoch": 3, "rate": 0.5}


def test_a_subset_stores_only_its_own_samples(pool: ClassPool, tmp_path: Path):
    part = pool.split("train+test")
    write_pool(part, tmp_path / "part")
    back = read_pool(tmp_path / "part")
    assert len(back.samples) == 9
    assert back.fingerprint == part.fingerprint


def test_large_pools_are_memory_mapped(pool: ClassPool, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(cache, "_MAP_ABOVE_BYTES", 10)
    write_pool(pool, tmp_path / "stored")
    back = read_pool(tmp_path / "stored")
    assert isinstance(back.samples, np.memmap)
    np.testing.assert_array_equal(back.take(np.arange(3)), pool.take(np.arange(3)))


def test_a_pool_is_made_once(pool: ClassPool):
    calls: list[int] = []

    def make() -> ClassPool:
        calls.append(1)
        return pool

    first, second = cached("t", "k", make), cached("t", "k", make)
    assert len(calls) == 1
    assert first.fingerprint == second.fingerprint == pool.fingerprint


@pytest.mark.parametrize("damage", ["header", "rows", "gone", "future", "info", "notes"])
def test_a_damaged_entry_is_run_again(pool: ClassPool, own_cache: Path, damage: str):
    cached("t", "k", lambda: pool)
    folder = own_cache / "pools" / "t-k"
    if damage == "header":
        (folder / "pool.json").write_text("{")
    elif damage == "rows":
        path = folder / "samples.npy"
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "gone":
        (folder / "samples.npy").unlink()
    else:
        other = {"future": {"format": 99}, "info": {"info": 3}, "notes": {"info": {"notes": True}}}
        header = json.loads((folder / "pool.json").read_text())
        (folder / "pool.json").write_text(json.dumps(header | other[damage]))
    with pytest.raises(DataError, match="is not a readable pool"):
        read_pool(folder)
    with pytest.warns(UserWarning, match=r"t-k is damaged .* made again from the source"):
        assert cached("t", "k", lambda: pool).fingerprint == pool.fingerprint
    assert cached("t", "k", lambda: pytest.fail("made twice")).fingerprint == pool.fingerprint


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("file", ["samples.npy", "pool.json"])
def test_no_flipped_bit_is_used(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, images: bool, mapped: bool, file: str
):
    monkeypatch.setattr(cache, "_MAP_ABOVE_BYTES", 10 if mapped else 1 << 28)
    shape = (12, 2, 2) if images else (12, 2)
    samples = np.arange(np.prod(shape)).reshape(shape).astype(np.uint8 if images else np.float32)
    pool = ClassPool.from_arrays(
        samples, np.repeat(np.arange(4), 3), groups=["x", "x", "y", "y"], info={"source": "here"}
    )
    cached("t", "k", lambda: pool)
    path = own_cache / "pools" / "t-k" / file
    whole, n_noticed = path.read_bytes(), 0
    bits = range(0, 8 * len(whole), 29)
    for bit in bits:
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            back = read_pool(path.parent)
        except DataError:
            n_noticed += 1
            continue
        assert back.hash_classes() == pool.hash_classes()  # the bit meant nothing, or was a note
        assert back.fingerprint == pool.fingerprint
    assert n_noticed > 0.3 * len(bits)


def test_a_damaged_entry_that_cannot_be_removed_is_not_used(
    pool: ClassPool, own_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    cached("t", "k", lambda: pool)
    path = own_cache / "pools" / "t-k" / "samples.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    monkeypatch.setattr(cache.shutil, "rmtree", lambda *args, **options: None)
    with pytest.warns(UserWarning, match="made again from the source"):
        assert cached("t", "k", lambda: pool) is pool


def test_a_failure_while_making_or_writing_leaves_nothing(
    pool: ClassPool, own_cache: Path, monkeypatch
):
    def fail() -> ClassPool:
        raise DataError("no")

    with pytest.raises(DataError, match="no"):
        cached("t", "k", fail)
    assert not list(own_cache.rglob("*.npy"))

    def interrupt(*args: object, **kwargs: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(json, "dumps", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_pool(pool, own_cache / "pools" / "t-k")
    assert list((own_cache / "pools").iterdir()) == []


def test_where_nothing_can_be_written_the_pool_is_used_unstored(pool: ClassPool, own_cache: Path):
    own_cache.rmdir()
    own_cache.write_text("a file where the cache folder should be")
    assert cached("t", "k", lambda: pool) is pool
    own_cache.unlink()


def test_keys_differ_with_every_part():
    assert len({cache_key(1, "a"), cache_key(1, "b"), cache_key(2, "a"), cache_key(1)}) == 4
    assert cache_key(1, {"x": 1, "y": 2}) == cache_key(1, {"y": 2, "x": 1})
