"""Arguments of the wrong kind get the usual message, and sizes are refused before work begins."""

import re
import warnings

import numpy as np
import pytest

from taskscape import (
    ClassPool,
    Embeddings,
    TaskThemes,
    arguments,
    distances,
    make_tasks,
    sample_tasks,
    select,
)
from taskscape.arguments import (
    as_numbers,
    check_choice,
    check_flag,
    check_kind,
    check_memory,
    check_number,
    check_whole,
)
from taskscape.cli import in_words, plain_warnings
from taskscape.devices import free_memory
from taskscape.errors import DataError
from taskscape.meta import TrainConfig, evaluate, make_learner, mlp, train
from taskscape.report import write_report
from taskscape.study import config_from, run_study
from taskscape.themes import embed_into


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: check_whole(2.5, "k"), "k=2.5 must be a whole number."),
        (lambda: check_whole(True, "k"), "k=True must be a whole number."),
        (lambda: check_whole(0, "k", 1), "k=0 must be at least 1."),
        (lambda: check_whole(10**9, "k", 1, 1000), "k=1,000,000,000 must be at most 1,000."),
        (lambda: check_number("1", "tol"), "tol='1' must be a finite number."),
        (lambda: check_number(np.nan, "tol", 0), "tol=nan must be a finite number of at least 0."),
        (lambda: check_number(0, "tol", 0, open_="low"), "tol=0 must be a finite number above 0."),
        (lambda: check_number(2, "q", 0, 1), "q=2 must be a number of at least 0 and at most 1."),
        (lambda: check_flag(1, "unique"), "unique=1 must be True or False."),
        (lambda: check_choice([], "bins", ("a", "b")), "bins=[] is not known; use 'a' or 'b'."),
        (lambda: check_kind(3, dict, "x", "Do so."), "x must be a dict, not int. Do so."),
        (
            lambda: check_kind(3, dict | set, "x", "Do so."),
            "x must be a dict or set, not int. Do so.",
        ),
    ],
)
def test_messages(check, message):
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        check()


def test_what_is_right_comes_back_plain():
    assert check_whole(np.int32(3), "k", 1, 3) == 3
    assert check_number(np.float32(0.5), "q", 0, 1) == 0.5
    assert check_flag(np.bool_(True), "unique") is True
    assert as_numbers([[1, 2]]).tolist() == [[1.0, 2.0]]
    for wrong in ("x", [[1], [1, 2]], None, np.array(["1"]), np.datetime64("2020")):
        assert as_numbers(wrong).size == 0 or np.isnan(as_numbers(wrong)).all()


def test_numbers_of_numpy_become_pythons_before_anything_is_done_with_them(tmp_path):
    pool = ClassPool.from_arrays(np.eye(60, dtype=np.float32), np.arange(60) % 2)
    one, four, many = np.int64(1), np.int64(4), np.int8(100)
    tasks = sample_tasks(pool, four, n_way=(np.int8(2), 2), n_shot=one, n_query=four)
    tasks.save(tmp_path / "tasks.parquet")
    assert type(tasks.with_samples(one, four).n_query) is int
    for ask in (
        lambda: sample_tasks(pool, 1, n_way=2, n_shot=many, n_query=many),
        lambda: make_tasks(pool, [[0, 1]], n_shot=many, n_query=many),
    ):
        with pytest.raises(DataError, match=r"n_shot=100 \+ n_query=100 needs 200 samples"):
            ask()
    lam = np.float32([[1, 2], [2, 1], [3, 1], [1, 3]])
    half, options = np.float32(0.5), {"max_shared": one, "train_classes": tasks}
    Embeddings.of(tasks, lam, delta=half).save(tmp_path / "embedded.parquet")
    select(lam[:1], lam, one, **options).save(tmp_path / "selection.json")
    assert repr(TrainConfig(batch_size=four, clip_norm=half)) == repr(
        TrainConfig(batch_size=4, clip_norm=0.5)
    )
    assert config_from({"tasks": {"n_way": four}}).tasks.n_way == 4
    assert type(TaskThemes(image_themes=four).image_themes) is int


@pytest.mark.parametrize("wrong", [None, "x", np.ones((4, 3)), [1]])
def test_an_object_of_a_wrong_kind_gets_one_message(wrong, tmp_path):
    pool = ClassPool.from_arrays(np.eye(6, dtype=np.float32), np.arange(6) % 3)
    tasks, maml = sample_tasks(pool, 3, n_way=2, n_shot=1), make_learner("maml")
    for ask, name, kind in (
        (lambda: train(maml, mlp(6, (4,)), wrong), "tasks", "TaskSet or TaskStream"),
        (lambda: train(maml, wrong, tasks), "network", "Architecture"),
        (lambda: evaluate(maml, {}, wrong), "tasks", "TaskSet"),
        (lambda: run_study(pool, wrong, tmp_path / "o"), "config", "StudyConfig"),
        (lambda: write_report(wrong, tmp_path / "r.html"), "result", "StudyResult"),
        (lambda: embed_into(tmp_path / "c", wrong, tasks), "model", "TaskModel"),
    ):
        said = f"{name} must be a {kind}, not {type(wrong).__name__}."
        with pytest.raises(DataError, match=f"^{re.escape(said)}"):
            ask()
    with pytest.raises(
        DataError, match=r"^pool must be a ClassPool, not .* Open one with load_pool"
    ):
        sample_tasks(wrong, 3)


def test_tasks_that_are_not_embedded_have_no_distances_pair_by_pair():
    pool = ClassPool.from_arrays(np.eye(6, dtype=np.float32), np.arange(6) % 3)
    tasks = sample_tasks(pool, 3, n_way=2, n_shot=1)
    with pytest.raises(DataError, match=r"^test "):
        distances(tasks, np.ones((3, 2)), paired=True)


def test_what_does_not_fit_into_memory_is_refused_with_its_size(monkeypatch):
    free = free_memory()
    assert free is None or free > 0
    monkeypatch.setattr(arguments, "free_memory", lambda: 1 << 30)
    check_memory(1 << 29, "this", "Less.")
    message = "this would take about 2.0 GiB of memory; 1.0 GiB are free. Less."
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        check_memory(1 << 31, "this", "Less.")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device"), "no space left on device. Free some space, or "),
        (OSError(13, "Permission denied", "a"), "a: permission denied. Choose another place, or "),
        (OSError(36, "File name too long", "aaa"), "aaa: file name too long."),
        (MemoryError(), "there is not enough memory for this. Ask for fewer"),
        (RuntimeError("Unable to initialize backend 'x'"), "Unable to initialize backend 'x'. JAX"),
    ],
)
def test_what_the_system_refuses_is_one_line(error, words):
    said = in_words(error)
    assert said is not None
    assert said.startswith(words)
    assert "\n" not in said


def test_warnings_at_the_command_line_do_not_name_the_program(capsys):
    def warn() -> None:
        with plain_warnings():
            warnings.simplefilter("always")
            warnings.warn("10 of 10 tasks are odd.", UserWarning, stacklevel=1)
            warnings.warn("of a library", DeprecationWarning, stacklevel=1)

    with pytest.warns(DeprecationWarning, match="of a library"):
        warn()
    assert capsys.readouterr().err == "warning: 10 of 10 tasks are odd.\n"


def test_what_must_not_happen_stays_a_traceback():
    assert in_words(KeyError("x")) is None
    assert in_words(RuntimeError("x")) is None
    assert in_words(ImportError("x")) is None
