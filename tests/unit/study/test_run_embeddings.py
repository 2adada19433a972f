"""Of embedded tasks a study says which are outliers."""

import numpy as np
import pytest

from run_cases import own_features
from taskscape import Embeddings, TaskThemes, load_pool, sample_tasks
from taskscape.pools import ClassPool
from taskscape.study.represent import embed_called
from taskscape.themes import OutlierTasksWarning


def own_pool(n_classes: int) -> ClassPool:
    return load_pool(own_features(n_classes=n_classes))


def test_warnings_of_outliers_say_which_tasks_they_are_of():
    pool = own_pool(6)
    sets = {
        "test tasks": sample_tasks(pool, 2, n_way=2, n_shot=1, seed=0),
        "training tasks": sample_tasks(pool, 3, n_way=2, n_shot=1, seed=1),
    }
    model = TaskThemes()
    model.elbo_reference_ = (0.0, 1.0)

    def embed(tasks):
        far = Embeddings.of(tasks, np.ones((5, 2)), elbo=[-99.0, 0, -99, 0, 0])
        model.warn_of_outliers(far)
        return far

    model.embed = embed
    with pytest.warns(OutlierTasksWarning) as caught:
        parts = embed_called(model, sets)
    assert [str(w.message).partition(" are ")[0] for w in caught] == [
        "1 of 2 test tasks",
        "1 of 3 training tasks",
    ]
    assert [part.ids.tolist() for part in parts.values()] == [[0, 1], [0, 1, 2]]
