"""Models among scikit-learn's tools: searches, pipelines, clones, threads."""

import importlib.util
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import Pipeline

from fit_cases import assert_same_model, fitted, small_model, small_tasks
from taskscape import TaskThemes
from taskscape.errors import DataError
from taskscape.themes import CoClustering

pytestmark = pytest.mark.filterwarnings("ignore::taskscape.themes.HealthWarning")
OUTLIERS = pytest.mark.filterwarnings("ignore::taskscape.themes.OutlierTasksWarning")


def test_a_task_set_has_rows_as_arrays_have():
    tasks = small_tasks(10)
    assert tasks.shape == (10,)
    order = [3, 0, 7]
    for rows in (order, np.array(order), (order, ...), (np.array(order), ...)):
        np.testing.assert_array_equal(tasks[rows].keys, tasks.keys[order])
    np.testing.assert_array_equal(tasks[2:5].keys, tasks.keys[2:5])
    np.testing.assert_array_equal(tasks[-1].keys, tasks.keys[-1:])
    np.testing.assert_array_equal(tasks[tasks.n_way == 2].n_way, 2)
    assert len(tasks[[]]) == 0
    assert len(fitted().embed(tasks)[[]]) == 0


@OUTLIERS
@pytest.mark.parametrize("backend", ["sequential", "threading"])
def test_a_grid_search_scores_every_setting(backend: str):
    tasks = small_tasks()
    search = GridSearchCV(
        small_model(max_passes=1), {"task_themes": [2, 3]}, cv=2, error_score="raise", n_jobs=2
    )
    with joblib.parallel_backend(backend):
        search.fit(tasks)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    by_hand = cross_val_score(small_model(max_passes=1), tasks, cv=KFold(2), error_score="raise")
    assert scores[0] == pytest.approx(by_hand.mean())
    assert search.best_estimator_.transform(tasks).shape == (72, search.best_params_["task_themes"])


def test_a_pipeline_continues_from_the_concentrations():
    tasks = small_tasks()
    steps = Pipeline([("themes", small_model()), ("flat", PCA(1))])
    assert steps.fit_transform(tasks).shape == (72, 1)
    names = steps[:1].get_feature_names_out()
    assert names.tolist() == ["task_themes_0", "task_themes_1"]
    assert isinstance(clone(steps).named_steps["themes"], CoClustering)


def test_tables_are_made_where_pandas_is():
    model, tasks = clone(fitted()), small_tasks()
    model.set_output(transform="pandas").fit(tasks)
    if importlib.util.find_spec("pandas") is None:
        with pytest.raises(ImportError, match="requires pandas to be installed"):
            model.transform(tasks)
    else:
        table = model.transform(tasks)
        assert table.columns.tolist() == ["task_themes_0", "task_themes_1"]


def test_a_seed_that_was_drawn_is_kept(tmp_path: Path):
    tasks = small_tasks()
    model = small_model(random_state=None).fit(tasks)
    assert clone(model).random_state is None
    again = small_model(random_state=model.random_state_).fit(tasks)
    assert_same_model(model, again)
    model.save(tmp_path / "m")
    assert TaskThemes.load(tmp_path / "m").random_state_ == model.random_state_
    assert small_model(random_state=None).fit(tasks).random_state_ != model.random_state_
    with pytest.raises(DataError, match=r"^resume=True needs random_state, the seed that the fit"):
        model.fit(tasks, checkpoint=tmp_path / "c", resume=True)
