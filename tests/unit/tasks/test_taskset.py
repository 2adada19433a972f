"""TaskSet: padded batches, episodes, explicit samples, joining."""

import re

import numpy as np
import pytest

from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet, make_tasks, sample_tasks


@pytest.fixture
def pool() -> ClassPool:
    """Sample n of class c is the number 100 c + n; classes have 20 to 25 samples."""
    samples = {f"c{c}": 100.0 * c + np.arange(20 + c)[:, None] for c in range(6)}
    return ClassPool.from_classes(samples)


def test_batches_are_padded_and_masked(pool: ClassPool):
    tasks = sample_tasks(pool, 40, n_way=(2, 5), n_shot=(1, 4), n_query=3, seed=2)
    for batch, start in zip(tasks.batches(16), (0, 16, 32), strict=True):
        part = tasks[start : start + 16]
        assert batch.support.shape == (len(part), 5, 4)
        assert batch.query.shape == (len(part), 5, 3)
        np.testing.assert_array_equal(batch.class_mask.sum(axis=1), part.n_way)
        shots = np.where(batch.class_mask, part.n_shot[:, None], 0)
        np.testing.assert_array_equal(batch.support_mask.sum(axis=2), shots)
        np.testing.assert_array_equal(batch.query_mask.all(axis=2), batch.class_mask)
        assert (batch.support[~batch.support_mask] == 0).all()


