"""Task2Vec: distances, the probe, and what it refuses."""

import numpy as np
import pytest
from scipy.spatial.distance import cosine as scipy_cosine

from similarity_cases import DIMS, QUICK, grouped_pool, task_of
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.similarity import Task2Vec, Task2VecConfig
from taskscape.similarity.task2vec import normalised_cosine
from taskscape.tasks import sample_tasks

POOL = grouped_pool()


@pytest.fixture(name="fitted", scope="module")
def make_fitted() -> Task2Vec:
    return Task2Vec(config=QUICK).fit(sample_tasks(POOL, 20, seed=0))


def vectors(n: int, dims: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).gamma(1.0, size=(n, dims))


def test_normalised_cosine_divides_by_the_sum_of_both():
    a, b = vectors(3), vectors(5, seed=1)
    wanted = [[scipy_cosine(x / (x + y), y / (x + y)) for y in b] for x in a]
    np.testing.assert_allclose(normalised_cosine(a, b), wanted, atol=1e-12)


def test_normalised_cosine_is_zero_between_multiples_and_bears_zeros():
    a = vectors(2)
    np.testing.assert_allclose(np.diag(normalised_cosine(a, 3 * a)), 0, atol=1e-12)
    a[:, 0] = 0
    assert np.isfinite(normalised_cosine(a, a)).all()
    np.testing.assert_allclose(np.diag(normalised_cosine(a, a)), 0, atol=1e-12)
    assert normalised_cosine(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])) == 1


def test_one_number_for_each_layer_or_unit(fitted):
    tasks = sample_tasks(POOL, 4, seed=1)
    per_layer = fitted.embed(tasks)
    assert per_layer.shape == (4, 3)
    assert (per_layer > 0).all()
    by_unit = Task2Vec(per="unit", config=QUICK)
    per_unit = by_unit.fit(sample_tasks(POOL, 20, seed=0)).embed(tasks)
    assert per_unit.shape == (4, sum(QUICK.widths))
    parts = np.split(per_unit, np.cumsum(QUICK.widths)[:-1], axis=1)
    np.testing.assert_allclose(per_layer, np.stack([p.mean(1) for p in parts], 1), rtol=1e-4)


def test_seed_decides_the_probe():
    train, tasks = sample_tasks(POOL, 20, seed=0), sample_tasks(POOL, 3, seed=1)
    one, two = (Task2Vec(config=QUICK, seed=s).fit(train).embed(tasks) for s in (0, 1))
    assert not np.allclose(one, two, rtol=1e-2)


def test_settings_are_checked():
    with pytest.raises(DataError, match=r"^per='weight' is not known; use 'layer' or 'unit'.$"):
        Task2Vec(per="weight")
    with pytest.raises(DataError, match=r"^l2=0.0 must be a finite number above 0"):
        Task2VecConfig(l2=0.0)
    with pytest.raises(DataError, match=r"^widths=\(\) must be one or more sizes of at least 1.$"):
        Task2VecConfig(widths=())
    with pytest.raises(DataError, match=r"^head_steps=0 must be at least 1.$"):
        Task2VecConfig(head_steps=0)


def test_unfitted_and_other_data_are_refused(fitted):
    tasks = sample_tasks(POOL, 3, seed=0)
    with pytest.raises(DataError, match=r"^Task2Vec is not fitted; call fit\(train"):
        Task2Vec().embed(tasks)
    with pytest.raises(DataError, match=r"^there are no tasks to embed.$"):
        fitted.embed(tasks[:0])
    wide = ClassPool.from_arrays(np.zeros((6, DIMS + 1), np.float32), np.repeat([0, 1], 3))
    with pytest.raises(DataError, match=r"have 7 dimensions; Task2Vec was fitted on 6"):
        fitted.embed(task_of(wide, [[0, 1]], n_shot=2))


def test_classes_with_few_samples_cannot_train_a_probe():
    small = grouped_pool(n_samples=5)
    with pytest.raises(
        DataError, match=r"^training the probe needs 6 samples per class; '0' has 5"
    ):
        Task2Vec(config=QUICK).fit(sample_tasks(small, 5, n_shot=2))
