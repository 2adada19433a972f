import numpy as np

from taskscape.compare.posteriors import class_hashes, distinct_rows, row_hashes

RNG = np.random.default_rng(0)


def test_distinct_rows_are_found_whatever_their_order():
    kinds = RNG.normal(size=(20, 3))
    rows = kinds[RNG.integers(20, size=500)]
    result = distinct_rows(rows)
    np.testing.assert_array_equal(rows[result.first][result.kind], rows)
    assert result.counts.sum() == 500
    assert len(result.counts) == len(np.unique(rows, axis=0))
    shuffled = rows[RNG.permutation(500)]
    again = distinct_rows(shuffled)
    np.testing.assert_array_equal(shuffled[again.first], rows[result.first])


def test_rows_that_meet_in_a_hash_are_still_told_apart(monkeypatch):
    import taskscape.compare.posteriors as module

    true_hashes = module.row_hashes
    monkeypatch.setattr(
        module, "row_hashes", lambda rows, seed=0: true_hashes(rows, seed) % np.uint64(5 + seed**3)
    )
    rows = RNG.normal(size=(6, 2))
    result = module.distinct_rows(rows)
    np.testing.assert_array_equal(rows[result.first][result.kind], rows)


def test_a_few_numbers_of_each_row_tell_rows_apart_and_need_not():
    kinds = RNG.normal(size=(20, 30))
    rows = kinds[RNG.integers(20, size=500)]
    for known in (rows.sum(axis=1, keepdims=True), np.zeros((500, 1))):
        result = distinct_rows(rows, known)
        np.testing.assert_array_equal(rows[result.first][result.kind], rows)
        assert len(result.counts) == 20


def test_hashes_depend_on_content_and_seed():
    rows = RNG.normal(size=(100, 3))
    h = row_hashes(rows)
    assert len(np.unique(h)) == 100
    assert row_hashes(rows[7:8])[0] == h[7]
    assert (row_hashes(rows, 1) != h).all()


def test_the_order_and_padding_of_classes_play_no_part():
    start = np.zeros(3, dtype=np.uint64)
    a = class_hashes(np.array([[3, 1, 2], [2, 3, 1], [1, 2, 4]]), start)
    b = class_hashes(np.array([[-1, 1, 2, 3], [1, -1, 2, 3], [4, 2, 1, -1]]), start)
    np.testing.assert_array_equal(a, b)
    assert a[0] == a[1] != a[2]
