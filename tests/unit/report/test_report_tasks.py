from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta

from report_cases import EVIL_NAMES, awkward_study, bare_study
from taskscape.report.figures import distance_matrix
from taskscape.report.tasks import (
    choose_shown,
    credible_interval,
    mean_accuracy,
    task_data,
    used_classes,
)


def test_credible_intervals_are_those_of_the_beta_marginals():
    lam = np.array([[0.5, 3.5, 2.0], [10.0, 0.1, 0.1]])
    low, high = credible_interval(lam, 0.8)
    rest = lam.sum(axis=1, keepdims=True) - lam
    np.testing.assert_allclose(low, beta(lam, rest).ppf(0.1), rtol=1e-6)
    np.testing.assert_allclose(high, beta(lam, rest).ppf(0.9), rtol=1e-6)


def test_mean_accuracy_skips_episodes_that_failed():
    accuracy = np.array([[0.5, 0.7], [np.nan, 0.4], [np.nan, np.nan]])
    np.testing.assert_allclose(mean_accuracy(accuracy), [0.6, 0.4, np.nan])


def test_all_tasks_are_shown_where_they_are_few():
    result = bare_study()
    shown = choose_shown(result)
    assert (len(shown.test), shown.n_train, shown.n_tasks) == (100, 200, 300)
    np.testing.assert_array_equal(shown.nearest, result.nearest)


@pytest.mark.parametrize("most", [40, 150, 260])
def test_many_tasks_are_sampled_and_neighbours_keep_their_identity(most):
    result = bare_study()
    shown = choose_shown(result, most)
    assert shown.n_tasks == most
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
    assert np.sum(data["test"]["mean"][7]) == pytest.approx(1000, abs=2)
    assert data["train"]["shown"] == shown.n_train


def test_the_matrix_holds_the_divergences_of_its_rows_to_its_columns():
    matrix = distance_matrix(bare_study(), "nats")
    assert (matrix.n_test, matrix.n_train) == (60, 60)
    assert (np.diag(matrix.distances) == 0).all()
    assert not np.allclose(matrix.distances, matrix.distances.T)
    assert len(set(matrix.names)) == 120
    test_row, train_row = matrix.block_means()
    others = matrix.distances[:60, :60][~np.eye(60, dtype=bool)]
    assert test_row == ("test tasks", others.mean(), matrix.distances[:60, 60:].mean())
    assert train_row[0] == "training tasks"


def test_the_matrix_of_a_handful_of_tasks():
    result = bare_study()
    few = replace(result, test=result.test[:2], train=result.train[:1])
    matrix = distance_matrix(few, "nats")
    assert matrix.distances.shape == (3, 3)
    assert np.isnan(matrix.block_means()[1][2])
    assert matrix.figure()["data"][0]["zmax"] > 0
