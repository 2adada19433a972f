"""Keyed draws: uniform, distinct, nested, and independent of the chunk."""

import numpy as np
from scipy import stats

from taskscape.tasks.draws import below, distinct, subkeys, task_keys


def keys(n: int, seed: int = 0) -> np.ndarray:
    return task_keys(seed, np.arange(n))


def test_keys_depend_on_seed_and_index_alone():
    assert len(np.unique(keys(100_000))) == 100_000
    np.testing.assert_array_equal(task_keys(3, np.array([7, 9])), keys(10, seed=3)[[7, 9]])
    assert not np.isin(keys(1000, seed=0), keys(1000, seed=1)).any()


def test_neighbouring_seeds_and_counters_are_unrelated():
    bits = np.unpackbits(np.stack([keys(4000, seed=s) for s in (0, 1)]).view(np.uint8), axis=None)
    a, b = bits.reshape(2, -1).astype(float)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.01
    counted = subkeys(np.full(1000, 5, dtype=np.uint64), np.arange(1000))
    assert len(np.unique(counted)) == 1000


def test_below_is_uniform():
    drawn = below(keys(60_000), 3, np.full(60_000, 6))
    assert stats.chisquare(np.bincount(drawn, minlength=6)).pvalue > 1e-3


def test_distinct_matches_a_plain_shuffle():
    counts = np.array([5, 9, 9, 30])
    drawn = distinct(keys(4), counts, 5)
    for row, count in enumerate(counts):
        deck = list(range(count))
        for i in range(5):
            j = i + int(below(keys(4)[row : row + 1], i, np.array([count - i]))[0])
            deck[i], deck[j] = deck[j], deck[i]
        assert drawn[row].tolist() == deck[:5]


def test_distinct_is_a_uniform_draw_without_replacement():
    n = 40_000
    drawn = distinct(keys(n), np.full(n, 5), 3)
    assert (np.sort(drawn, axis=1)[:, 1:] > np.sort(drawn, axis=1)[:, :-1]).all()
    code = drawn @ np.array([25, 5, 1])
    _, seen = np.unique(code, return_counts=True)
    assert len(seen) == 60
    assert stats.chisquare(seen).pvalue > 1e-3


def test_a_longer_draw_begins_with_the_shorter_one():
    counts = np.full(50, 20)
    np.testing.assert_array_equal(
        distinct(keys(50), counts, 20)[:, :4], distinct(keys(50), counts, 4)
    )
    assert (np.sort(distinct(keys(50), counts, 20), axis=1) == np.arange(20)).all()
