"""Tasks of unseen groups find each other, by measures that never saw them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from taskscape import TaskThemes, retrieval
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.similarity import PrototypeDistance
from taskscape.tasks import TaskSet

GROUPS = 8


def pool(n_classes: int = 12, splits: bool = True) -> ClassPool:
    """Groups whose classes scatter around a place of their own."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(GROUPS), n_classes)
    centres = 4 * rng.normal(size=(GROUPS, 6))[group] + rng.normal(size=(len(group), 6))
    X = np.repeat(centres, 12, axis=0) + 0.3 * rng.normal(size=(12 * len(group), 6))
    return ClassPool.from_arrays(
        X, np.repeat(np.arange(len(group)), 12), name="groups",
        groups=[f"g{g}" for g in group],
        splits=["train" if g < 5 else "test" for g in group] if splits else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    "measure", ["themes", "image_themes", "position", "task_means", "prototypes"]
)
def test_groups_that_lie_apart_are_found(measure):
    test = retrieval(pool(), measure, n_queries=5, n_candidates=10, baselines=())
    assert test.measure.groups == ("g5", "g6", "g7")
    assert len(test.measure.candidates) == GROUPS
    assert test.measure.precision.value > 0.9


def test_the_same_seed_gives_the_same_answer_and_baselines_stand_beside_it():
    first, again = (retrieval(pool(), n_queries=5, n_candidates=5, seed=3,
                              similarity="task_means") for _ in range(2))  # fmt: skip
    assert first.to_dict() == again.to_dict()
    assert list(first.baselines) == ["task_means", "prototypes"]
    assert "prototypes: paired difference" in first.summary()


def test_measures_never_see_what_is_queried():
    seen: list[set[str]] = []

    class Remembers(PrototypeDistance):
        def fit(self, tasks: TaskSet) -> "Remembers":
            seen.append({tasks.pool.groups[c] for c in tasks.class_ids})
            return super().fit(tasks)

    retrieval(pool(), Remembers(), n_queries=2, n_candidates=2, baselines=())
    assert seen == [{"g0", "g1", "g2", "g3", "g4"}]
    retrieval(pool(splits=False), Remembers(), n_queries=2, n_candidates=2, baselines=())
    assert len(seen[1]) == GROUPS // 2


def test_groups_that_have_training_classes_are_queried_by_their_others():
    split = ["train" if i % 12 < 6 else "test" for i in range(12 * GROUPS)]
    both = replace(pool(), splits=tuple(split), class_digests=None)
    test = retrieval(both, "task_means", n_queries=5, n_candidates=10, baselines=())
    assert len(test.measure.groups) == len(test.measure.candidates) == GROUPS
    assert test.measure.precision.value > 0.9


def test_without_groups_the_same_classes_are_to_be_found():
    alone = replace(pool(), groups=None, class_digests=None)
    test = retrieval(alone, "prototypes", n_queries=4, baselines=("task_means",))
    assert len(test.measure.groups) == 20
    assert "tasks of the same classes find each other" in test.summary()
    assert test.measure.precision.value > 0.8
    assert test.measure.chance == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"groups": ("one",) * 96}, {}, "1 groups to query and 1 to find"),
        ({}, {"n_way": 13}, "0 groups to query"),
        ({}, {"n_queries": 0}, "n_queries=0"),
        ({}, {"split": "train"}, "split='train': measures are fitted to the training classes"),
        ({"splits": ("test",) * 96}, {}, "has no 'train' classes"),
        ({"splits": None}, {"split": "test"}, "has no splits"),
        ({"groups": None}, {"n_way": 40}, "needs more than 40 classes"),
        ({"groups": None}, {"n_shot": 7}, "two draws of n_shot=7"),
    ],
)
def test_what_cannot_be_asked_is_said(change, options, message):
    with pytest.raises(DataError, match=message):
        retrieval(replace(pool(), **change, class_digests=None), "task_means", **options)


def test_a_model_is_tried_by_a_copy_that_never_saw_the_queries():
    model = TaskThemes(16)
    test = retrieval(pool(), model, n_queries=5, n_candidates=10, baselines=())
    assert test.measure.measure == "TaskThemes"
    assert test.measure.precision.value > 0.9
    assert not hasattr(model, "themes_")


def test_a_test_is_kept_and_read_and_says_which_baseline_is_better():
    class Blind(PrototypeDistance):
        def rows(self, a, b):
            return lambda part: np.random.default_rng(0).random((len(a[part]), len(b)))

    test = retrieval(pool(), Blind(), n_queries=5, n_candidates=10)
    assert test.clearly_better() in ("task_means", "prototypes")
    back = type(test).from_dict(json.loads(json.dumps(test.to_dict())))
    assert back.summary() == test.summary()
    assert back.clearly_better() == test.clearly_better()
    assert retrieval(pool(), "prototypes", n_queries=5, n_candidates=5).clearly_better() == ""
