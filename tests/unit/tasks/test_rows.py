"""Rows of the user's own data, of tasks over a pool that has them in another order."""

from pathlib import Path

import numpy as np
import pytest

from taskscape import TaskSet, load_pool, make_tasks, sample_tasks
from taskscape.errors import DataError
from taskscape.pools import ClassPool

RNG = np.random.default_rng(0)
Y = RNG.permutation(np.repeat(np.arange(8), 15))
X = np.arange(len(Y), dtype=np.float32)[:, None]


@pytest.fixture
def pool() -> ClassPool:
    return load_pool((X, Y))


def test_rows_pick_the_samples_of_the_task_from_shuffled_data(pool: ClassPool):
    tasks = sample_tasks(pool, 20, n_way=(2, 5), n_shot=(1, 4), n_query=3, seed=0)
    (episodes,) = tasks.episodes()
    for i in range(len(tasks)):
        rows, (labels, asked) = tasks.rows(i), tasks.episode_labels(i)
        np.testing.assert_array_equal(Y[rows], tasks.classes[i][np.concatenate([labels, asked])])
        support, query = np.split(X[rows], [len(labels)])
        np.testing.assert_array_equal(support, episodes.support[i][episodes.support_mask[i]])
        np.testing.assert_array_equal(query, episodes.query[i][episodes.query_mask[i]])


def test_without_a_task_every_row_is_given_once(pool: ClassPool):
    tasks = sample_tasks(pool, 20, n_way=3, n_shot=2, n_query=1)
    each = np.concatenate([tasks.rows(i) for i in range(20)])
    np.testing.assert_array_equal(tasks.rows(), np.unique(each))
    assert len(tasks[:0].rows()) == 0


def test_labels_are_shared_only_by_tasks_of_one_shape(pool: ClassPool):
    labels, asked = sample_tasks(pool, 5, n_way=3, n_shot=2, n_query=1).episode_labels()
    assert labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert asked.tolist() == [0, 1, 2]
    uneven = make_tasks(pool, [[0, 1], [2, 3, 4]], n_shot=1)
    with pytest.raises(DataError, match=r"episode_labels\(0\)"):
        uneven.episode_labels()
    assert uneven.episode_labels(1)[0].tolist() == [0, 1, 2]


def test_a_sampler_goes_through_the_tasks(pool: ClassPool):
    tasks = sample_tasks(pool, 6, n_way=3, n_shot=2, n_query=1)
    each = [tasks.rows(i).tolist() for i in range(6)]
    assert list(tasks.batch_sampler()) == each
    shuffled = tasks.batch_sampler(repeat=3, seed=0)
    passes = list(shuffled)
    assert len(shuffled) == len(passes) == 18
    assert passes == list(shuffled)  # the same each time
    assert all(sorted(passes[i : i + 6]) == sorted(each) for i in (0, 6, 12))
    assert passes[:6] != passes[6:12]


def test_a_sampler_can_draw_other_samples_of_the_same_classes(pool: ClassPool):
    tasks = sample_tasks(pool, 4, n_way=3, n_shot=2, n_query=1)
    twice = list(tasks.batch_sampler(repeat=2, fresh_samples=True))
    assert twice[:4] == list(tasks.batch_sampler())
    assert twice[4:] == [tasks.redrawn(1).rows(i).tolist() for i in range(4)]
    assert all(one != other for one, other in zip(twice[:4], twice[4:], strict=True))
    np.testing.assert_array_equal(Y[twice[:4]], Y[twice[4:]])
    listed = make_tasks(pool, [[0, 1]], support=[[[0], [1]]])
    with pytest.raises(DataError, match="one by one"):
        listed.batch_sampler(repeat=2, fresh_samples=True)


def test_tasks_as_a_csv_have_rows_and_are_read_again(pool: ClassPool, tmp_path: Path):
    tasks = sample_tasks(pool, 7, n_way=(2, 4), n_shot=(1, 3), n_query=2)
    tasks.save(tmp_path / "tasks.csv")
    tasks.save(tmp_path / "tasks.csv")  # one of ours is replaced
    again = TaskSet.load(tmp_path / "tasks.csv", pool)
    assert all((again.rows(i) == tasks.rows(i)).all() for i in range(7))
    header, *lines = (tmp_path / "tasks.csv").read_text().splitlines()
    assert header == "task,class,sample,role,row"
    assert {line.split(",")[3] for line in lines} == {"support", "query"}
    for line in lines:
        assert pool.class_names[Y[int(line.split(",")[4])]] == line.split(",")[1]


def test_a_csv_names_samples_that_have_names(tmp_path: Path):
    pool = load_pool((X, Y), sample_names=[f"{y}/{i}.png" for i, y in enumerate(Y)])
    tasks = sample_tasks(pool, 3, n_way=2, n_shot=2)
    tasks.save(tmp_path / "tasks.csv")
    cells = (tmp_path / "tasks.csv").read_text().splitlines()[1].split(",")
    assert cells[2] == f"{cells[1]}/{cells[4]}.png"
    assert (TaskSet.load(tmp_path / "tasks.csv", pool).rows(2) == tasks.rows(2)).all()


def test_a_csv_of_another_kind_is_not_replaced(pool: ClassPool, tmp_path: Path):
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="mine"):
        sample_tasks(pool, 3, n_way=2, n_shot=2).save(tmp_path / "mine.csv")
