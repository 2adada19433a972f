"""Equally near training tasks: how many there are, and the most alike of them first."""

import numpy as np
import pytest

from taskscape import ClassPool, TaskSet, make_tasks
from taskscape.errors import DataError
from taskscape.similarity import MatrixSource, PrototypeDistance, nearest_tasks


@pytest.fixture(scope="module")
def pool() -> ClassPool:
    """Classes a, b, … on a line, at 0, 1, …"""
    return ClassPool.from_classes({name: np.full((3, 1), i) for i, name in enumerate("abcdef")})


def tasks(pool: ClassPool, *names: str) -> TaskSet:
    return make_tasks(pool, [list(task) for task in names])


def test_of_equally_near_tasks_the_most_alike_comes_first(pool):
    test, train = tasks(pool, "ab"), tasks(pool, "ef", "cd", "ba", "bc", "ad")
    far = MatrixSource([[0.01, 0.02, 5.0, 0.0, 0.3]])
    near = nearest_tasks(test, train, far, 4, tie=0.1)
    assert near.indices.tolist() == [[3, 1, 0, 4]]  # bc, cd and ef are equals; then ad
    assert near.distances.tolist() == [[0.0, 0.02, 0.01, 0.3]]
    assert near.ties.tolist() == [3]
    rms = [1.0, 2.0, 4.0, np.sqrt(2)]
    np.testing.assert_allclose(near.by_classes, [rms])
    whole = PrototypeDistance(prepare=None).fit(train).cdist(test, train)
    np.testing.assert_allclose(near.by_classes[0], whole[0, near.indices[0]])


def test_without_a_tolerance_only_what_is_the_same_is_a_tie(pool):
    test, train = tasks(pool, "ab", "cd"), tasks(pool, "ef", "ab", "cd")
    near = nearest_tasks(test, train, MatrixSource([[1, 1, 1.01], [2, 3, 1]]), 3, tie=0.0)
    assert near.indices.tolist() == [[1, 0, 2], [2, 0, 1]]
    assert near.ties.tolist() == [2, 1]


def test_tasks_of_other_numbers_of_classes_are_compared_too(pool):
    near = nearest_tasks(
        tasks(pool, "ab"), tasks(pool, "def", "abc"), MatrixSource([[0.0, 0.0]]), 2
    )
    assert near.indices.tolist() == [[1, 0]]


def test_wrong_numbers_are_told(pool):
    one, two = tasks(pool, "ab"), tasks(pool, "cd", "ef")
    with pytest.raises(DataError, match="k=3 must lie between 1 and the 2 training tasks"):
        nearest_tasks(one, two, MatrixSource([[0.0, 1.0]]), 3)
    with pytest.raises(DataError, match="the distances are of 1 and 3"):
        nearest_tasks(one, two, MatrixSource([[0.0, 1.0, 2.0]]), 1)
