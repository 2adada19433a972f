import re

import numpy as np
import pytest

from taskscape.diagram import correlation_diagram
from taskscape.diagram.diagram import bin_tasks
from taskscape.errors import DataError

RNG = np.random.default_rng(0)


def test_the_bins_of_the_paper():
    distance = np.array([0.0, 1.0, 1.0001, 2.0, 3.9, 8.0])
    accuracy = np.array([0.9, 0.7, 0.6, 0.5, 0.4, 0.1])
    (curve,) = correlation_diagram(distance, accuracy, n_bins=8).curves
    # width 1; a right edge belongs to its bin; bins 5, 6 and 7 are empty and dropped
    assert [(b.low, b.high, b.n_tasks) for b in curve.bins] == [
        (0, 1, 2), (1, 2, 2), (3, 4, 1), (7, 8, 1)
    ]  # fmt: skip
    np.testing.assert_allclose([b.distance for b in curve.bins], [0.5, 1.50005, 3.9, 8.0])
    np.testing.assert_allclose([b.accuracy for b in curve.bins], [0.8, 0.55, 0.4, 0.1])


def test_every_task_is_in_one_bin_and_within_its_edges():
    for _ in range(50):
        distance = RNG.gamma(1, 1, 200)
        n_bins = int(RNG.integers(1, 40))
        for binning in ("paper", "quantile"):
            edges, which = bin_tasks(distance, n_bins, binning)
            inside = (distance <= edges[which + 1]) & ((distance > edges[which]) | (which == 0))
            assert inside.all()


def test_quantile_bins_hold_equal_numbers():
    _, which = bin_tasks(RNG.random(1000), 10, "quantile")
    np.testing.assert_allclose(np.bincount(which), 100, atol=1)
    _, which = bin_tasks(np.ones(30), 10, "quantile")
    assert (which == 0).all()


def test_equal_distances_make_one_bin():
    (curve,) = correlation_diagram(np.zeros(20), RNG.random(20)).curves
    assert [b.n_tasks for b in curve.bins] == [20]
    assert np.isnan(curve.spearman.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_bins": 0}, "n_bins=0 must be at least 1."),
        ({"bins": "odd"}, "bins='odd' is not known; use 'paper' or 'quantile'."),
        ({"distance": -np.ones(9)}, "distance goes down to -1; distances are not negative."),
        ({"distance": np.ones((9, 2))}, "distance has shape (9, 2); expected a number for at "
         "least 3 test tasks."),
        ({"accuracy": np.ones(8)}, "accuracy of 'learner' has shape (8,); expected (9,), or (9, n) "
         "for the 9 test tasks that distance has."),
        ({"accuracy": np.array([1.0] * 8 + [np.nan])}, "accuracy of 'learner' has NaN or infinite "
         "values in 1 of 9 tasks (the first is task 8). Leave these tasks out everywhere."),
        ({"classes": np.ones((8, 2), dtype=int)}, "classes has shape (8, 2) and type int64; "
         "expected a TaskSet, or class ids (tasks, way) padded with -1, for 9 tasks."),
        ({"accuracy": {}}, "accuracy holds no learner."),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(options, message):
    given = {"distance": np.arange(9.0), "accuracy": np.arange(9.0)} | options
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        correlation_diagram(**given)
