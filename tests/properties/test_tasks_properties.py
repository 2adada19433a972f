"""What holds for tasks of any pool and any wish."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet, sample_tasks

SIZES = st.lists(st.integers(3, 9), min_size=3, max_size=9)


def pool_of(counts: list[int]) -> ClassPool:
    """Built in the test, not in a strategy: the type checker draws random numbers of its own."""
    y = np.repeat(np.arange(len(counts)), counts)
    return ClassPool.from_arrays(np.arange(len(y), dtype=np.float32)[:, None], y)


@settings(deadline=None, max_examples=60)
@given(counts=SIZES, seed=st.integers(0, 2**64 - 1), data=st.data())
def test_every_task_is_sound(counts: list[int], seed: int, data: st.DataObject):
    pool = pool_of(counts)
    way = data.draw(st.integers(2, len(pool)))
    query = data.draw(st.integers(0, 1))
    shot = data.draw(st.one_of(st.just("all"), st.tuples(st.just(1), st.integers(1, 2))))
    tasks = sample_tasks(pool, 12, n_way=(2, way), n_shot=shot, n_query=query, seed=seed)
    assert ((tasks.n_way >= 2) & (tasks.n_way <= way)).all()
    batch = tasks.pool_rows(slice(None))
    for t in range(len(tasks)):
        classes = tasks.classes[t][: tasks.n_way[t]]
        assert len(set(classes.tolist())) == len(classes)
        assert (tasks.classes[t][tasks.n_way[t] :] == -1).all()
        rows = np.concatenate(
            [batch.support[t][batch.support_mask[t]], batch.query[t][batch.query_mask[t]]]
        )
        assert len(set(rows.tolist())) == len(rows)
        owner = np.searchsorted(pool.starts, rows, side="right") - 1
        assert set(owner.tolist()) == set(classes.tolist())


@settings(deadline=None, max_examples=30)
@given(counts=SIZES, seed=st.integers(0, 1000), cut=st.integers(1, 11))
def test_cutting_and_joining_changes_nothing(counts: list[int], seed: int, cut: int):
    pool = pool_of(counts)
    tasks = sample_tasks(pool, 12, n_way=(2, 3), n_shot=2, seed=seed)
    joined = TaskSet.concatenate([tasks[:cut], tasks[cut:]])
    a, b = tasks.pool_rows(slice(None)), joined.pool_rows(slice(None))
    np.testing.assert_array_equal(a.support, b.support)


@settings(deadline=None, max_examples=30)
@given(counts=SIZES, data=st.data())
def test_enumeration_is_complete(counts: list[int], data: st.DataObject):
    pool = pool_of(counts)
    way = data.draw(st.integers(2, len(pool)))
    every = sample_tasks(
        pool, "all", n_way=way, n_shot=1, chunk_size=data.draw(st.integers(1, 50)), stream=True
    )
    listed = [tuple(row) for chunk in every for row in chunk.classes.tolist()]
    assert len(set(listed)) == len(listed) == len(every)
    assert listed == sorted(listed)
