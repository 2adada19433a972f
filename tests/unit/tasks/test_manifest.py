"""Manifests: tasks on disk, bound to their pool."""

import json
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
    x, y = a.batch(slice(None)), b.batch(slice(None))
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
    with pytest.raises(DataError) as error:
        TaskSet.load(tmp_path / "t.parquet", other)
    assert str(error.value) == (
        f"{tmp_path / 't.parquet'} belongs to pool 'arrays' of 8 classes "
        f"(fingerprint {mine.fingerprint[:12]}…), not to ClassPool('arrays': 9 classes, 90 samples "
        f"of 1 features) (fingerprint {other.fingerprint[:12]}…). Open the pool that the tasks "
        "were made from, with the same split and options."
    )


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
LISTED = make_tasks(pool(), [[0, 1], [2, 3]], support=[[[0], [1]]] * 2, query=[[[2], [3]]] * 2)
CLASSES = pa.list_(pa.int32())


def _lists(*rows: list[int | None] | None, kind: pa.DataType = CLASSES) -> pa.Array:
    return pa.array(rows, kind)


@pytest.mark.parametrize(
    ("tasks", "changed", "message"),
    [
        (DRAWN, {"n_shot": pa.array([1, 2, 20, 1])}, "n_shot=20 + n_query=2 needs 22 samples"),
        (DRAWN, {"n_shot": pa.array([1, 2, 2**31 - 1, 1])}, "needs 2147483649 samples per class"),
        (DRAWN, {"n_shot": pa.array([1, 2, -1, 1])}, "n_shot=-1 must be at least 1"),
        (DRAWN, {"n_shot": pa.array([1, None, 1, 1])}, "n_shot has empty cells"),
        (DRAWN, {"n_shot": pa.array([1.5, 1, 1, 1])}, "truncated"),
        (DRAWN, {"n_shot": pa.array(["a"] * 4)}, "Failed to parse string: 'a'"),
        (DRAWN, {"n_query": 10**6}, "n_query=1000000 needs 1000003 samples per class"),
        (DRAWN, {"n_query": -1}, "n_query=-1 must be at least 0"),
        (DRAWN, {"n_query": 1.5}, "its header has n_query=1.5; expected int"),
        (DRAWN, {"fingerprint": None}, "its header has fingerprint=None; expected str"),
        (DRAWN, {"key": pa.array([1, 2, 3, None], pa.uint64())}, "key has empty cells"),
        (DRAWN, {"key": None}, "key"),
        (
            DRAWN,
            {"classes": _lists([0, 1], [2, 2], [3, 4], [5, 6])},
            "task 1 needs at least 2 different classes, has ['2', '2']",
        ),
        (
            DRAWN,
            {"classes": _lists([0, 1], [2], [3, 4], [5, 6])},
            "task 1 needs at least 2 different classes, has ['2']",
        ),
        (
            DRAWN,
            {"classes": _lists([0, 1], [2, 8], [3, 4], [5, 6])},
            "task 1: class ids run from 0 to 7, got [2, 8]",
        ),
        (
            DRAWN,
            {"classes": _lists([0, 1], [2, 65539], [3, 4], [5, 6])},
            "task 1: class ids run from 0 to 7, got [2, 65539]",
        ),
        (
            DRAWN,
            {"classes": _lists([0, 1], [2, -1, 3], [3, 4], [5, 6])},
            "task 1: class ids run from 0 to 7, got [2, -1, 3]",
        ),
        (
            DRAWN,
            {"classes": _lists([0, 1], [2, None], [3, 4], [5, 6])},
            "classes has empty cells",
        ),
        (DRAWN, {"classes": _lists([0, 1], None, [3, 4], [5, 6])}, "classes has empty cells"),
        (DRAWN, {"classes": _lists(*[list(range(8)) * 10**5] * 4)}, "has ['0', '1', '2', '3', '4"),
        (DRAWN, {"classes": pa.array([1, 2, 3, 4])}, "Unsupported cast"),
        (LISTED, {"support": None}, "it lists query samples without support samples"),
        (LISTED, {"n_query": 0}, "n_shot or n_query are not the numbers of samples"),
        (LISTED, {"n_shot": pa.array([1, 2])}, "n_shot or n_query are not the numbers of samples"),
        (LISTED, {"support": pa.array([[[0], [1]]] * 2)}, "expected lists of one size"),
        (
            LISTED,
            {"support": pa.array([[[0], [10]]] * 2, pa.list_(pa.list_(pa.int32(), 1), 2))},
            "support[0, 1, 0] = 10; the class has 10 samples",
        ),
        (
            LISTED,
            {"support": pa.array([[[0], [None]]] * 2, pa.list_(pa.list_(pa.int32(), 1), 2))},
            "support has empty cells",
        ),
        (
            LISTED,
            {"support": pa.array([[[0]]] * 2, pa.list_(pa.list_(pa.int32(), 1), 1))},
            "cannot reshape",
        ),
    ],
)
def test_a_changed_file_is_refused(
    tasks: TaskSet, changed: dict[str, object], message: str, tmp_path: Path
):
    table = to_table(tasks)
    header = json.loads(table.schema.metadata[b"taskscape"])
    for name, value in changed.items():
        if name in header:
            header[name] = value
        elif value is None:
            table = table.drop_columns([name])
        else:
            table = table.set_column(table.column_names.index(name), name, value)
    table = table.replace_schema_metadata({b"taskscape": json.dumps(header)})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match=re.escape(message)) as error:
        TaskSet.load(tmp_path / "t.parquet", tasks.pool)
    assert str(error.value).startswith(f"{tmp_path / 't.parquet'}")
    assert str(error.value).endswith("Write it again with save_tasks or `taskscape tasks`.")


def test_other_types_of_column_are_read(tmp_path: Path):
    table = to_table(DRAWN)
    wide = {
        "classes": table["classes"].cast(pa.large_list(pa.int64())),
        "key": table["key"],
        "n_shot": table["n_shot"].cast(pa.int64()),
    }
    pq.write_table(pa.table(wide).replace_schema_metadata(table.schema.metadata), tmp_path / "t")
    assert same(TaskSet.load(tmp_path / "t", DRAWN.pool), DRAWN)


def test_no_tasks_come_back_as_none(tmp_path: Path):
    DRAWN[:0].save(tmp_path / "t.parquet")
    assert len(TaskSet.load(tmp_path / "t.parquet", DRAWN.pool)) == 0
