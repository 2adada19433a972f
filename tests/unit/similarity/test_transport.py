"""Prototype and transport distances against direct computations."""

import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.optimize import linear_sum_assignment, linprog
from scipy.spatial.distance import cdist

from similarity_cases import grouped_pool, task_of
from taskscape.errors import DataError
from taskscape.similarity import OTDD, PrototypeDistance
from taskscape.similarity.transport import gaussian_distances, transport_classes
from taskscape.tasks import sample_tasks
from taskscape.themes.prepare import PrepareConfig

POOL = grouped_pool()


@pytest.mark.parametrize("way", [2, 5, 6])
def test_as_many_classes_are_assigned(way):
    costs = np.random.default_rng(way).random((3, 4, way, way))
    computed = transport_classes(costs, np.full(3, way), np.full(4, way))
    wanted = [[c[linear_sum_assignment(c)].mean() for c in row] for row in costs]
    np.testing.assert_allclose(computed, wanted)


def test_classes_are_divided_where_the_numbers_differ():
    costs = np.random.default_rng(0).random((2, 2, 4, 6))
    computed = transport_classes(costs, np.array([4, 3]), np.array([6, 3]))
    for i, way in enumerate((4, 3)):
        for j, other in enumerate((6, 3)):
            sums = np.r_[np.kron(np.eye(way), np.ones(other)), np.kron(np.ones(way), np.eye(other))]
            weights = np.repeat([1 / way, 1 / other], [way, other])
            wanted = linprog(costs[i, j, :way, :other].ravel(), A_eq=sums, b_eq=weights).fun
            assert computed[i, j] == pytest.approx(wanted)


def test_prototypes_are_assigned_in_prepared_features():
    measure = PrototypeDistance(prepare=None)
    tasks = sample_tasks(POOL, 3, n_way=4, n_shot=3, seed=0)
    means = measure.fit(tasks).embed(tasks)
    episode = next(tasks.episodes(3))
    np.testing.assert_allclose(means, episode.support.mean(2), rtol=1e-5)
    squares = cdist(means[0], means[1]) ** 2
    wanted = np.sqrt(squares[linear_sum_assignment(squares)].mean())
    assert measure.cdist(means[:1], means[1:2])[0, 0] == pytest.approx(wanted)


def test_prototypes_obey_the_triangle_inequality_across_ways():
    measure = PrototypeDistance()
    tasks = sample_tasks(POOL, 9, n_way=(2, 7), n_shot=3, seed=1)
    d = measure.fit(tasks).cdist(tasks, tasks)
    assert (d[:, None] <= d[:, :, None] + d.T[None].swapaxes(1, 2) + 1e-9).all()


def test_gaussian_distance_is_that_of_bures():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 4, 3)), rng.normal(size=(3, 6, 3))
    computed = gaussian_distances(a, b)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            S, T = x[1:].T @ x[1:], y[1:].T @ y[1:]
            root = sqrtm(S)
            cross = np.trace(sqrtm(root @ T @ root)).real
            wanted = ((x[0] - y[0]) ** 2).sum() + np.trace(S + T) - 2 * cross
            assert computed[i, j] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("n_shot", [1, 4, 12])  # 12 is more than there are dimensions
def test_classes_are_gaussians_with_the_samples_moments(n_shot):
    tasks = sample_tasks(POOL, 2, n_way=3, n_shot=n_shot, seed=0)
    embedded = OTDD(prepare=None).fit(tasks).embed(tasks)
    x = next(tasks.episodes(2)).support
    for t in range(2):
        for c in range(3):
            A = embedded[t, c, 1:]
            np.testing.assert_allclose(embedded[t, c, 0], x[t, c].mean(0), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(A.T @ A, np.cov(x[t, c].T, bias=True), rtol=1e-3, atol=1e-3)


def test_samples_move_at_the_cost_of_features_and_classes():
    tasks = task_of(POOL, [[0, 1, 2], [1, 2, 9]], n_shot=4)
    measure = OTDD(level="samples", prepare=None).fit(tasks)
    x = measure.embed(tasks)
    classes = OTDD(prepare=None).fit(tasks).embed(tasks)
    label = gaussian_distances(classes[0], classes[1])
    y = np.repeat(np.arange(3), 4)
    costs = cdist(x[0].reshape(12, -1), x[1].reshape(12, -1)) ** 2 + label[np.ix_(y, y)]
    wanted = np.sqrt(costs[linear_sum_assignment(costs)].mean())
    assert measure.cdist(x[:1], x[1:])[0, 0] == pytest.approx(wanted, rel=1e-4)


def test_both_levels_tell_a_similar_story():
    tasks = sample_tasks(POOL, 12, n_way=4, n_shot=8, seed=3)
    by_class, by_sample = (
        OTDD(level=level).fit(tasks).cdist(tasks, tasks)[np.triu_indices(12, 1)]
        for level in ("classes", "samples")
    )
    assert np.corrcoef(by_class, by_sample)[0, 1] > 0.98


def test_classes_that_tasks_share_are_as_far_as_others():
    tasks = sample_tasks(POOL, 30, n_way=4, n_shot="all", seed=0)
    measure = OTDD().fit(tasks)
    embedded = measure.embed(tasks)
    alone = measure.cdist(embedded[4:5], embedded[7:8])
    np.testing.assert_allclose(measure.cdist(embedded, embedded)[4, 7], alone[0, 0], atol=1e-6)


def test_what_is_not_known_or_too_large_is_refused():
    with pytest.raises(
        DataError, match=r"^level='pixels' is not known; use 'classes' or 'samples'"
    ):
        OTDD(level="pixels")
    with pytest.raises(
        DataError, match=r"^prepare='pca' must be 'auto', None or a PrepareConfig.$"
    ):
        PrototypeDistance(prepare="pca")
    with pytest.raises(DataError, match=r"^there are no tasks to fit on.$"):
        PrototypeDistance().fit(sample_tasks(POOL, 1)[:0])


def test_huge_embeddings_are_refused(monkeypatch):
    monkeypatch.setattr("taskscape.similarity.transport._MOST_BYTES", 100)
    tasks = sample_tasks(POOL, 4, n_way=4, n_shot=5)
    with pytest.raises(DataError, match=r"^embedding 4 tasks of up to 5 samples"):
        OTDD(prepare=PrepareConfig(pca=2)).fit(tasks).embed(tasks)
