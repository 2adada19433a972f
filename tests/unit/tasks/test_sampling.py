"""Sampling, streaming and enumerating tasks."""

import itertools
import re

import numpy as np
import pytest

from taskscape.errors import DataError
from taskscape.pools import ClassPool, join_pools
from taskscape.tasks import TaskSet, sample_tasks


def sets(tasks: TaskSet) -> list[frozenset[int]]:
    return [frozenset(c for c in row if c >= 0) for row in tasks.classes.tolist()]


@pytest.fixture
def pool() -> ClassPool:
    """24 classes of 20 to 23 samples; groups of 12, 8 and 4; split 12 / 4 / 8."""
    y = np.concatenate([np.full(20 + c % 4, c) for c in range(24)])
    return ClassPool.from_arrays(
        np.arange(len(y), dtype=np.float32)[:, None],
        y,
        groups=["large"] * 12 + ["middle"] * 8 + ["small"] * 4,
        splits=["train"] * 12 + ["val"] * 4 + ["test"] * 8,
    )


def test_the_same_seed_gives_the_same_tasks_and_another_seed_others(pool: ClassPool):
    a, b, c = (sample_tasks(pool, 50, n_way=(2, 6), n_shot=(1, 5), seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(a.classes, b.classes)
    np.testing.assert_array_equal(a.n_shot, b.n_shot)
    assert (a.classes != c.classes).any()


def test_chunks_do_not_matter(pool: ClassPool):
    whole = sample_tasks(pool, 100, n_way=(2, 6), n_shot=3, seed=4)
    for chunk_size in (1, 7, 64, 1000):
        chunks = sample_tasks(
            pool, 100, n_way=(2, 6), n_shot=3, seed=4, chunk_size=chunk_size, stream=True
        )
        joined = TaskSet.concatenate(list(chunks))
        np.testing.assert_array_equal(joined.classes, whole.classes)
        np.testing.assert_array_equal(joined.keys, whole.keys)


@pytest.mark.parametrize("unique", [False, True])
def test_asking_for_more_continues_the_same_row(pool: ClassPool, unique: bool):
    few = sample_tasks(pool, 30, n_way=3, n_shot=1, unique=unique, split="train")
    many = sample_tasks(pool, 220, n_way=3, n_shot=1, unique=unique, split="train")
    np.testing.assert_array_equal(many.classes[:30], few.classes)
    np.testing.assert_array_equal(many.keys[:30], few.keys)


def test_ways_and_shots_cover_their_ranges_evenly(pool: ClassPool):
    tasks = sample_tasks(pool, 6000, n_way=(2, 4), n_shot=(3, 5))
    for values, low in ((tasks.n_way, 2), (tasks.n_shot, 3)):
        share = np.bincount(values - low, minlength=3) / 6000
        np.testing.assert_allclose(share, 1 / 3, atol=0.03)


def test_classes_are_drawn_evenly_and_only_from_the_split(pool: ClassPool):
    tasks = sample_tasks(pool, 8000, n_way=3, n_shot=1, split="val+test")
    seen = np.bincount(tasks.classes.ravel(), minlength=24)
    assert (seen[:12] == 0).all()
    np.testing.assert_allclose(seen[12:] / 24_000, 1 / 12, atol=0.01)


def test_within_group_keeps_to_one_group_and_each_group_is_as_likely(pool: ClassPool):
    tasks = sample_tasks(pool, 3000, n_way=(2, 5), n_shot=1, within_group=True)
    groups = np.asarray(pool.groups)
    assert all(len({groups[c] for c in task}) == 1 for task in sets(tasks))
    two_way = tasks[tasks.n_way == 2]
    first = groups[two_way.classes[:, 0]]
    for name in ("large", "middle", "small"):
        assert abs((first == name).mean() - 1 / 3) < 0.07
    five_way = tasks[tasks.n_way == 5]  # the small group has no five classes
    assert set(groups[five_way.classes[:, 0]]) == {"large", "middle"}


@pytest.mark.parametrize("n_tasks", [1, 100, 219, 220])
def test_unique_tasks_are_unique_up_to_the_very_last(pool: ClassPool, n_tasks: int):
    tasks = sample_tasks(pool, n_tasks, n_way=3, n_shot=1, split="train", unique=True)
    assert len(set(sets(tasks))) == len(tasks) == n_tasks


def test_unique_tasks_with_groups_and_ranges_use_up_small_groups(pool: ClassPool):
    kind = {"n_way": (2, 3), "n_shot": 1, "within_group": True, "unique": True}
    possible = 66 + 220 + 28 + 56 + 6 + 4
    tasks = sample_tasks(pool, possible, **kind)
    assert len(set(sets(tasks))) == possible
    with pytest.raises(DataError, match=r"n_tasks=381 .* only 380 .* unique=False"):
        sample_tasks(pool, possible + 1, **kind)


def test_unique_works_for_many_classes_per_task():
    pool = ClassPool.from_arrays(np.zeros((400, 1)), np.repeat(np.arange(40), 10))
    tasks = sample_tasks(pool, 500, n_way=(15, 20), n_shot=1, unique=True)
    assert len(set(sets(tasks))) == 500


def test_enumeration_lists_every_combination_once_in_order(pool: ClassPool):
    every = sample_tasks(pool, "all", n_way=3, n_shot=1, split="test", stream=True)
    wanted = [list(c) for c in itertools.combinations(range(16, 24), 3)]
    assert len(every) == 56
    assert every.collect().classes.tolist() == wanted
    assert every[10:20].classes.tolist() == wanted[10:20]
    np.testing.assert_array_equal(every[10:20].keys, every.collect().keys[10:20])


def test_fifteen_thousand_tasks_of_five_from_twenty():
    pool = ClassPool.from_arrays(np.zeros((20, 1)), np.arange(20))
    every = sample_tasks(pool, "all", n_way=5, n_shot=1, stream=True)
    assert len(every) == 15_504
    assert every.collect().classes.tolist() == [
        list(c) for c in itertools.combinations(range(20), 5)
    ]


def test_enumeration_within_groups_goes_group_by_group(pool: ClassPool):
    every = sample_tasks(pool, "all", n_way=4, n_shot=1, within_group=True, stream=True)
    blocks = (range(12), range(12, 20), range(20, 24))
    wanted = [list(c) for b in blocks for c in itertools.combinations(b, 4)]
    assert every.collect().classes.tolist() == wanted


def test_a_slice_deep_inside_a_huge_enumeration_is_immediate():
    pool = ClassPool.from_arrays(np.zeros((964, 1)), np.arange(964))
    every = sample_tasks(pool, "all", n_way=5, n_shot=1, stream=True)
    assert len(every) == 6_865_809_792_192
    last = every[len(every) - 2 : len(every)]
    assert last.classes.tolist() == [[958, 960, 961, 962, 963], [959, 960, 961, 962, 963]]


def test_an_endless_stream_holds_no_more_than_a_chunk(pool: ClassPool):
    stream = sample_tasks(pool, n_way=3, n_shot=2, chunk_size=16, stream=True)
    chunks = list(itertools.islice(stream, 5))
    assert [len(c) for c in chunks] == [16] * 5
    assert repr(stream) == "TaskStream(endless over 'arrays')"
    with pytest.raises(TypeError, match="has no length"):
        len(stream)
    far = stream[1_000_000:1_000_002]
    assert len(far) == 2


def test_two_million_tasks_fit_in_tens_of_megabytes():
    pool = ClassPool.from_arrays(np.zeros((80, 1)), np.arange(80))
    tasks = sample_tasks(pool, 200_000, n_way=5, n_shot=1)
    assert sum(a.nbytes for a in (tasks.classes, tasks.keys, tasks.n_shot)) * 10 < 50e6


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"n_way": 1}, "n_way=1 must be at least 2, and a range must ascend."),
        ({"n_way": (5, 3)}, "n_way=(5, 3) must be at least 2, and a range must ascend."),
        (
            {"n_way": 9, "split": "test"},
            "n_way=9 needs 9 classes; split 'test' of 'arrays' has 8. Lower n_way.",
        ),
        ({"n_way": 30}, "n_way=30 needs 30 classes; pool of 'arrays' has 24. Lower n_way."),
        (
            {"n_way": 13, "within_group": True},
            "n_way=13 needs 13 classes; the largest group of 'arrays' has 12. Lower n_way.",
        ),
        ({"n_shot": 0}, "n_shot=0 must be at least 1, and a range must ascend."),
        ({"n_shot": "every"}, "n_shot='every': use a number, a range (low, high), or 'all'."),
        ({"n_query": -1}, "n_query=-1 must be at least 0."),
        ({"seed": -1}, "seed=-1 must be at least 0."),
        ({"n_tasks": 0}, "n_tasks=0 must be at least 1."),
        (
            {"n_shot": 5, "n_query": 17, "split": "val"},
            "n_shot=5 + n_query=17 needs 22 samples per class; '12' has 20, '13' has 21. "
            "Lower the numbers or drop these classes.",
        ),
        (
            {"n_shot": "all", "n_query": 20, "split": "val"},
            "n_shot='all' + n_query=20 needs 21 samples per class; '12' has 20. "
            "Lower the numbers or drop these classes.",
        ),
        ({"split": "tset"}, None),
    ],
)
def test_impossible_wishes_are_named_before_any_work(pool: ClassPool, wish, message):
    wish = {"n_tasks": 5, "n_way": 3} | wish
    pattern = ".*is not a split.*" if message is None else f"^{re.escape(message)}$"
    with pytest.raises(DataError, match=pattern):
        sample_tasks(pool, **wish)


