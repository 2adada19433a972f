"""Equally near training tasks: how many there are, and the most alike of them first."""

import numpy as np
import pytest

from taskscape import ClassPool, Embeddings, TaskSet, make_tasks, nearest
from taskscape.compare import nearest as by_distance_alone
from taskscape.embeddings import Factor
from taskscape.errors import DataError
from taskscape.similarity import MatrixSource, PrototypeDistance
from taskscape.similarity.nearest_tasks import nearest_tasks


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
    near = nearest_tasks(test, train, MatrixSource([[1, 1, 1.01], [2, 3, 1]]), 3, tie=1e-6)
    assert near.indices.tolist() == [[1, 0, 2], [2, 0, 1]]
    assert near.ties.tolist() == [2, 1]


def test_tasks_of_other_numbers_of_classes_are_compared_too(pool):
    near = nearest_tasks(
        tasks(pool, "ab"), tasks(pool, "def", "abc"), MatrixSource([[0.0, 0.0]]), 2
    )
    assert near.indices.tolist() == [[1, 0]]


GAUSSIAN = (Factor("position", "gaussian", 2),)


def embedded(tasks: TaskSet, values: object, **more: object) -> Embeddings:
    return Embeddings.of(tasks, np.asarray(values, dtype=np.float32), **more)


def test_ties_are_counted_and_settled_wherever_nearest_tasks_are_asked_for(pool):
    """The same numbers come of tasks that differ; their classes tell."""
    asked = embedded(tasks(pool, "bc"), [[2.0, 1.0]])
    known = embedded(tasks(pool, "ef", "bd", "cb", "af"), [[2.0, 1.0]] * 3 + [[1.0, 9.0]])
    near = nearest(asked, known, 2)
    assert near.indices.tolist() == [[0, 1]]  # no more is known
    assert near.ties.tolist() == [3]
    assert near.by_classes is None
    assert "Not told apart from the nearest: 3 tasks (within 0.1 nats)" in near.summary()
    settled = nearest(asked, known, 2, pool=pool)
    assert settled.indices.tolist() == [[2, 1]]
    np.testing.assert_allclose(settled.by_classes[0, 0], 0, atol=1e-6)
    assert "the most alike come first" in settled.summary()
    assert "retrieval" in settled.summary()  # how far to trust it


def test_by_default_only_what_is_the_same_is_a_tie(pool):
    asked = embedded(tasks(pool, "ab"), [[0.0, 0.0]], factors=GAUSSIAN)
    values = [[0.3, 0.0], [0.0, 0.01], [0.0, 0.01], [0.0, 0.02]]
    known = embedded(tasks(pool, "ab", "ef", "bc", "cd"), values, factors=GAUSSIAN)
    near = nearest(asked, known, 3, pool=pool)
    assert (near.indices.tolist(), near.ties.tolist()) == ([[2, 1, 3]], [2])
    alone = nearest(asked, known[:2], 1)
    assert alone.ties.tolist() == [1]
    assert "No other training task is as near as the first." in alone.summary()
    np.testing.assert_array_equal(alone.indices, by_distance_alone(asked, known[:2], 1).indices)


def test_many_ties_beyond_the_k_nearest_are_counted(pool):
    part = make_tasks(pool, [["a", "b"]] * 200 + [["c", "d"]])
    known = embedded(part, [[2.0, 1.0]] * 201)
    near = nearest(embedded(tasks(pool, "cd"), [[2.0, 1.0]]), known, 1, pool=pool)
    assert (near.indices.tolist(), near.ties.tolist()) == ([[200]], [201])
    with pytest.raises(DataError, match="k=202 is more than the 201 training tasks"):
        nearest(known[:1], known, 202)
    with pytest.raises(DataError, match="says no classes"):
        nearest(known[:1], known.values, 1, pool=pool)
