"""Task hardness against a loop over samples."""

import numpy as np
import pytest
from scipy.special import softmax

from similarity_cases import DIMS, grouped_pool, task_of
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.similarity import TaskHardness
from taskscape.tasks import sample_tasks

POOL = grouped_pool()


def log_odds(x: np.ndarray, y: int, means: list[np.ndarray], scale: float) -> float:
    cos = [x @ m / np.linalg.norm(x) / np.linalg.norm(m) for m in means]
    p = softmax(scale * np.array(cos))[y]
    return float(np.log((1 - p) / p))


@pytest.mark.parametrize("n_shot", [1, 3])
def test_support_samples_are_left_out_of_their_own_mean(n_shot):
    tasks = sample_tasks(POOL, 4, n_way=3, n_shot=n_shot, seed=0)
    posteriors = TaskHardness(prepare=None, scale=4.0).fit(tasks).embed(tasks)
    for t, x in enumerate(next(tasks.episodes(4)).support.astype(np.float64)):
        odds = []
        for c in range(3):
            for n in range(n_shot):
                means = list(x.mean(1))
                if n_shot > 1:
                    means[c] = np.delete(x[c], n, axis=0).mean(0)
                odds.append(log_odds(x[c, n], c, means, 4.0))
        assert posteriors[t, 0] == pytest.approx(np.mean(odds), rel=1e-5)


def test_ways_and_shots_may_differ():
    tasks = sample_tasks(POOL, 8, n_way=(2, 6), n_shot=(1, 5), seed=0)
    measure = TaskHardness().fit(tasks)
    together = measure.embed(tasks)
    alone = [measure.embed(tasks[i])[0] for i in range(8)]
    np.testing.assert_allclose(together, alone, rtol=1e-6)


def test_classes_near_each_other_are_hard():
    rng = np.random.default_rng(0)
    places = rng.normal(size=(4, 1, DIMS)) * 3
    places[1] = places[0] + 0.1
    x = (places + 0.5 * rng.normal(size=(4, 20, DIMS))).astype(np.float32)
    pool = ClassPool.from_arrays(x.reshape(-1, DIMS), np.repeat(np.arange(4), 20))
    tasks = task_of(pool, [[0, 1], [2, 3]])
    near, far = TaskHardness().fit(tasks).embed(tasks)[:, 0]
    assert near > far


def test_settings_are_checked():
    with pytest.raises(DataError, match=r"^scale=0.0 must be a finite number above 0.$"):
        TaskHardness(scale=0.0)