def test_too_many_combinations_to_number_is_said():
    pool = ClassPool.from_arrays(np.zeros((2000, 1)), np.arange(2000))
    with pytest.raises(DataError, match="too many to number; give a number of tasks"):
        sample_tasks(pool, "all", n_way=10, n_shot=1, stream=True)
    with pytest.raises(DataError, match=r"^chunk_size=0 must be at least 1\.$"):
        sample_tasks(pool, n_shot=1, chunk_size=0, stream=True)
    with pytest.raises(DataError, match="plain ascending bounds"):
        sample_tasks(pool, 100, n_shot=1, stream=True)[10:2]


# -- weights of groups --------------------------------------------------------------------------


def joined_groups() -> ClassPool:
    """Source a with groups of 4, 8 and 2 classes, source b with one of 10."""
    one = ClassPool.from_arrays(
        np.zeros((28, 2)), np.repeat(np.arange(14), 2), groups=["x"] * 4 + ["y"] * 8 + ["z"] * 2
    )
    other = ClassPool.from_arrays(np.zeros((20, 2)), np.repeat(np.arange(100, 110), 2))
    return join_pools({"a": one, "b": other})


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        ("groups", {"a/x": 1 / 3, "a/y": 1 / 3, "b": 1 / 3}),
        ("classes", {"a/x": 4 / 22, "a/y": 8 / 22, "b": 10 / 22}),
        ("sources", {"a/x": 1 / 4, "a/y": 1 / 4, "b": 1 / 2}),
        ({"a/x": 3.0, "b": 1.0}, {"a/x": 3 / 4, "b": 1 / 4}),
    ],
)
def test_groups_are_drawn_by_their_weights(weights, shares):
    pool = joined_groups()
    tasks = sample_tasks(pool, 6000, n_way=3, n_shot=1, within_group=True, group_weights=weights)
    groups = np.asarray(pool.groups)[tasks.classes]
    assert (groups == groups[:, :1]).all()
    drawn = {g: float((groups[:, 0] == g).mean()) for g in np.unique(groups)}
    assert drawn == pytest.approx(shares, abs=0.03)


