import json
import re

import numpy as np
import pytest

from taskscape.compare import mean_distance, resemblance
from taskscape.errors import DataError

RNG = np.random.default_rng(0)
THEMES = RNG.dirichlet(np.full(4, 0.4), 200)


def tasks(n, classes):
    ids = np.array([RNG.choice(classes, 3, replace=False) for _ in range(n)])
    return 0.5 + THEMES[ids].sum(axis=1), ids


TRAIN, IDS = tasks(4000, np.arange(120))


def test_tasks_of_like_classes_are_alike():
    test, _ = tasks(500, np.arange(120, 200))
    found = resemblance(test, TRAIN, train_classes=IDS)
    assert found.answer == "alike"
    assert found.summary().startswith("Yes. ")
    assert 35 < found.median_percentile < 65
    assert found.folds >= 2
    assert len(found.reference) >= 100


def test_tasks_of_another_kind_are_not():
    far = 0.5 + np.tile([30.0, 0.0, 0.0, 0.0], (50, 1))
    found = resemblance(far, TRAIN, train_classes=IDS)
    assert found.answer == "unlike"
    assert found.summary().startswith("No. ")
    assert "100 % of the test tasks lie beyond" in found.summary()


@pytest.mark.parametrize("measure", ["mean", "nearest"])
def test_the_reference_can_be_given(measure):
    reference, _ = tasks(300, np.arange(120, 200))
    test, _ = tasks(200, np.arange(120, 200))
    found = resemblance(test, TRAIN, reference=reference, measure=measure, k=5)
    assert found.folds == 0
    assert 30 < found.median_percentile < 70
    if measure == "mean":
        np.testing.assert_allclose(found.distance, mean_distance(test, TRAIN))
        by_hand = [
            50 * np.mean((found.reference < d) * 1 + (found.reference <= d)) for d in found.distance
        ]
        np.testing.assert_allclose(found.percentile, by_hand, atol=1e-9)


def test_it_is_written_as_json():
    found = resemblance(TRAIN[:9], TRAIN, train_classes=IDS)
    read = json.loads(json.dumps(found.to_dict()))
    assert read["answer"] == found.answer
    assert len(read["percentile"]) == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give either train_classes, from which held-out classes are taken, or reference, "
         "tasks of classes that no training task has."),
        ({"train_classes": IDS[:7]}, "train_classes has shape (7, 3) and type int64; expected a "
         "TaskSet, or class ids (tasks, way) padded with -1, for 4000 tasks."),
        ({"train_classes": IDS, "folds": 120}, "only 0 training tasks lie wholly inside a fold of "
         "the training classes; 20 are needed. Pass reference=, tasks sampled from held-out "
         "classes, or more training tasks."),
    ],
)  # fmt: skip
def test_wishes_that_cannot_be_met_are_refused(options, message):
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        resemblance(TRAIN[:5], TRAIN, **options)
