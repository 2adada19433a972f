"""What holds for any λ whatever."""

import hypothesis.extra.numpy as hnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fit_cases import small_tasks
from taskscape.compare import DIVERGENCES, distances, mean_distance, nearest, normalise_ways
from taskscape.embeddings import Embeddings

numbers = st.floats(0.01, 200.0)


def lam(n):
    return st.integers(2, 6).flatmap(lambda L: hnp.arrays(np.float64, (n, L), elements=numbers))


@settings(max_examples=60, deadline=None)
@given(lam(6), st.sampled_from(list(DIVERGENCES)), st.randoms(use_true_random=False))
def test_relabelling_themes_changes_no_distance(x, kind, random):
    order = list(range(x.shape[1]))
    random.shuffle(order)
    np.testing.assert_allclose(
        distances(x, x, kind), distances(x[:, order], x[:, order], kind), rtol=1e-7, atol=1e-6
    )


@settings(max_examples=60, deadline=None)
@given(lam(6), st.sampled_from(list(DIVERGENCES)))
def test_distances_are_not_negative_and_zero_to_oneself(x, kind):
    computed = distances(x, x, kind)
    assert (computed >= 0).all()
    np.testing.assert_allclose(np.diag(computed), 0, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(lam(12), st.integers(1, 11))
def test_the_fast_mean_is_the_mean_of_the_matrix(x, n):
    test, train = x[:n], x[n:]
    full = distances(test, train).mean(axis=1)
    np.testing.assert_allclose(mean_distance(test, train), full, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        mean_distance(test, list(train[:, None])), full, rtol=1e-5, atol=1e-6
    )


@settings(max_examples=60, deadline=None)
@given(lam(40), st.integers(1, 20))
def test_search_finds_the_smallest_distances(x, k):
    test, train = x[:10], x[10:]
    neighbours = nearest(test, train, k)
    full = distances(test, train)
    best = np.sort(full, axis=1)[:, :k]
    np.testing.assert_allclose(neighbours.distances, best, rtol=1e-7, atol=1e-7)
    assert all(len(set(row)) == k for row in neighbours.indices.tolist())


@settings(max_examples=30, deadline=None)
@given(lam(4), st.integers(1, 50))
def test_normalising_twice_is_normalising_once(x, n_way):
    tasks = Embeddings.of(small_tasks(4), x + 0.5, delta=0.5)
    once = normalise_ways(tasks, n_way=float(n_way))
    np.testing.assert_allclose(once.values.sum(axis=1), 0.5 * x.shape[1] + n_way, rtol=1e-6)
    twice = normalise_ways(once, n_way=float(n_way))
    np.testing.assert_allclose(twice.values, once.values, rtol=1e-5)
