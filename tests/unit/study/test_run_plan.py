"""What is settled before a study starts: splits, tasks, and what the data cannot give."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meta_cases import toy_pool
from run_cases import own_features, tiny
from taskscape import TaskThemes, load_pool
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.pools.splits import deal_splits
from taskscape.settings import settings_in
from taskscape.study import StudyConfig
from taskscape.study.choosing import chosen_stage, selection_stage, targets_stage
from taskscape.study.config import TaskSettings
from taskscape.study.learn import diagram_stage, forecast_stage, learner_stage
from taskscape.study.plan import make_plan
from taskscape.study.represent import (
    distances_stage,
    embed_stage,
    fit_stage,
    health_stage,
)


def counts(pool: ClassPool) -> dict[str, int]:
    assert pool.splits is not None
    return {s: pool.splits.count(s) for s in ("train", "val", "test")}


def with_splits(pool: ClassPool, tasks: TaskSettings, seed: int) -> tuple[ClassPool, list[str]]:
    return deal_splits(pool, seed, tasks.test_share, tasks.val_share, tasks.n_way)


def test_classes_without_splits_are_dealt_out():
    pool = load_pool(own_features())
    dealt, notes = with_splits(pool, tiny().tasks, 0)
    assert counts(dealt) == {"train": 12, "val": 4, "test": 4}
    (note,) = notes
    assert "dealt out by class with seed 0: 12 train, 4 val, 4 test" in note
    assert with_splits(pool, tiny().tasks, 0)[0].splits == dealt.splits
    assert with_splits(pool, tiny().tasks, 1)[0].splits != dealt.splits


def test_groups_stay_together_where_they_can():
    pool = load_pool(own_features())
    groups = tuple(f"g{c // 4}" for c in range(20))
    dealt, notes = with_splits(replace(pool, groups=groups), tiny().tasks, 0)
    assert counts(dealt) == {"train": 12, "val": 4, "test": 4}
    assert all(len(set(dealt.splits[i : i + 4])) == 1 for i in range(0, 20, 4))
    assert "by group with seed 0" in notes[0]
    two = tuple("ab"[c // 10] for c in range(20))
    dealt, notes = with_splits(replace(pool, groups=two), tiny().tasks, 0)
    assert counts(dealt) == {"train": 12, "val": 4, "test": 4}
    assert "by class with seed 0" in notes[0]


def test_validation_classes_are_taken_from_training_where_there_are_none():
    pool = replace(toy_pool(), splits=("train",) * 16 + ("test",) * 8)
    dealt, notes = with_splits(pool, tiny().tasks, 0)
    assert counts(dealt) == {"train": 13, "val": 3, "test": 8}
    assert dealt.splits[16:] == ("test",) * 8
    (note,) = notes
    assert note.startswith("The data name no val classes")
    only, notes = with_splits(replace(pool, splits=("train",) * 24), tiny().tasks, 0)
    assert counts(only) == {"train": 14, "val": 5, "test": 5}
    assert notes[0].startswith("The data name no test and no val classes; they were dealt out")
    without, notes = with_splits(pool, tiny(tasks={"val_share": 0.0}).tasks, 0)
    assert (without, notes) == (pool, [])


def test_splits_of_the_data_stay():
    pool = toy_pool()
    assert with_splits(pool, tiny().tasks, 0) == (pool, [])


def test_tasks_are_distinct_and_of_their_splits():
    plan = make_plan(toy_pool(), tiny())
    for split, tasks in (("train", plan.train), ("val", plan.val), ("test", plan.test)):
        assert tasks is not None
        assert np.isin(tasks.classes, plan.pool.classes_in(split)).all()
        assert len(np.unique(np.sort(tasks.classes, axis=1), axis=0)) == len(tasks)
    again = make_plan(toy_pool(), tiny())
    np.testing.assert_array_equal(plan.test.keys, again.test.keys)
    other = make_plan(toy_pool(), replace(tiny(), seed=1))
    assert (plan.test.keys != other.test.keys).any()


def test_what_is_at_most_is_cut_to_the_data_and_said():
    pool = load_pool(own_features(n_classes=30))
    plan = make_plan(pool, tiny(tasks={"n_shot": 16, "n_train": 9999}))
    assert plan.config.tasks.n_shot == 9
    assert plan.config.tasks.n_train == len(plan.train) == 816  # 3 of 18
    assert plan.notes[1:] == (
        "tasks.n_train was lowered from 9,999 to 816.",
        "tasks.n_val was lowered from 30 to 20.",
        "tasks.n_test was lowered from 30 to 20.",
        "tasks.n_shot was lowered from 16 to 9.",
        "(The data have 18 train, 6 val, 6 test classes and 9 samples in the smallest.)",
    )


def test_tasks_within_groups_if_asked():
    pool = replace(toy_pool(), groups=tuple(f"g{c // 4}" for c in range(24)))
    plan = make_plan(pool, tiny(tasks={"within_group": True, "n_way": 2}, fit={"n_way": [3, 9]}))
    for tasks in (plan.fit_tasks, plan.train, plan.val, plan.test):
        assert tasks is not None
        assert all(len({pool.groups[c] for c in row if c >= 0}) == 1 for row in tasks.classes)
    assert len(plan.test) == 12  # of two groups of four classes
    assert plan.config.fit.n_way == (3, 4)
    with pytest.raises(DataError, match=r"within_group needs groups.*group_file"):
        make_plan(toy_pool(), tiny(tasks={"within_group": True}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": {"n_way": 9}}, r"n_way=9 needs 9 classes .* has 8 train classes .*Lower"),
        ({"tasks": {"n_way": 8}}, r"only 1 different tasks of 8 classes; a study needs 10\. Lower"),
        ({"selection": {"budgets": [10, 50]}}, r"budgets has 50; there are 40 .*Lower it"),
        ({"learners": {"network": "conv4"}}, "'conv4' takes images; 'arrays' has features. Use ml"),
    ],
)
def test_what_the_data_cannot_give_is_named_before_any_work(changes: dict, message: str):
    with pytest.raises(DataError, match=message):
        make_plan(toy_pool(), tiny(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"evaluate": {"n_shot": 5}},
            r"evaluate\.n_shot=5 .* needs 6 samples per class",
        ),
        ({"selection": {"rules": ["task2vec"]}}, "'task2vec' of selection.rules needs 6 samples"),
    ],
)
def test_too_few_samples_are_named_before_any_work(changes: dict, message: str):
    with pytest.raises(DataError, match=message):
        make_plan(load_pool(own_features(n_classes=30, n_samples=5)), tiny(**changes))
    with pytest.raises(DataError, match=r"has 1 train classes \(1 train, 0 test\)"):
        make_plan(load_pool((np.zeros((9, 2)), np.zeros(9, int))), tiny())


def test_every_setting_is_covered_by_the_hash_of_some_stage(tmp_path: Path):
    """Or by what the data are, which all of them cover, or it decides which stages there are."""
    plan = make_plan(toy_pool(), tiny())
    model, embedded, pool = TaskThemes(), {}, plan.pool
    stages = [
        fit_stage(plan, tmp_path), embed_stage(plan, model), health_stage(plan, model),
        distances_stage(plan, model, embedded, pool), learner_stage(plan, pool, "protonet"),
        diagram_stage(plan, {}, []), chosen_stage(plan, model, embedded),
        selection_stage(plan, pool, "protonet", []), targets_stage(plan, model, ()),
        forecast_stage(plan, model, embedded, []),
    ]  # fmt: skip
    covered = {name for stage in stages for name in stage.settings}
    others = {name for name in settings_in(StudyConfig) if name.startswith("source.")}
    others |= {"preset", "data", "learners.names", "learners.settings"}
    assert set(settings_in(StudyConfig)) - covered == others
    assert "tasks.within_group" in stages[0].settings  # which tasks the model learns from
    assert stages[4].settings["own"] == plan.config.learners.settings["protonet"]
