"""Settings that choose themselves: taken only where clearly better, and kept with the model."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taskscape import TaskThemes, sample_tasks
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.similarity import choose_settings
from taskscape.similarity.settings import Folds
from taskscape.tasks import TaskSet
from taskscape.themes import PrepareConfig

LOUD, ALL = PrepareConfig(pca=1), PrepareConfig(pca=None)
SIZES = {"n_way": 3, "n_shot": 3, "seconds": 1e6}


def tasks(groups: bool = True) -> TaskSet:
    """Groups that lie apart, but not in the direction in which classes vary most."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(6), 6)
    loud = 5 * rng.normal(size=(len(group), 1))
    quiet = rng.normal(size=(6, 20))[group] + 0.3 * rng.normal(size=(len(group), 20))
    X = np.repeat(np.hstack([loud, quiet]), 8, axis=0)
    X += 0.3 * rng.normal(size=X.shape)
    labels = np.repeat(np.arange(len(group)), 8)
    names = [f"g{g}" for g in group] if groups else None
    return sample_tasks(ClassPool.from_arrays(X, labels, groups=names), 200, n_way=3, n_shot=3)


@pytest.mark.slow
def test_a_clearly_better_setting_is_taken_and_kept_with_the_model(tmp_path: Path):
    asked = TaskThemes(8, prepare=LOUD)
    search = choose_settings(tasks(), asked, {"prepare": [ALL, LOUD], "image_themes": [8]}, **SIZES)
    assert search.chosen == {"prepare": ALL} == {"prepare": search.model.prepare}
    assert search.trials[0].gain.low > 0
    assert search.trials[0].score > search.score + 0.2
    assert [t.gain.value for t in search.trials[1:]] == [0, 0]
    assert asked.prepare == LOUD
    assert not asked.origin
    assert not hasattr(search.model, "factors_")
    assert "6 held-out groups in 3 folds: prepare = centring" in search.model.origin
    assert json.loads(json.dumps(search.to_dict()))["chosen"]["prepare"]["pca"] is None
    search.model.fit(tasks()).save(tmp_path / "model")
    assert TaskThemes.load(tmp_path / "model").origin == search.origin()


def test_it_ends_in_time_with_what_it_has():
    search = choose_settings(tasks(), TaskThemes(8), n_way=3, n_shot=3, seconds=1e-3)
    assert search.trials == ()
    assert "for lack of time" in search.origin()
    assert search.model.image_themes == 8


@pytest.mark.slow
def test_without_groups_classes_are_held_out():
    search = choose_settings(tasks(groups=False), TaskThemes(8), {"temperature": [9.0]}, **SIZES)
    assert "36 classes held out in 5 folds" in search.origin()
    assert len(search.trials) == 1


@pytest.mark.slow
def test_the_papers_model_is_given_fewer_themes_where_many_explain_only_what_they_learned():
    model = TaskThemes.paper(2, 6, prepare=ALL, max_tasks=100, random_state=0)
    search = choose_settings(tasks(), model, {"image_themes": [2]}, by="bound", **SIZES)
    assert search.chosen == {"image_themes": 2}
    assert search.model.image_themes == 2
    assert "nats" in search.summary()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"image_themes": [0]}, "image_themes=0 must be at least 2."),
        ({"size": [3]}, "size' is not a setting of TaskThemes"),
    ],
)
def test_values_are_checked_before_anything_is_fitted(values: dict[str, list[int]], message: str):
    with pytest.raises(DataError, match=re.escape(message)):
        choose_settings(tasks(), TaskThemes(), values)


def test_the_papers_model_needs_values_and_folds_need_classes():
    with pytest.raises(DataError, match="values must name settings to try"):
        choose_settings(tasks(), TaskThemes.paper())
    few = tasks()
    few = replace(few, classes=few.classes[:1], keys=few.keys[:1], n_shot=few.n_shot[:1])
    with pytest.raises(DataError, match="needs 12 classes without groups; these tasks have 3"):
        choose_settings(few, TaskThemes(8))


def test_few_classes_make_fewer_folds():
    assert "in 3 folds" in Folds.of_classes(tasks(groups=False), 11, 3, 0).held_out
