"""Tasks as a fit sees them: padded mini-batches by number."""

import re
from dataclasses import replace

import numpy as np
import pytest

from fit_cases import small_pool, small_tasks
from taskscape import TaskSet, make_tasks, stream_tasks
from taskscape.errors import DataError
from taskscape.fit import TaskSource
from taskscape.fit.data import gather, padded_size
from taskscape.prepare import PrepareConfig, PreparedSamples, learn_preparation


def prepared() -> PreparedSamples:
    everything = np.arange(len(small_pool()))
    as_they_are = PrepareConfig(centre=False, pca=None)
    return PreparedSamples(
        small_pool(), learn_preparation(small_pool(), everything, as_they_are), everything
    )


def identity(tasks: TaskSet) -> list[int]:
    return tasks.keys.tolist()


def test_sizes_grow_in_few_steps():
    sizes = sorted({padded_size(n) for n in range(1, 5000)})
    assert sizes == [256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144]
    assert all(padded_size(n) >= n for n in range(1, 5000))
    assert padded_size(5, least=4) == 6


def test_a_batch_holds_each_sample_once_and_says_where():
    pool = small_pool()
    tasks = make_tasks(
        pool,
        [[0, 1], [1, 2, 3]],
        support=[[[0, 1], [2, -1], [-1, -1]], [[2, 3], [0, 1], [5, 5]]],
    )
    batch = gather(tasks, prepared(), (3, 4, 3))
    assert batch.x.shape == (256, 3)
    rows = sorted({0, 1, 14, 15, 24, 25, 41})
    np.testing.assert_array_equal(batch.x[: len(rows)], pool.samples[rows])
    assert not np.asarray(batch.x[len(rows) :]).any()
    mask, index = np.asarray(batch.sample_mask), np.asarray(batch.index)
    np.testing.assert_array_equal(mask.sum(axis=2), [[2, 1, 0, 0], [2, 2, 2, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(batch.class_mask, [[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(np.asarray(batch.x)[index[0, 1, 0]], pool.samples[14])
    np.testing.assert_array_equal(np.asarray(batch.x)[index[1, 0, 0]], pool.samples[14])


def test_a_batch_must_have_room():
    with pytest.raises(ValueError, match=re.escape("shape (5, 4, 6) do not fit into (4, 4, 6)")):
        gather(small_tasks(5), prepared(), (4, 4, 6))


def test_some_tasks_are_held_out_and_the_rest_is_learned_from():
    tasks = small_tasks(40)
    source, held_out = TaskSource.of(tasks, seed=3, held_out=500)
    assert len(held_out) == 4
    assert sorted(identity(held_out) + identity(source.tasks)) == sorted(identity(tasks))
    assert len(TaskSource.of(tasks, seed=3, held_out=2)[1]) == 2
    again = TaskSource.of(tasks, seed=3, held_out=500)[1]
    assert identity(again) == identity(held_out)
    assert identity(TaskSource.of(tasks, seed=4, held_out=500)[1]) != identity(held_out)
    whole, nothing = TaskSource.of(tasks, seed=3, held_out=0)
    assert (len(whole.tasks), len(nothing)) == (40, 0)


def test_several_sets_are_one():
    source, held_out = TaskSource.of(iter([small_tasks(8), small_tasks(12, seed=1)]), 0, 500)
    assert (source.n_tasks, len(held_out)) == (18, 2)


def test_every_pass_takes_each_task_once_in_an_order_of_its_own():
    source = TaskSource(small_pool(), small_tasks(40), seed=0)
    assert source.steps_per_pass(8) == 5
    passes = [
        [key for t in range(5 * p, 5 * p + 5) for key in identity(source.batch(t, 8))]
        for p in range(3)
    ]
    assert all(sorted(p) == sorted(identity(source.tasks)) for p in passes)
    assert passes[0] != passes[1] != passes[2]
    assert identity(source.batch(7, 8)) == passes[1][16:24]  # any number, without those before
    other = TaskSource(small_pool(), small_tasks(40), seed=1)
    assert identity(other.batch(0, 8)) != identity(source.batch(0, 8))


def test_a_remainder_is_left_to_other_passes_and_a_small_set_is_one_batch():
    source = TaskSource(small_pool(), small_tasks(10), seed=0)
    assert source.steps_per_pass(4) == 2
    assert len({key for t in range(20) for key in identity(source.batch(t, 4))}) == 10
    assert source.steps_per_pass(64) == 1
    assert len(source.batch(0, 64)) == 10
    assert [len(part) for part in source.all_batches(4)] == [4, 4, 2]


def test_a_stream_without_end_holds_out_its_head():
    stream = stream_tasks(small_pool(), n_way=2, n_shot=6, seed=5)
    source, held_out = TaskSource.of(stream, seed=0, held_out=7)
    assert (source.n_tasks, source.steps_per_pass(4)) == (None, None)
    assert identity(held_out) == identity(stream[:7])
    assert identity(source.batch(2, 4)) == identity(stream[15:19])
    message = "a stream without end has no full pass; use method='online'."
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        list(source.all_batches(4))


def test_a_stream_with_an_end_holds_out_a_tenth():
    stream = stream_tasks(small_pool(), 40, n_way=2, n_shot=6, seed=5)
    source, held_out = TaskSource.of(stream, seed=0, held_out=500)
    assert (source.n_tasks, len(held_out), source.steps_per_pass(8)) == (36, 4, 4)
    assert identity(source.batch(5, 8)) == identity(stream[12:20])
    parts = list(source.all_batches(16))
    assert [key for p in parts for key in identity(p)] == identity(stream[4:40])
    few = stream_tasks(small_pool(), 5, n_way=2, n_shot=6)
    assert len(TaskSource.of(few, seed=0, held_out=500)[1]) == 1


def test_a_stream_is_never_made_whole():
    asked = []
    stream = stream_tasks(small_pool(), 10**12, n_way=2, n_shot=6)

    def make(start: int, stop: int) -> TaskSet:
        asked.append(stop - start)
        return stream.make(start, stop)

    source, held_out = TaskSource.of(replace(stream, make=make), seed=0, held_out=100)
    for t in range(50):
        source.batch(t * 10**6, 16)
    assert max(asked) == len(held_out) == 100


@pytest.mark.parametrize("n", [0, 1])
def test_a_fit_needs_two_tasks(n: int):
    message = f"^a fit needs at least 2 tasks, got {n}.$"
    with pytest.raises(DataError, match=message):
        TaskSource.of(small_tasks(5)[:n], seed=0, held_out=1)
    if n:
        with pytest.raises(DataError, match=message):
            TaskSource.of(stream_tasks(small_pool(), n, n_way=2, n_shot=6), seed=0, held_out=1)
