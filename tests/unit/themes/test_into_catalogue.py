import re
from functools import partial

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from taskscape.embeddings import Catalogue, Embeddings, Factor
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.tasks import sample_tasks
from taskscape.themes import TaskThemes
from taskscape.themes.task_model import embed_into

POOL = ClassPool.from_arrays(np.zeros((400, 2), np.float32), np.repeat(np.arange(20), 20))


class Model(TaskThemes):
    """Stands in for a fitted model: λ tells how many queries a task has."""

    fingerprint_ = "stand-in"

    def __init__(self, pieces=1000):
        self.pieces = pieces
        self.factors_ = (Factor("task_themes", "dirichlet", 3),)

    def embed(self, tasks):
        """Embed so many pieces, then be interrupted."""
        if not self.pieces:
            raise KeyboardInterrupt
        self.pieces -= 1
        lam = np.full((len(tasks), 3), 1.0 + tasks.n_query, np.float32)
        return Embeddings.of(tasks, lam, model=self.fingerprint_)


def test_an_interrupted_call_continues(tmp_path):
    tasks = sample_tasks(POOL, 45, n_way=3, n_shot=2, stream=True)
    with pytest.raises(KeyboardInterrupt):
        embed_into(tmp_path / "c", Model(3), tasks, shard_size=10)
    with pytest.raises(DataError, match="has no embedded tasks in it"):
        Catalogue(tmp_path / "c")
    catalogue = embed_into(tmp_path / "c", Model(2), tasks, shard_size=10)
    assert catalogue.read().ids.tolist() == list(range(45))


def test_an_interrupted_call_continues_though_others_added_tasks(tmp_path):
    tasks, others = (
        sample_tasks(POOL, 45, n_way=3, n_shot=2, seed=seed, stream=True) for seed in (0, 1)
    )
    with pytest.raises(KeyboardInterrupt):
        embed_into(tmp_path / "c", Model(3), tasks, shard_size=10)
    embed_into(tmp_path / "c", Model(), others, shard_size=10)
    assert len(embed_into(tmp_path / "c", Model(2), tasks, shard_size=10)) == 90
    for _ in range(2):  # the same call again: the catalogue has these tasks
        assert len(embed_into(tmp_path / "c", Model(0), tasks, shard_size=10)) == 90


@pytest.mark.parametrize("make", [sample_tasks, partial(sample_tasks, stream=True)])
def test_tasks_with_other_queries_are_other_tasks(make, tmp_path):
    # a class gives all samples that are not queries, so the posteriors differ
    few, many = (make(POOL, 45, n_way=3, n_shot="all", n_query=n) for n in (5, 10))
    with pytest.raises(KeyboardInterrupt):
        embed_into(tmp_path / "c", Model(3), few, shard_size=10)
    catalogue = embed_into(tmp_path / "c", Model(), many, shard_size=10)
    assert (catalogue.read().lam == 11).all()


@pytest.mark.parametrize(
    ("tasks", "options", "message"),
    [
        (sample_tasks(POOL, n_way=3, stream=True), {},
         "a stream without end fills no catalogue; give it n_tasks."),
        (sample_tasks(POOL, 5, n_way=3)[:0], {}, "there are no tasks to embed."),
        (sample_tasks(POOL, 5, n_way=3), {"shard_size": 0}, "shard_size=0 must be at least 1."),
    ],
)  # fmt: skip
def test_wishes_that_cannot_be_met_are_refused(tasks, options, message, tmp_path):
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        embed_into(tmp_path / "c", Model(), tasks, **options)
    assert not (tmp_path / "c").exists()


def test_a_model_must_be_fitted(tmp_path):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        embed_into(tmp_path / "c", TaskThemes(), sample_tasks(POOL, 5, n_way=3))
