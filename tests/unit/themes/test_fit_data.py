"""Tasks as a fit sees them: padded mini-batches by number."""

import re
from dataclasses import replace

import jax
import numpy as np
import pytest

from fit_cases import small_pool, small_tasks
from taskscape import ClassPool, TaskSet, make_tasks, sample_tasks
from taskscape.errors import DataError
from taskscape.themes import TaskSource
from taskscape.themes.data import classes_to_hold_out, gather, padded_size
from taskscape.themes.places import SamplePlaces, _draw, class_rows
from taskscape.themes.prepare import PrepareConfig, PreparedSamples, learn_preparation


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
        support=[[[0, 1], [2, -1], [-1, -1]], [[2, 3], [0, 1], [5, 6]]],
    )
    batch = gather(tasks, prepared(), (3, 4, 3))
    assert batch.x.shape == (256, 3)
    rows = [0, 1, 14, 15, 24, 25, 41, 42]
    np.testing.assert_array_equal(batch.x[: len(rows)], pool.samples[rows])
    mask, index = np.asarray(batch.sample_mask), np.asarray(batch.index)
    np.testing.assert_array_equal(mask.sum(axis=2), [[2, 1, 0, 0], [2, 2, 2, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(batch.class_mask, [[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(np.asarray(batch.x)[index[0, 1, 0]], pool.samples[14])
    np.testing.assert_array_equal(np.asarray(batch.x)[index[1, 0, 0]], pool.samples[14])


def test_a_batch_that_could_hold_most_samples_has_all_of_them():
    tasks, samples = small_tasks(200), prepared()
    batch = gather(tasks, samples, (200, 4, 6))
    assert batch.x.shape == samples.pool.samples.shape
    drawn = tasks.pool_rows(slice(None))
    taken = np.asarray(batch.x)[np.asarray(batch.index)]
    mask = np.asarray(batch.sample_mask)
    np.testing.assert_array_equal(mask, drawn.support_mask)
    np.testing.assert_array_equal(taken[mask], samples.pool.samples[drawn.support[mask]])


def test_a_device_draws_the_samples_that_the_host_draws():
    """On an accelerator samples are drawn where they are used; here the same program is asked."""
    pool = small_pool()
    tasks = sample_tasks(pool, 50, n_way=(2, 5), n_shot=(1, 6), n_query=2, seed=3)
    places = SamplePlaces(pool, np.arange(len(pool)))
    index, mask = (np.asarray(value) for value in places.find(tasks, 5, 6, 64))
    with jax.enable_x64(True):
        drawn = _draw(
            np.resize(tasks.keys, 64),
            class_rows(tasks, 5, 64),
            np.resize(tasks.n_shot.astype(np.int32), 64),
            np.int32(tasks.n_query),
            places.starts,
            places.counts,
            6,
        )
    np.testing.assert_array_equal(np.asarray(drawn[1]), mask)
    np.testing.assert_array_equal(np.asarray(drawn[0])[mask], index[mask])


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
    stream = sample_tasks(small_pool(), n_way=2, n_shot=6, seed=5, stream=True)
    source, held_out = TaskSource.of(stream, seed=0, held_out=7)
    assert (source.n_tasks, source.steps_per_pass(4)) == (None, None)
    assert identity(held_out) == identity(stream[:7])
    assert identity(source.batch(2, 4)) == identity(stream[15:19])
    message = "a stream without end has no full pass; use method='online'."
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        list(source.all_batches(4))


def test_a_stream_with_an_end_holds_out_a_tenth():
    stream = sample_tasks(small_pool(), 40, n_way=2, n_shot=6, seed=5, stream=True)
    source, held_out = TaskSource.of(stream, seed=0, held_out=500)
    assert (source.n_tasks, len(held_out), source.steps_per_pass(8)) == (36, 4, 4)
    assert identity(source.batch(5, 8)) == identity(stream[12:20])
    parts = list(source.all_batches(16))
    assert [key for p in parts for key in identity(p)] == identity(stream[4:40])
    few = sample_tasks(small_pool(), 5, n_way=2, n_shot=6, stream=True)
    assert len(TaskSource.of(few, seed=0, held_out=500)[1]) == 1


def test_a_stream_is_never_made_whole():
    asked = []
    stream = sample_tasks(small_pool(), 10**12, n_way=2, n_shot=6, stream=True)

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
            TaskSource.of(
                sample_tasks(small_pool(), n, n_way=2, n_shot=6, stream=True), seed=0, held_out=1
            )


# -- classes held out ---------------------------------------------------------------------------


def pool_of(n_classes: int, groups: list[str] | None = None) -> ClassPool:
    samples = np.random.default_rng(0).normal(size=(4 * n_classes, 2)).astype(np.float32)
    labels = np.repeat(np.arange(n_classes), 4)
    return ClassPool.from_arrays(samples, labels, groups=groups)


def test_a_tenth_of_the_classes_is_held_out_and_always_the_same():
    pool, all_classes = pool_of(80), np.arange(80)
    held = classes_to_hold_out(pool, all_classes, 2)
    assert len(held) == len(set(held.tolist())) == 8
    np.testing.assert_array_equal(classes_to_hold_out(pool, all_classes, 2), held)
    assert (np.diff(held) > 0).all()
    part = np.arange(10, 60)
    assert len(classes_to_hold_out(pool, part, 2)) == 5
    assert np.isin(classes_to_hold_out(pool, part, 2), part).all()


@pytest.mark.parametrize(("n", "least", "expected"), [
    (29, 2, 0), (30, 2, 5), (30, 25, 5), (30, 26, 0), (200, 180, 20), (200, 181, 0),
])  # fmt: skip
def test_none_are_held_out_of_too_few(n: int, least: int, expected: int):
    held = classes_to_hold_out(pool_of(n), np.arange(n), least)
    assert len(held) == expected


def test_groups_are_held_out_whole():
    sizes = {"a": 12, "b": 3, "c": 4, "d": 9, "e": 5, "f": 7}
    groups = [name for name, size in sizes.items() for _ in range(size)]
    pool = pool_of(40, groups)
    held = classes_to_hold_out(pool, np.arange(40), 2)
    names = {groups[c] for c in held}
    assert len(held) == sum(sizes[name] for name in names)
    assert 3 <= len(held) <= 5  # about a tenth, and five at most of so few
    np.testing.assert_array_equal(classes_to_hold_out(pool, np.arange(40), 2), held)


def test_whole_groups_leave_enough_classes():
    """However large the groups are, no fewer than the least number stay."""
    groups = [name for name in "abcdef" for _ in range(8)]
    pool = pool_of(48, groups)
    for least in range(2, 48):
        held = classes_to_hold_out(pool, np.arange(48), least)
        assert 48 - len(held) >= least
        assert len(held) == 0 or len(held) >= 5


@pytest.mark.parametrize("stream", [False, True])
def test_held_out_classes_are_never_learned_from(stream: bool):
    pool = pool_of(60)
    if stream:
        tasks = sample_tasks(pool, 200, n_way=(2, 5), n_shot=2, seed=1, stream=True)
    else:
        tasks = sample_tasks(pool, 200, n_way=(2, 5), n_shot=2, seed=1)
    source, evaluated = TaskSource.of(tasks, seed=3, held_out=50)
    held = source.held_out
    assert held == set(classes_to_hold_out(pool, np.arange(60), 2).tolist())
    assert len(evaluated) == 50
    assert {c for row in evaluated.classes for c in row if c >= 0} <= held
    assert (evaluated.n_way <= 5).all()
    assert (evaluated.n_shot == 2).all()
    batches = [source.batch(t, 16) for t in range(15)] + list(source.all_batches(16))
    learned = {int(c) for part in batches for c in part.classes.ravel() if c >= 0}
    assert not learned & held
    assert learned | held == set(range(60))
    assert source.n_tasks == 200
    for part in batches[:3]:  # the rest of a task stays what it was
        batch = gather(part, prepared_of(pool), (16, 5, 2))
        assert int(batch.class_mask.sum()) == int((part.classes >= 0).sum())
        assert int(batch.sample_mask.sum()) == 2 * int(batch.class_mask.sum())


def prepared_of(pool: ClassPool) -> PreparedSamples:
    everything = np.arange(len(pool))
    raw = learn_preparation(pool, everything, PrepareConfig(centre=False, pca=None))
    return PreparedSamples(pool, raw, everything)


def test_tasks_that_list_their_samples_are_held_out_themselves():
    pool = pool_of(60)
    drawn = sample_tasks(pool, 40, n_way=3, n_shot=2, seed=1)
    support = np.broadcast_to(np.array([0, 2]), (40, 3, 2)).copy()
    listed = make_tasks(pool, drawn.classes.tolist(), support=support)
    source, evaluated = TaskSource.of(listed, seed=3, held_out=500)
    assert (source.held_out, len(evaluated), source.n_tasks) == (frozenset(), 4, 36)


def test_a_batch_may_have_no_class_left():
    pool = pool_of(40)
    held = sorted(TaskSource.of(sample_tasks(pool, 200, n_way=2, n_shot=2), 0, 10)[0].held_out)
    kept = [c for c in range(40) if c not in held]
    tasks = make_tasks(pool, [held[:2], kept[:2]], n_shot="all")
    source = TaskSource(pool, tasks, 0, held_out=frozenset(held))
    for t in range(2):
        batch = gather(source.batch(t, 1), prepared_of(pool), (1, 2, 4))
        assert batch.class_mask.sum() in (0, 2)
