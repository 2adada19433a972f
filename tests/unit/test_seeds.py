"""Seeds: NumPy's whole numbers are as good as Python's, all else is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fit_cases import small_model, small_tasks
from meta_cases import toy_pool
from taskscape import (
    DataError,
    TaskThemes,
    correlation_diagram,
    make_tasks,
    sample_tasks,
    select,
)
from taskscape.arguments import check_seed
from taskscape.meta import TrainConfig, evaluate, make_learner, mlp, train
from taskscape.similarity import Task2Vec

LAM = np.random.default_rng(0).gamma(2.0, size=(40, 3)) + 0.1
POOL = toy_pool()


def learned(seed: Any) -> Any:
    tasks = sample_tasks(POOL, 8, n_way=3, n_shot=1, n_query=2)
    learner = make_learner("protonet")
    network = mlp(POOL.sample_shape[0], (4,))
    trained = train(learner, network, tasks, TrainConfig(updates=2, batch_size=4), seed=seed)
    return evaluate(learner, trained.state, tasks, seed=seed).accuracy


USES: dict[str, Callable[[Any], Any]] = {
    "sample_tasks": lambda s: sample_tasks(POOL, 9, n_way=3, n_shot=2, seed=s).keys,
    "unique": lambda s: sample_tasks(POOL, 9, n_way=3, n_shot=2, unique=True, seed=s).keys,
    "all": lambda s: sample_tasks(POOL, "all", n_way=3, n_shot=2, seed=s).keys,
    "make_tasks": lambda s: make_tasks(POOL, [[0, 1], [2, 3]], n_shot=2, seed=s).keys,
    "select": lambda s: select(LAM[:5], LAM, 6, "random", seed=s).indices,
    "correlation_diagram": lambda s: [
        b.accuracy_low
        for b in correlation_diagram(LAM[:, 0], LAM[:, 1] / 20, seed=s)
        .curves[0]
        .bins
    ],
    "Task2Vec": lambda s: Task2Vec(seed=s).seed,
    "random_state": lambda s: TaskThemes(random_state=s).check_settings(),
    "learners": learned,
}  # fmt: skip


@pytest.mark.parametrize("name", USES)
def test_numpys_numbers_give_what_pythons_give(name: str) -> None:
    wanted = USES[name](3)
    for kind in (np.int64, np.uint8):
        np.testing.assert_array_equal(USES[name](kind(3)), wanted)


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("bad", [-1, np.int64(-1), True])
def test_bad_seeds_are_refused(name: str, bad: Any) -> None:
    with pytest.raises(DataError, match=r"must be (a whole number|at least 0)"):
        USES[name](bad)


@pytest.mark.parametrize("bad", [1.0, np.float64(1), "1", None, np.bool_(True)])
def test_only_whole_numbers_are_seeds(bad: Any) -> None:
    with pytest.raises(DataError) as raised:
        check_seed(bad)
    assert str(raised.value) == f"seed={bad!r} must be a whole number."


def test_seeds_that_jax_would_not_hold_are_refused() -> None:
    with pytest.raises(DataError, match=r"^seed=2,147,483,648 must be at most 2,147,483,647\.$"):
        learned(2**31)


@pytest.mark.filterwarnings("ignore::taskscape.themes.HealthWarning")
@pytest.mark.filterwarnings("ignore::taskscape.themes.OutlierTasksWarning")
def test_a_model_with_such_a_seed_can_be_fitted_and_kept(tmp_path: Path) -> None:
    tasks = small_tasks(seed=np.int64(1))
    model = small_model(random_state=np.int64(1)).fit(tasks)
    model.save(tmp_path / "model")
    assert TaskThemes.load(tmp_path / "model").fingerprint_ == model.fingerprint_
    same = small_model(random_state=1).fit(small_tasks(seed=1))
    np.testing.assert_array_equal(same.transform(tasks), model.transform(tasks))
