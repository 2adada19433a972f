"""How often tasks find their own group, scored from distances and owners."""

import json

import numpy as np
import pytest

from taskscape.io.values import from_plain
from taskscape.similarity.retrieval import Retrieval, score_retrieval

QUERIES = np.repeat(["a", "b"], 3)
CANDIDATES = np.repeat(["a", "b", "c"], 4)


def test_a_measure_that_knows_the_groups_is_always_right():
    scored = score_retrieval((QUERIES[:, None] != CANDIDATES).astype(float), QUERIES, CANDIDATES)
    assert scored.precision.value == 1
    assert scored.at_10 == pytest.approx([0.4, 0.4])  # of ten nearest, four can be right
    assert scored.chance == pytest.approx(1 / 3)
    np.testing.assert_array_equal(scored.taken_for, [[1, 0, 0], [0, 1, 0]])
    assert scored.confusions() == []


def test_groups_are_also_told_by_the_mean_distance_to_their_tasks():
    far = np.where(QUERIES[:, None] == CANDIDATES, 2.0, 3.0)
    far[:, 4:8] = np.where(QUERIES[:, None] == "a", [0, 9, 9, 9], far[:, 4:8])  # one near
    scored = score_retrieval(far, QUERIES, CANDIDATES)
    np.testing.assert_array_equal(scored.at_1, [0, 1])
    np.testing.assert_array_equal(scored.by_mean, [1, 1])


def test_a_measure_that_tells_nothing_apart_scores_nothing():
    scored = score_retrieval(np.zeros((6, 12)), QUERIES, CANDIDATES)
    np.testing.assert_array_equal(scored.by_mean, [0, 0])
    assert scored.precision.value == 0


def test_who_is_taken_for_whom_and_paired_differences(tmp_path):
    distances = (QUERIES[:, None] != CANDIDATES).astype(float)
    distances[2] = np.where(CANDIDATES == "c", -1.0, distances[2])
    scored = score_retrieval(distances, QUERIES, CANDIDATES, "mine")
    np.testing.assert_allclose(scored.at_1, [2 / 3, 1])
    assert scored.confusions() == [("a", "c", pytest.approx(1 / 3))]
    best = score_retrieval((QUERIES[:, None] != CANDIDATES).astype(float), QUERIES, CANDIDATES)
    assert scored.minus(best).value == pytest.approx(-1 / 6)
    assert scored.summary().startswith("mine: tasks of one group find each other in 83 % of cases")
    again = from_plain(Retrieval, json.loads(json.dumps(scored.to_dict())))
    np.testing.assert_array_equal(again.taken_for, scored.taken_for)
    assert (again.groups, again.chance) == (scored.groups, scored.chance)
    scored.plot(tmp_path / "retrieval.png")
    assert (tmp_path / "retrieval.png").stat().st_size > 10_000


def test_one_group_has_no_interval():
    scored = score_retrieval(np.ones((3, 12)), QUERIES[:3], CANDIDATES)
    assert "in 0 % of cases, over 1 group (chance 33 %)" in scored.summary()
