"""A fit on several devices and in several processes learns what it learns on one."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mesh_cases
from fit_cases import arrays_of, blobs, small_model, small_tasks
from mesh_cases import PAPER, learned, trained
from taskscape import DataError, TaskThemes, join_processes
from taskscape.storage import load_checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::taskscape.HealthWarning")]
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


def test_trials_spread_over_devices_learn_the_same(eight: Path) -> None:
    with np.load(eight / "trained.npz") as theirs:
        for name, value in trained().items():
            np.testing.assert_allclose(theirs[name], value, rtol=1e-4, atol=1e-5)


def test_a_checkpoint_of_eight_devices_opens_on_one(eight: Path) -> None:
    checkpoint = eight / "fit.checkpoint"
    histories = load_checkpoint(checkpoint)[1]["histories"]
    assert [info["t"] for info in histories[0]] == [1, 2, 3]
    whole = small_model(**PAPER).fit(small_tasks())
    resumed = small_model(**PAPER).fit(small_tasks(), checkpoint=checkpoint, resume=True)
    assert len(resumed.fit_info_) == len(whole.fit_info_)
    for ours, theirs in zip(arrays_of(whole), arrays_of(resumed), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_learn_the_same_as_one(tmp_path: Path, processes: int) -> None:
    classes = blobs()
    X, y = np.concatenate(list(classes.values())), np.repeat(list(classes), 12)
    np.savez(tmp_path / "data.npz", features=X, label=y)
    fit = [
        sys.executable, "-m", "taskscape", "fit", str(tmp_path / "data.npz"), "--n-tasks", "40",
        "--n-way", "3", "--n-shot", "5", "--task-themes", "2", "--image-themes", "4", "--prepare",
        "none", "--update", "paper", "--max-passes", "1", "--out",
    ]  # fmt: skip
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    together = [
        [*fit, str(tmp_path / "together"), "--coordinator", coordinator, "--processes",
         str(processes), "--process", str(i)]
        for i in range(processes)
    ]  # fmt: skip
    children = [
        subprocess.Popen(words, env=devices(1), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for words in ([*fit, str(tmp_path / "alone")], *together)
    ]
    said = [child.communicate(timeout=600)[0].decode() for child in children]
    assert [child.returncode for child in children] == [0] * (processes + 1), said
    assert "learned from" in said[1]
    assert all("learned from" not in words for words in said[2:])
    alone, of_all = (TaskThemes.load(tmp_path / name) for name in ("alone", "together"))
    for ours, theirs in zip(arrays_of(alone), arrays_of(of_all), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=2e-3, atol=2e-3)


def test_processes_are_named_whole_or_not_at_all() -> None:
    with pytest.raises(DataError, match="name all three"):
        join_processes("localhost:1234", 2)
    with pytest.raises(DataError, match="must be HOST:PORT"):
        join_processes("localhost", 2, 0)
    with pytest.raises(DataError, match="count them from 0 to 1"):
        join_processes("localhost:1234", 2, 2)