def test_a_weighted_group_is_used_where_it_has_enough_classes():
    pool = joined_groups()
    tasks = sample_tasks(
        pool, 500, n_way=(2, 9), n_shot=1, within_group=True, group_weights="sources"
    )
    groups = np.asarray(pool.groups)[tasks.classes[:, 0]]
    assert set(groups[tasks.n_way > 8]) == {"b"}
    assert set(groups) == {"a/x", "a/y", "a/z", "b"}
    stream = sample_tasks(pool, 500, n_way=(2, 9), n_shot=1, within_group=True,
                          group_weights="sources", stream=True)  # fmt: skip
    assert np.array_equal(stream.collect().classes, tasks.classes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"group_weights": "size"},
            "group_weights='size' is not known; use 'groups', 'classes' or 'sources'",
        ),
        (
            {"group_weights": "classes", "within_group": False},
            "group_weights is for within_group=True",
        ),
        (
            {"group_weights": {"c": 1.0}},
            "no group 'c'; it has groups such as 'a/x'",
        ),
        (
            {"group_weights": {"b": -1.0}},
            r"group_weights\['b'\]=-1\.0 must be a finite number of at least 0",
        ),
        (
            {"group_weights": {"a/z": 1.0}},
            "the 3 classes that n_way=3 needs. Lower n_way",
        ),
    ],
)
def test_weights_that_make_no_sense_are_refused(options, message):
    with pytest.raises(DataError, match=message):
        sample_tasks(
            joined_groups(), 5, **{"n_way": 3, "n_shot": 1, "within_group": True} | options
        )


def test_weights_by_source_need_a_joined_pool():
    pool = ClassPool.from_arrays(np.zeros((8, 2)), np.repeat(np.arange(4), 2), groups=["x"] * 4)
    with pytest.raises(DataError, match="pool 'arrays' is from one source"):
        sample_tasks(pool, 5, n_way=3, n_shot=1, within_group=True, group_weights="sources")


def test_unique_tasks_leave_a_used_up_group_however_heavy_it_is():
    names = ["a", "a", *["b"] * 12_000]  # too many pairs to be listed
    many = ClassPool.from_arrays(np.zeros((len(names), 1)), np.arange(len(names)), groups=names)
    options = {"n_way": 2, "n_shot": 1, "within_group": True, "unique": True}
    options["group_weights"] = {"a": 1.0, "b": 1e-12}
    tasks = sample_tasks(many, 5000, **options)
    assert len(set(map(tuple, np.sort(tasks.classes, axis=1).tolist()))) == 5000
    fewer = sample_tasks(many, 300, **options)
    np.testing.assert_array_equal(fewer.classes, tasks.classes[:300])
