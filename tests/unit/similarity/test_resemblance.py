"""Test sets that are like the training set, and one that is not, told apart by left-out classes."""

from dataclasses import replace

import numpy as np
import pytest

from taskscape import ClassPool, TaskSet, sample_tasks
from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.io.values import from_plain
from taskscape.similarity import Resemblance, resemblance
from taskscape.similarity.resemblance import Standing


def pool(by_group: bool, seed: int = 0, n_groups: int = 12) -> ClassPool:
    """Eight classes to a group; a quarter of the groups, or of the classes, are to test."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), 8)
    middles = 3 * rng.normal(size=(n_groups, 4))[groups] + rng.normal(size=(8 * n_groups, 4))
    X = np.repeat(middles, 6, axis=0) + rng.normal(size=(48 * n_groups, 4))
    held = groups < n_groups // 4 if by_group else rng.permutation(len(groups)) < len(groups) // 4
    return ClassPool.from_arrays(
        X, np.repeat(np.arange(len(groups)), 6), groups=[f"g{g}" for g in groups],
        splits=np.where(held, "test", "train").tolist(),
    )  # fmt: skip


def sets(of: ClassPool) -> tuple[TaskSet, TaskSet]:
    test, train = (sample_tasks(of, 300, split=s, n_way=3, n_shot=4) for s in ("test", "train"))
    return test, train


def test_new_groups_are_unlike_and_classes_dealt_by_chance_are_not():
    unlike = [resemblance(*sets(pool(True, s)), "task_means", seed=s).answer for s in range(4)]
    alike = [resemblance(*sets(pool(False, s)), "task_means", seed=s).answer for s in range(8)]
    assert unlike == ["unlike"] * 4
    assert alike.count("unlike") <= 1


def test_test_groups_stand_among_groups_and_validation_beside():
    new = pool(True)
    test, train = sets(new)
    answer = resemblance(test, train, "task_means", validation=test)
    assert answer.validation is not None
    assert answer.validation.answer == "unlike"
    assert resemblance(test, train, "task_means").test == answer.test  # whatever stands beside
    assert "Validation tasks are unlike them" in answer.because
    assert answer.groups is not None
    assert (answer.groups.n, answer.groups.n_train) == (3, 9)
    assert answer.groups.answer == "alike"  # as groups of one kind are
    assert "differ as other groups do" in answer.because
    assert from_plain(Resemblance, answer.to_dict()) == answer


def test_two_groups_cannot_be_told_from_others():
    of = pool(True, n_groups=8)  # two to test, and three are left out in turn
    answer = resemblance(*sets(of), "task_means")
    assert answer.groups is not None
    assert answer.groups.answer == "unknown"
    assert "cannot be told from 2 test and 6 training groups" in answer.summary()


def test_few_classes_cannot_be_told():
    test, train = sets(pool(False))
    few = sample_tasks(test.pool.subset(test.class_ids[:3].tolist()), 1, n_way=3, n_shot=4)
    answer = resemblance(few, train, "task_means")
    assert answer.answer == "unknown"
    assert "cannot be told from 3 test and 72 training classes" in answer.verdict


def test_embedded_tasks_give_the_same_sentence():
    test, train = sets(pool(True))
    asked, known = (Embeddings.of(t, np.ones((len(t), 2), np.float32)) for t in (test, train))
    answer = resemblance(asked, known, "task_means", pool=test.pool)
    assert answer.summary() == resemblance(test, train, "task_means").summary()
    with pytest.raises(DataError, match="give pool, the samples"):
        resemblance(asked, known, "task_means")
    with pytest.raises(DataError, match=r"other splits of it\. Give that pool; splits that `"):
        resemblance(asked, known, pool=pool(False))


def test_no_sentence_claims_more_than_the_deals():
    usual = Standing(90.0, 0.01, 20, 60)
    assert Resemblance("themes", usual).answer == "alike"
    assert Resemblance("themes", replace(usual, percentile=90.1)).verdict == (
        "Test tasks are unlike the training tasks."
    )
