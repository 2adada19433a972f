"""Pools on disk in our own format: a folder with ``samples.npy`` and ``pool.json``.

A folder is written under a temporary name beside its final place and renamed when complete, so an
interrupted run leaves no half-written pool. Large arrays come back memory-mapped. All of a pool is
hashed when it is opened, so that one which changed on disk is noticed and never used.
"""

import hashlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from taskscape.errors import DataError
from taskscape.io.files import Kind, atomic_folder, cache_dir, expanded
from taskscape.io.values import plain
from taskscape.pools.pool import ClassPool

_FORMAT = 1
_MAP_ABOVE_BYTES = 1 << 28
_ROWS_AT_ONCE = 1 << 12
_FILES = {"pool.json", "samples.npy"}
POOL = Kind(
    "a stored pool", lambda path: {file.name for file in path.iterdir()} == _FILES, folder=True
)


def data_dir() -> Path:
    """The folder of known data sets: ``TASKSCAPE_DATA``, otherwise the user's cache folder."""
    named = os.environ.get("TASKSCAPE_DATA")
    return expanded(named) if named else cache_dir() / "data"


def file_stamp(path: Path) -> list[Any]:
    """Path, size and modification time: what a cached conversion of a file depends on."""
    stat = path.stat()
    return [str(path.resolve()), stat.st_size, stat.st_mtime_ns]


def cache_key(*parts: Any) -> str:
    """A short name for a cache entry, from everything that its content depends on."""
    text = json.dumps([_FORMAT, *parts], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def cached(kind: str, key: str, make: Callable[[], ClassPool]) -> ClassPool:
    """The pool stored under ``kind-key``; made, stored and read back if it is not there yet.

    A damaged entry is made again, with a warning. Where the cache cannot be written, the pool is
    used unstored.
    """
    folder = cache_dir() / "pools" / f"{kind}-{key}"
    if folder.exists():
        try:
            return read_pool(folder)
        except DataError as error:
            warnings.warn(
                f"{folder} is damaged ({error.__cause__}); it is made again from the source.",
                stacklevel=2,
            )
            shutil.rmtree(folder, ignore_errors=True)
    pool = make()
    try:
        write_pool(pool, folder)
        return read_pool(folder)
    except (OSError, DataError):
        return pool


def mapped_scratch(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of a nameless file in the cache folder, which is gone when nobody holds it."""
    folder = cache_dir() / "pools"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):  # a disk that gets full later would end the process
            n_bytes = int(np.prod(shape, dtype=np.float64)) * np.dtype(dtype).itemsize
            os.posix_fallocate(file.fileno(), 0, max(1, n_bytes))
        return np.memmap(file, dtype, "w+", shape=shape)


def room(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An empty array, in memory or, if it is large, in a nameless file."""
    large = np.prod(shape, dtype=np.float64) * np.dtype(dtype).itemsize > _MAP_ABOVE_BYTES
    return mapped_scratch(shape, dtype) if large else np.empty(shape, dtype)


def rows_in_room(
    X: Shaped[np.ndarray, "rows ..."], order: Int[np.ndarray, "n"]
) -> Shaped[np.ndarray, "n ..."]:
    """Some rows of an array in a given order; large ones stay out of memory."""
    taken = room((len(order), *X.shape[1:]), X.dtype)
    for start in range(0, len(order), _ROWS_AT_ONCE):
        taken[start : start + _ROWS_AT_ONCE] = X[order[start : start + _ROWS_AT_ONCE]]
    return taken


def write_pool(pool: ClassPool, folder: Path, *, replace: bool = False) -> None:
    """Store a pool as a folder; an atomic write."""
    with atomic_folder(folder, replace=replace) as draft:
        kind = np.lib.format.dtype_to_descr(pool.samples.dtype)
        shape = (pool.n_samples, *pool.sample_shape)
        about = {"descr": kind, "fortran_order": False, "shape": shape}
        with (draft / "samples.npy").open("wb") as file:
            np.lib.format.write_array_header_1_0(file, about)
            for c in range(len(pool)):
                file.write(np.ascontiguousarray(pool.samples_of(c)).data)
        header = {
            "format": _FORMAT,
            "name": pool.name,
            "counts": pool.counts.tolist(),
            "class_names": pool.class_names,
            "groups": pool.groups,
            "splits": pool.splits,
            "class_digests": pool.digests,
            "fingerprint": pool.fingerprint,
            "info": plain(pool.info),
        }
        if pool.sample_names is not None:
            header["sample_names"] = [pool.sample_names[row] for row in pool.rows]
        if pool.given_rows is not None:
            header["given_rows"] = pool.given(pool.rows).tolist()
        text = json.dumps(header, ensure_ascii=False)
        (draft / "pool.json").write_text(text, encoding="utf-8")


def read_pool(folder: Path) -> ClassPool:
    """Open a pool stored by :func:`write_pool`; large ones memory-mapped.

    What is read must be what was written, to the bit; anything else is an error.
    """
    try:
        header = json.loads((folder / "pool.json").read_text(encoding="utf-8"))
        path = folder / "samples.npy"
        large = path.stat().st_size > _MAP_ABOVE_BYTES
        samples = np.load(path, mmap_mode="r" if large else None, allow_pickle=False)
        counts = np.array(header["counts"], dtype=np.int64)
        if header["format"] != _FORMAT or counts.sum() != len(samples):
            raise ValueError(f"format {header['format']}, {counts.sum()} of {len(samples)} rows")
        optional = {
            key: None if header.get(key) is None else tuple(header[key])
            for key in ("groups", "splits", "class_digests", "sample_names")
        }
        given, info = header.get("given_rows"), dict(header["info"])
        iter(info.get("notes", ()))  # an error, as all of these, where it is not what was written
        pool = ClassPool(
            name=header["name"],
            samples=samples,
            starts=np.cumsum(counts) - counts,
            counts=counts,
            class_names=tuple(header["class_names"]),
            info=info,
            given_rows=None if given is None else np.array(given, dtype=np.int64),
            **optional,
        )
        if pool.hash_classes() != pool.class_digests or pool.fingerprint != header["fingerprint"]:
            raise ValueError("its samples or names are not what was stored")
        return pool
    except Exception as error:  # damaged bytes raise nearly anything
        raise DataError(
            f"{folder} is not a readable pool ({error}). Delete it and retry."
        ) from error
