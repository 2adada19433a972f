"""Fits with default settings on real data: tasks find their kin, and co-clusterings are healthy."""

import os

import numpy as np
import pytest

from taskscape import TaskThemes, load_pool, retrieval, sample_tasks
from taskscape.pools.load import POOLS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_cache")]


def check(name: str, n_tasks: int) -> None:
    """Fewer tasks than a real fit has; all other settings are the defaults."""
    pool = load_pool(name)
    train = sample_tasks(pool, n_tasks, n_way=(5, 10), n_shot=16, split="train", seed=0)
    model = TaskThemes.paper(max_passes=2, random_state=0).fit(train)
    assert model.health_.ok, model.health_.advice
    assert model.theme_usage_.min() > 0.02 / 8
    assert model.alpha_.sum(axis=1).max() < 1000
    test = sample_tasks(pool, 5000, n_way=5, n_shot=16, split="test", seed=1)
    lam = model.transform(test)
    assert np.isfinite(lam).all()
    assert len(np.unique(np.round(lam, 1), axis=0)) > 100


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["omniglot", "mini_imagenet"])
def test_a_default_fit_on_real_data_is_healthy(name: str):
    if POOLS[name].locate() is None:
        at = os.environ.get("TASKSCAPE_DATA", "not set")
        pytest.skip(f"no {name}: put it in a folder and set TASKSCAPE_DATA to that (now: {at})")
    check(name, n_tasks=3000)


def test_a_default_fit_on_letters_is_healthy():
    check("letters", n_tasks=3000)


@pytest.mark.real_data
def test_tasks_of_unseen_alphabets_find_each_other():
    if POOLS["omniglot"].locate() is None:
        pytest.skip("no omniglot: put it in a folder and set TASKSCAPE_DATA to that")
    test = retrieval(load_pool("omniglot"), seed=7)
    assert test.measure.precision.value > 0.75
    assert not test.clearly_better()
    assert test.measure.minus(test.baselines["prototypes"]).value > 0.05
    assert test.measure.minus(test.baselines["task_means"]).value > -0.02
