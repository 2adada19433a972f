"""Rows of what the user gave, from any source: data in no order come back as they were given."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from taskscape import load_pool
from taskscape.errors import DataError
from taskscape.pools import ClassPool, join_pools

N = 60
Y = np.random.default_rng(0).permutation(np.repeat(["ant", "bee", "cow"], N // 3))
X = np.column_stack([np.arange(N), np.ones(N)]).astype(np.float32)
"""The first feature of a sample is its row."""


def npz(folder: Path) -> Any:
    np.savez(folder / "own.npz", X=X, y=Y)
    return folder / "own.npz"


def sheet(folder: Path) -> Any:
    with (folder / "own.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("row", "one", "label"), *zip(*X.T, Y, strict=True)])
    return folder / "own.csv"


SOURCES: dict[str, Callable[[Path], Any]] = {
    "arrays": lambda folder: (X, Y),
    "dataset": lambda folder: list(zip(X, Y, strict=True)),
    "table": lambda folder: pa.table({"x": list(X), "label": Y}),
    "npz": npz,
    "csv": sheet,
}


def check(pool: ClassPool) -> None:
    np.testing.assert_array_equal(pool.given(pool.rows), pool.samples[pool.rows, 0])


@pytest.mark.parametrize("source", SOURCES)
def test_rows_are_those_that_were_given(source: str, tmp_path: Path, shared_cache: None):
    pool = load_pool(SOURCES[source](tmp_path))
    check(pool)
    check(load_pool(SOURCES[source](tmp_path)))  # of a file, from the cache
    part = pool.subset(["cow", "ant"])
    check(part)
    part.save(tmp_path / "kept")
    check(load_pool(tmp_path / "kept"))


def test_an_encoded_pool_keeps_the_rows_of_the_data_at_hand(shared_cache: None):
    pool = load_pool((X, Y)).subset(["bee", "cow"])
    encoded = load_pool(pool, encoder=np.abs)
    check(encoded)
    # the same samples by class, in other rows: what the cache has of them has not these rows
    order = np.argsort(Y, kind="stable")
    other = load_pool((X[order], Y[order])).subset(["bee", "cow"])
    assert other.fingerprint == pool.fingerprint
    again = load_pool(other, encoder=np.abs)
    np.testing.assert_array_equal(order[again.given(again.rows)], again.samples[again.rows, 0])


def test_rows_that_are_left_out_are_counted():
    damaged, labels = X.copy(), [None if i == 7 else str(y) for i, y in enumerate(Y)]
    damaged[[0, 31], 1] = np.nan
    pool = load_pool((damaged, Y), skip_damaged=True)
    check(pool)
    assert pool.n_samples == N - 2
    pool = load_pool(pa.table({"x": list(damaged), "label": labels}), skip_damaged=True)
    check(pool)
    assert pool.n_samples == N - 3


def test_a_joined_pool_says_that_rows_are_those_of_its_sources():
    joined = join_pools({"one": load_pool((X, Y)), "other": load_pool((X + 1, Y))})
    with pytest.raises(DataError, match=r"joined from several sources.*ConcatDataset"):
        joined.given(joined.rows)
