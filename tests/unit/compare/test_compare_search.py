import numpy as np
import pytest

from posterior_cases import KINDS, LAM, posteriors
from taskscape.compare import TaskIndex, distances, nearest
from taskscape.compare.posteriors import Affine
from taskscape.embeddings import Factor, Posterior
from taskscape.errors import DataError

RNG = np.random.default_rng(0)


def tasks(n, ways=(5, 5)):
    return posteriors(RNG, n, LAM, ways).values


def of_lam(lam):
    return Posterior.of(lam, (Factor("task_themes", "dirichlet", lam.shape[1]),))


def brute_force(test, train, k):
    matrix = distances(test, train)
    order = np.argsort(matrix, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(matrix, order, axis=1)


@pytest.mark.parametrize("n_test", [3, 300])
@pytest.mark.parametrize("ways", [(5, 5), (2, 20)])
def test_nearest_is_exact(n_test, ways):
    test, train = tasks(n_test, ways=ways), tasks(6000, ways=ways)
    indices, matrix = brute_force(test, train, 7)
    for given in (train, [train[:1000], train[1000:1003], train[1003:]]):
        neighbours = nearest(test, given, 7)
        np.testing.assert_array_equal(neighbours.indices, indices)
        np.testing.assert_allclose(neighbours.distances, matrix, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_posteriors_of_any_kind_are_searched_exactly(kind):
    test, train = (posteriors(RNG, n, KINDS[kind]) for n in (100, 3000))
    for given in (train, train.of(train.values.astype(np.float32), train.factors)):
        neighbours = nearest(test, given, 5)
        np.testing.assert_array_equal(neighbours.indices, brute_force(test, given, 5)[0])


def test_equal_tasks_come_in_their_order():
    kinds = tasks(5)
    train = kinds[RNG.integers(5, size=1000)]
    neighbours = nearest(kinds, train, 50)
    expected = [np.flatnonzero((train == kind).all(axis=1))[:50] for kind in kinds]
    np.testing.assert_array_equal(neighbours.indices, expected)
    np.testing.assert_allclose(neighbours.distances, 0, atol=1e-12)


def test_almost_equal_tasks_are_told_apart():
    # differences that float32 products cannot see
    train = tasks(1)[0] * (1 + 1e-5 * RNG.normal(size=(2000, 4)))
    indices, _ = brute_force(train[:50], train, 3)
    np.testing.assert_array_equal(nearest(train[:50], train, 3).indices, indices)


def in_their_order(test, train, k, keys):
    """The k nearest by distances of single pairs, of equally far ones those with the least key."""
    F, asked = of_lam(train).log_normaliser, Affine.of(of_lam(test))
    matrix = np.stack([asked.to_own(np.full(len(F), i), train, F) for i in range(len(test))])
    return np.lexsort((np.broadcast_to(keys, matrix.shape), matrix))[:, :k]


def of_whole_classes(n):
    """Tasks whose classes each belong to one task-theme: few different ones, often equally far."""
    return 0.5 + RNG.multinomial(5, np.full(4, 0.25), n).astype(float)


@pytest.mark.parametrize("n_test", [3, 100])
def test_different_tasks_that_are_equally_far_come_in_their_order(n_test):
    test, train = (
        of_whole_classes(n_test) + RNG.integers(3, size=(n_test, 1)),
        of_whole_classes(900),
    )
    for k in (1, 10, 200):
        expected = in_their_order(test, train, k, np.arange(900))
        np.testing.assert_array_equal(nearest(test, train, k).indices, expected)


def test_keys_say_which_of_equally_far_tasks_comes_first():
    test, train = of_whole_classes(100), of_whole_classes(900)
    keys = RNG.permutation(900).astype(np.uint64)
    neighbours = TaskIndex(of_lam(train), keys).search(of_lam(test), 10)
    np.testing.assert_array_equal(neighbours.indices, in_their_order(test, train, 10, keys))


@pytest.mark.parametrize("spread", [1e-9, 1e-8, 1e-7])
def test_large_concentrations_round_coarsely_and_no_near_task_is_missed(spread):
    middle = 2e6 * RNG.dirichlet(np.full(16, 3.0))
    test, train = (middle * (1 + spread * RNG.normal(size=(n, 16))) for n in (100, 1500))
    expected = in_their_order(test, train, 10, np.arange(1500))
    np.testing.assert_array_equal(nearest(test, train, 10).indices, expected)


def test_used_tasks_are_passed_over():
    test, train = tasks(200), tasks(3000)
    unused = RNG.random(3000) < 0.1
    index, asked = TaskIndex(of_lam(train)), of_lam(test)
    neighbours = index.search(asked, 5, unused)
    left = np.flatnonzero(unused)
    np.testing.assert_array_equal(neighbours.indices, left[brute_force(test, train[left], 5)[0]])
    few = np.zeros(3000, dtype=bool)
    few[:3] = True
    assert index.search(asked, 5, few).indices.shape == (200, 3)
    none = np.zeros(3000, dtype=bool)
    assert index.search(asked, 5, none).indices.shape == (200, 0)


def test_all_tasks_come_where_there_are_fewer():
    with pytest.raises(DataError, match=r"^k=0 must be at least 1\.$"):
        nearest(tasks(2), tasks(8), 0)
    assert nearest(tasks(2), tasks(8), 9).indices.shape == (2, 8)