def test_samples_belong_to_their_class_and_support_and_query_are_disjoint(pool: ClassPool):
    tasks = sample_tasks(pool, 60, n_way=(2, 5), n_shot=(1, 8), n_query=5)
    batch = tasks.pool_rows(slice(None))
    for t in range(len(tasks)):
        for slot, c in enumerate(tasks.classes[t]):
            if c < 0:
                continue
            support = batch.support[t, slot][batch.support_mask[t, slot]]
            query = batch.query[t, slot]
            both = np.concatenate([support, query])
            assert len(np.unique(both)) == len(both)
            assert (pool.take(both)[:, 0] // 100 == c).all()


def test_samples_do_not_depend_on_the_batch_or_the_other_tasks(pool: ClassPool):
    tasks = sample_tasks(pool, 30, n_way=(2, 5), n_shot=(1, 4), n_query=2)
    whole = tasks.pool_rows(slice(None))
    part = tasks.pool_rows([20, 3])
    np.testing.assert_array_equal(part.support, whole.support[[20, 3]])
    np.testing.assert_array_equal(part.query, whole.query[[20, 3]])
    alone = tasks[20].pool_rows(slice(None))
    shot = tasks.n_shot[20]
    np.testing.assert_array_equal(alone.support[0, :, :shot], whole.support[20, :, :shot])


def test_every_sample_is_drawn_as_often(pool: ClassPool):
    tasks = make_tasks(pool, [[0, 1]] * 4000, n_shot=3)
    drawn = tasks.pool_rows(slice(None)).support[:, 0]
    np.testing.assert_allclose(np.bincount(drawn.ravel()) / drawn.size, 1 / 20, atol=0.01)


def test_all_samples(pool: ClassPool):
    tasks = make_tasks(pool, [["c0", "c5"], ["c1", "c2"]], n_shot="all")
    batch = tasks.pool_rows(slice(None))
    assert batch.support.shape == (2, 2, 25)
    np.testing.assert_array_equal(batch.support_mask.sum(axis=2), [[20, 25], [21, 22]])
    with_query = tasks.with_samples("all", n_query=4).pool_rows(slice(None))
    np.testing.assert_array_equal(with_query.support_mask.sum(axis=2), [[16, 21], [17, 18]])
    for t, slot in np.ndindex(2, 2):
        used = with_query.support[t, slot][with_query.support_mask[t, slot]]
        both = np.concatenate([used, with_query.query[t, slot]])
        np.testing.assert_array_equal(
            np.sort(both), batch.support[t, slot][batch.support_mask[t, slot]]
        )


def test_more_shots_extend_fewer(pool: ClassPool):
    tasks = sample_tasks(pool, 10, n_way=3, n_shot=1)
    one, five = tasks.pool_rows(slice(None)), tasks.with_samples(5).pool_rows(slice(None))
    np.testing.assert_array_equal(five.support[:, :, :1], one.support)


def test_episodes_hold_the_samples_with_zeros_where_padded(pool: ClassPool):
    tasks = sample_tasks(pool, 10, n_way=(2, 4), n_shot=2, n_query=3)
    (episodes,) = tasks.episodes(batch_size=10)
    assert episodes.support.shape == (10, 4, 2, 1)
    assert episodes.query.shape == (10, 4, 3, 1)
    assert (episodes.support[~episodes.support_mask] == 0).all()
    classes = np.where(episodes.class_mask, episodes.support[:, :, 0, 0] // 100, -1)
    np.testing.assert_array_equal(classes, episodes.classes)


def test_named_classes_and_listed_samples(pool: ClassPool):
    tasks = make_tasks(
        pool,
        [["c0", "c1", "c2"], ["c3", "c4"]],
        support=[[[0, 1], [2, 3], [4, -1]], [[5, 6], [7, 8], [-1, -1]]],
        query=[[[9], [9], [9]], [[9], [9], [-1]]],
    )
    assert tasks.names(1) == ("c3", "c4")
    (episodes,) = tasks.episodes()
    np.testing.assert_array_equal(
        episodes.support[..., 0], [[[0, 1], [102, 103], [204, 0]], [[305, 306], [407, 408], [0, 0]]]
    )
    np.testing.assert_array_equal(
        episodes.query[..., 0], [[[9], [109], [209]], [[309], [409], [0]]]
    )


def test_sets_join(pool: ClassPool):
    a = sample_tasks(pool, 5, n_way=3, n_shot=2)
    b = sample_tasks(pool, 4, n_way=5, n_shot=1, seed=1)
    joined = TaskSet.concatenate([a, b])
    assert repr(joined) == "TaskSet(9 tasks over 'pool': 3–5-way, 1–2-shot)"
    mine, theirs = joined.pool_rows(slice(5, 9)), b.pool_rows(slice(None))
    np.testing.assert_array_equal(mine.support[:, :, :1], theirs.support)
    listed = make_tasks(pool, [[0, 1]], support=[[[0], [1]]])
    twice = TaskSet.concatenate([listed, listed])
    np.testing.assert_array_equal(twice.support, [[[0], [1]]] * 2)


def test_repr_and_empty(pool: ClassPool):
    tasks = sample_tasks(pool, 3, n_way=2, n_shot="all", n_query=2)
    assert repr(tasks) == "TaskSet(3 tasks over 'pool': 2-way, all-shot, 2 queries)"
    assert repr(tasks[:0]) == "TaskSet(0 tasks over 'pool')"
    assert list(tasks[:0].batches()) == []


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda p: make_tasks(p, [["c0", "c0"]]),
            "task 0 needs at least 2 different classes, has 'c0', 'c0'.",
        ),
        (lambda p: make_tasks(p, [[0, 6]]), "class=6 must be at most 5."),
        (
            lambda p: make_tasks(p, [["c0", "x"]]),
            "no class 'x' in pool 'pool'; it has 6 classes such as 'c0', 'c1', 'c2'.",
        ),
        (
            lambda p: make_tasks(p, [[0, 1]], n_shot=21),
            "n_shot=21 + n_query=0 needs 21 samples per class; 'c0' has 20. "
            "Lower the numbers or drop these classes.",
        ),
        (
            lambda p: make_tasks(p, [[0, 1]], support=[[[0], [21]]]),
            "support[0][1]: sample=21 must be at most 20.",
        ),
        (
            lambda p: make_tasks(p, [[0, 1]], support=[[0, 1]]),
            "support[0] is [0, 1]; give a list of samples for each class of the task: 'c0', 'c1'.",
        ),
        (
            lambda p: make_tasks(p, [[0, 1]], support=[[[0], [-1]]]),
            "support leaves class 'c1' of task 0 without samples.",
        ),
        (
            lambda p: make_tasks(p, [[0, 1]], query=[[[0], [1]]]),
            "query was given without support; list both, or draw both by n_query.",
        ),
        (
            lambda p: make_tasks(p, [[0, 1]], support=[[[0], [1]]]).with_samples(3),
            "these tasks list their samples one by one; n_shot cannot be changed.",
        ),
        (
            lambda p: list(make_tasks(p, [[0, 1]]).batches(0)),
            "batch_size=0 must be at least 1.",
        ),
        (
            lambda p: TaskSet.concatenate(
                [make_tasks(p, [[0, 1]]), make_tasks(p, [[0, 1]], n_query=1)]
            ),
            "cannot join tasks with different n_query, or listed and drawn.",
        ),
        (lambda p: TaskSet.concatenate([]), "concatenate needs at least one TaskSet."),
    ],
)
def test_bad_input_is_named(pool: ClassPool, build, message: str):
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        build(pool)


def test_halves_share_no_sample_and_have_all_together(pool: ClassPool):
    tasks = sample_tasks(pool, 20, n_way=(2, 5), n_shot=(3, 8), seed=1)
    first, second = (half.pool_rows(slice(None)) for half in tasks.halves())
    whole = tasks.pool_rows(slice(None))
    for t, slot in np.argwhere(whole.class_mask):
        parts = [b.support[t, slot][b.support_mask[t, slot]] for b in (first, second)]
        expected = whole.support[t, slot][whole.support_mask[t, slot]]
        assert sorted([*parts[0], *parts[1]]) == sorted(expected)
        assert 0 <= len(parts[0]) - len(parts[1]) <= 1
    again, _ = tasks.halves()[0].halves()  # tasks that list their samples have halves too
    assert again.max_shot == 2
    with pytest.raises(DataError, match=r"^a class has 1 labelled samples; halves need at least 2"):
        sample_tasks(pool, 5, n_way=2, n_shot=1).halves()
