"""Tasks that a user lists: ragged, by names of samples, with shots of their own, from CSV."""

import re
from pathlib import Path

import numpy as np
import pytest

from taskscape import TaskSet, load_pool, make_tasks
from taskscape.errors import DataError
from taskscape.pools import ClassPool


@pytest.fixture(scope="module")
def pool() -> ClassPool:
    """Four classes of five samples; the sample n of class c is called c/n.png."""
    X = np.arange(20.0).reshape(20, 1)
    names = [f"{'abcd'[i // 5]}/{i % 5}.png" for i in range(20)]
    return load_pool((X, ["abcd"[i // 5] for i in range(20)]), sample_names=names, name="own")


def test_lists_of_any_length_by_number_or_name(pool: ClassPool, tmp_path: Path) -> None:
    tasks = make_tasks(
        pool,
        [["a", "b"], ["d", "c", "a"]],
        support=[[[0, 2], ["4.png"]], [["d/1.png"], ("0.png", 3), np.array([4])]],
        query=[[[1], []], [[0], [1, 2], []]],
    )
    np.testing.assert_array_equal(
        tasks.support,
        [[[0, 2], [4, -1], [-1, -1]], [[1, -1], [0, 3], [4, -1]]],
    )
    assert (tasks.n_shot.tolist(), tasks.n_query) == ([2, 2], 2)
    assert tasks.pool_rows(slice(None)).query_mask.sum(axis=(1, 2)).tolist() == [1, 3]
    tasks.save(tmp_path / "t.parquet")
    np.testing.assert_array_equal(TaskSet.load(tmp_path / "t.parquet", pool).support, tasks.support)


def test_shots_of_each_task(pool: ClassPool) -> None:
    tasks = make_tasks(pool, [["a", "b"], ["c", "d"]], n_shot=[1, 3], n_query=2)
    assert tasks.pool_rows(slice(None)).support_mask.sum(axis=2).tolist() == [[1, 1], [3, 3]]
    for shots, message in (
        ([1], "a whole number from 1 up for each of the 2 tasks"),
        ([1, 0], "a whole number from 1 up"),
        (np.ma.masked_equal([1, 3], 3), "an array has 1 masked values"),
        ([1, 5], "needs 7 samples per class; 'c' has 5"),
    ):
        with pytest.raises(DataError, match=message):
            make_tasks(pool, [["a", "b"], ["c", "d"]], n_shot=shots, n_query=2)


@pytest.mark.parametrize(
    ("support", "query", "message"),
    [
        ([[[0, 0], [1]]], None, "task 0 lists sample 0 ('a/0.png') of class 'a' twice; each"),
        ([[["1.png", 1], [1]]], None, "task 0 lists sample 1 ('a/1.png') of class 'a' twice"),
        ([[[0], [1]]], [[[0], [2]]], "task 0 lists sample 0 ('a/0.png') of class 'a' twice"),
        ([[["0.png"], ["9.png"]]], None, "support[0][1]: '9.png' is not a sample of class 'b'; it "
            "has 5, such as 'b/0.png', 'b/1.png', 'b/2.png'."),
        ([[["0.png"]]], None, "support[0] is [['0.png']]; give a list of samples for each class "
            "of the task: 'a', 'b'."),
        ([[["0.png"], "1.png"]], None, "'1.png']; give a list of samples for each class of the "
            "task: 'a', 'b'."),
        ([[[0.5], [1]]], None, "support[0][0]: sample=0.5 must be a whole number."),
        ([[[0], []]], None, "support leaves class 'b' of task 0 without samples."),
        ([[[0], [1]], [[0], [1, 2]]], None, "lists no samples for 1 tasks; give, for each task"),
    ],
)  # fmt: skip
def test_lists_that_cannot_be_meant(
    pool: ClassPool, support: list, query: list | None, message: str
) -> None:
    with pytest.raises(DataError) as raised:
        make_tasks(pool, [["a", "b"]], support=support, query=query)
    assert message in str(raised.value)


def test_names_need_a_pool_that_has_them() -> None:
    pool = load_pool({"a": [[0.0], [1.0]], "b": [[2.0], [3.0]]})
    with pytest.raises(DataError, match="samples of pool 'arrays' have no names; give their num"):
        make_tasks(pool, [["a", "b"]], support=[[["x"], ["y"]]])


def test_lists_in_csv_files(pool: ClassPool, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "task,class,sample,role\n"
        "first,a,0.png,support\nfirst,b,1.png,support\nfirst,a,a/2.png,support\n"
        "first,b,3.png,query\nsecond,c,0.png,support\nsecond,d,4.png,support\n"
    )
    tasks = TaskSet.load(path, pool)
    assert [tasks.names(0), tasks.names(1)] == [("a", "b"), ("c", "d")]
    np.testing.assert_array_equal(tasks.support, [[[0, 2], [1, -1]], [[0, -1], [4, -1]]])
    assert tasks.query is not None
    path.write_text("task,class\n7,a\n7,b\n3,c\n3,d\n")
    assert TaskSet.load(path, pool).takes_everything
    path.write_text("task,class,n_shot\n7,a,2\n7,b,2\n3,c,4\n3,d,4\n")
    assert TaskSet.load(path, pool).n_shot.tolist() == [2, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "mine.csv is empty or names no columns; expected the columns task and class"),
        ("task,klass\n0,a\n", "has no column 'class', but task, klass; expected"),
        ("task,class\n", "has no rows below its header"),
        ("task,class\n0\n", "line 2: 1 values for 2 columns"),
        ("task,class\n0,a\n0,a\n", "line 3: task '0' has the class before"),
        ("task,class\n0,a\n0,z\n", "no class 'z' in pool 'own'"),
        ("task,class,sample,role\n0,a,0.png,test\n", "line 2: role 'test'; use support or query"),
        ("task,class,sample\n0,a,0.png\n0,a,0.png\n0,b,1.png\n", "'a/0.png') of class 'a' twice"),
        ("task,class,n_shot\n0,a,two\n0,b,two\n", "n_shot must be a whole number in every row"),
        ("task,class,n_shot\n0,a,2\n0,b,3\n", "line 3: task '0' has n_shot 2 before"),
    ],
)
def test_csv_files_that_are_no_tasks(
    pool: ClassPool, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(DataError) as raised:
        TaskSet.load(path, pool)
    assert message in str(raised.value)
    assert str(path) in str(raised.value)


def test_the_page_on_own_tasks_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "own-tasks.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(re.findall(r"```python\n(.*?)```", page, re.S)[0], names)
    (tmp_path / "mine.csv").write_text(
        next(b for b in page.split("```") if b.startswith("\ntask,"))
    )
    listed = TaskSet.load(tmp_path / "mine.csv", names["pool"])
    assert [listed.names(0), listed.names(1)] == [("cat", "dog"), ("cow", "hen")]
