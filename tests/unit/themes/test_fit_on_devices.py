"""A fit on several devices and in several processes learns what it learns on one."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import mesh_cases
from fit_cases import arrays_of, blobs, small_model, small_tasks
from mesh_cases import PAPER, learned
from taskscape import DataError, TaskThemes
from taskscape.distributed import join_processes
from taskscape.io.arrays import load_checkpoint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::taskscape.themes.HealthWarning"),
]
TESTS = Path(mesh_cases.__file__).parent


def devices(n: int) -> dict[str, str]:
    """An environment with so many simulated devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={n}"
    return os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": os.pathsep.join([*sys.path, str(TESTS)])}


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What 8 devices learned."""
    folder = tmp_path_factory.mktemp("eight")
    words = [sys.executable, str(TESTS / "mesh_cases.py"), str(folder)]
    subprocess.run(words, env=devices(8), check=True, timeout=600)
    return folder


@pytest.mark.parametrize("method", ["online", "batch"])
def test_eight_devices_learn_the_same_as_one(method: str, eight: Path) -> None:
    with np.load(eight / f"{method}.npz") as file:
        theirs = dict(file)
    assert theirs.pop("devices") == 8
    ours = learned(method)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_allclose(theirs[name], value, rtol=2e-3, atol=2e-3, err_msg=name)


def test_a_checkpoint_of_eight_devices_opens_on_one(eight: Path) -> None:
    checkpoint = eight / "fit.checkpoint"
    histories = load_checkpoint(checkpoint)[1]["histories"]
    assert [info["t"] for info in histories[0]] == [1, 2, 3]
    whole = small_model(**PAPER).fit(small_tasks())
    resumed = small_model(**PAPER).fit(small_tasks(), checkpoint=checkpoint, resume=True)
    assert len(resumed.fit_info_) == len(whole.fit_info_)
    for ours, theirs in zip(arrays_of(whole), arrays_of(resumed), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=2e-3, atol=2e-3)


DRAWN = ("--n-tasks", "40", "--n-way", "3", "--n-shot", "5")


def given(*settings: str) -> list[str]:
    return [word for one in settings for word in ("--set", one)]


def fit(
    folder: Path, *settings: str, moved: float = 0.0, tasks: tuple[str, ...] = DRAWN
) -> subprocess.Popen[bytes]:
    """A process that fits a model to data, of which one number may be another."""
    classes = blobs()
    X, y = np.concatenate(list(classes.values())), np.repeat(list(classes), 12)
    X[0, 0] += moved
    data = folder / f"data{moved:g}.npz"
    np.savez(data, features=X, label=y)
    words = [
        sys.executable, "-m", "taskscape", "fit", str(data), *tasks, "--paper",
        *given("task_themes=2", "image_themes=4", "prepare=none", "update=paper"), *settings,
    ]  # fmt: skip
    return subprocess.Popen(words, env=devices(1), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def joined(processes: int) -> list[list[str]]:
    """The settings of so many processes that share a fit."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    together = f"coordinator={coordinator}", f"processes={processes}"
    return [given(*together, f"process={i}") for i in range(processes)]


def ends(children: list[subprocess.Popen[bytes]]) -> list[str]:
    """What they say until they end; minutes pass where one waits for another that is gone."""
    return [child.communicate(timeout=240)[0].decode() for child in children]


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_learn_the_same_as_one(tmp_path: Path, processes: int) -> None:
    once, out = (*given("max_passes=1"), "--out"), str(tmp_path / "together")
    children = [
        fit(tmp_path, *once, str(tmp_path / "alone")),
        *(fit(tmp_path, *once, out, *settings) for settings in joined(processes)),
    ]
    said = [child.communicate(timeout=600)[0].decode() for child in children]
    assert [child.returncode for child in children] == [0] * (processes + 1), said
    assert "learned from" in said[1]
    assert all("learned from" not in words for words in said[2:])
    alone, of_all = (TaskThemes.load(tmp_path / name) for name in ("alone", "together"))
    for ours, theirs in zip(arrays_of(alone), arrays_of(of_all), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_one_process_ends_so_do_the_others(tmp_path: Path, number: signal.Signals) -> None:
    checkpoint = tmp_path / "model.checkpoint"
    endless = (*given("max_passes=1000000", "checkpoint_every=10"), "--out")
    children = [fit(tmp_path, *endless, str(tmp_path / "model"), *of) for of in joined(2)]
    deadline = time.monotonic() + 300
    while not checkpoint.exists() and children[0].poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    children[1].send_signal(number)
    said = ends(children)
    if number == signal.SIGKILL:
        assert children[0].returncode == 1
        assert "error: process 0 of 2 cannot continue: another one has ended" in said[0]
        assert "Traceback" not in said[0]
    else:
        assert [child.returncode for child in children] == [130, 128 + number]
        assert f"interrupted; the last state is in {checkpoint}." in said[0]
    assert load_checkpoint(checkpoint)[1]["histories"]


def test_processes_with_other_data_are_refused(tmp_path: Path) -> None:
    children = [
        fit(tmp_path, "--out", str(tmp_path / "model"), *settings, moved=i)
        for i, settings in enumerate(joined(2))
    ]
    for words in ends(children):
        assert "have different settings, data or tasks" in words or "cannot continue" in words
    assert [child.returncode for child in children] == [1, 1]


def test_a_process_that_fails_leaves_none_waiting(tmp_path: Path) -> None:
    first, second = joined(2)
    children = [
        fit(tmp_path, "--out", str(tmp_path / "model"), *first),
        fit(tmp_path, "--out", str(tmp_path / "model"), *second, tasks=("--tasks", "gone.parquet")),
    ]
    said = ends(children)
    assert "gone.parquet" in said[1]
    assert "error: process 0 of 2 cannot continue" in said[0]


def test_processes_are_named_whole_or_not_at_all() -> None:
    with pytest.raises(DataError, match="name all three"):
        join_processes("localhost:1234", 2)
    with pytest.raises(DataError, match="must be HOST:PORT"):
        join_processes("localhost", 2, 0)
    with pytest.raises(DataError, match="count them from 0 to 1"):
        join_processes("localhost:1234", 2, 2)
