"""Manifests: tasks on disk, bound to their pool."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet, make_tasks, sample_tasks
from taskscape.tasks.manifest import to_table


def pool(n: int = 8) -> ClassPool:
    return ClassPool.from_arrays(
        np.arange(n * 10, dtype=np.float32)[:, None], np.repeat(np.arange(n), 10)
    )


def same(a: TaskSet, b: TaskSet) -> bool:
    x, y = a.pool_rows(slice(None)), b.pool_rows(slice(None))
    return all(np.array_equal(getattr(x, f), getattr(y, f)) for f in vars(x))


@pytest.mark.parametrize(
    "tasks",
    [
        sample_tasks(pool(), 50, n_way=(2, 5), n_shot=(1, 3), n_query=2, seed=3),
        sample_tasks(pool(), 5, n_way=4, n_shot="all"),
        make_tasks(pool(), [[0, 1, 2], [3, 4]], support=[[[0, 1]] * 3, [[2, 3]] * 2 + [[-1, -1]]]),
        make_tasks(pool(), [[0, 1]], support=[[[0], [1]]], query=[[[2], [3]]]),
    ],
)
def test_tasks_come_back_the_same(tasks: TaskSet, tmp_path: Path):
    tasks.save(tmp_path / "deep" / "tasks.parquet")
    back = TaskSet.load(tmp_path / "deep" / "tasks.parquet", tasks.pool)
    assert same(tasks, back)
    assert back.n_query == tasks.n_query
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["tasks.parquet"]


def test_some_of_the_tasks_keep_their_samples(tmp_path: Path):
    tasks = sample_tasks(pool(), 50, n_way=3, n_shot=2)
    tasks[[40, 7]].save(tmp_path / "some.parquet")
    assert same(TaskSet.load(tmp_path / "some.parquet", tasks.pool), tasks[[40, 7]])


def test_the_wrong_pool_is_refused(tmp_path: Path):
    mine, other = pool(), pool(9)
    sample_tasks(mine, 5, n_way=3, n_shot=2).save(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"pool 'arrays' of 8 classes .* 9 classes"):
        TaskSet.load(tmp_path / "t.parquet", other)


def test_other_files_are_refused(tmp_path: Path):
    (tmp_path / "text").write_text("no parquet")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "table.parquet")
    for name, message in [
        ("text", f"{tmp_path / 'text'} is not a readable Parquet file: "),
        ("table.parquet", f"{tmp_path / 'table.parquet'} is not a list of tasks written by"),
        ("none", f"no such file: {tmp_path / 'none'}."),
    ]:
        with pytest.raises(DataError, match=f"^{re.escape(message)}"):
            TaskSet.load(tmp_path / name, pool())


def test_a_failed_write_leaves_the_file_that_was_there(tmp_path: Path, monkeypatch):
    tasks = sample_tasks(pool(), 5, n_way=3, n_shot=2)
    path = tmp_path / "t.parquet"
    tasks.save(path)
    before = path.read_bytes()

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", fail)
    with pytest.raises(OSError, match="disk full"):
        tasks[:2].save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]


DRAWN = sample_tasks(pool(), 4, n_way=(2, 3), n_shot=(1, 3), n_query=2, seed=3)


def test_a_table_without_its_checksum_is_refused(tmp_path: Path):
    pq.write_table(to_table(DRAWN), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="is not a list of tasks written by taskscape"):
        TaskSet.load(tmp_path / "t.parquet", DRAWN.pool)


def test_no_tasks_come_back_as_none(tmp_path: Path):
    DRAWN[:0].save(tmp_path / "t.parquet")
    assert len(TaskSet.load(tmp_path / "t.parquet", DRAWN.pool)) == 0
