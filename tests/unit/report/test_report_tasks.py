import numpy as np
import pytest

from report_cases import EVIL_NAMES, awkward_study, bare_study
from taskscape.report.tasks import (
    choose_shown,
    mean_accuracy,
    task_data,
    used_classes,
)


def test_mean_accuracy_skips_episodes_that_failed():
    accuracy = np.array([[0.5, 0.7], [np.nan, 0.4], [np.nan, np.nan]])
    np.testing.assert_allclose(mean_accuracy(accuracy), [0.6, 0.4, np.nan])


def test_all_tasks_are_shown_where_they_are_few():
    result = bare_study()
    shown = choose_shown(result)
    assert (len(shown.test), shown.n_train) == (100, 200)
    np.testing.assert_array_equal(shown.nearest, result.nearest)


@pytest.mark.parametrize("most", [40, 150, 260])
def test_many_tasks_are_sampled_and_neighbours_keep_their_identity(most):
    result = bare_study()
    shown = choose_shown(result, most)
    assert len(shown.test) + shown.n_train == most
    assert len(np.unique(shown.test)) == len(shown.test)
    np.testing.assert_array_equal(shown.train[shown.nearest], result.nearest[shown.test])
    again = choose_shown(result, most)
    np.testing.assert_array_equal(shown.train, again.train)


def test_task_data_speaks_of_the_right_tasks():
    result = awkward_study()
    shown = choose_shown(result, 60)
    used = used_classes(result, shown)
    place = np.full(len(result.pool), -1)
    place[used] = np.arange(len(used))
    data = task_data(result, shown, place)
    row = shown.test[7]
    names = [result.pool.class_names[used[c]] for c in data["test"]["classes"][7]]
    assert tuple(names) == result.test.names(int(row))
    assert data["test"]["distance"][7] == result.distance[row]
    assert set(data["groups"]) == set(EVIL_NAMES)
    assert data["train"]["shown"] == shown.n_train
