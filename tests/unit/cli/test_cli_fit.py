"""The commands ``fit`` and ``embed``, and what Ctrl-C does."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from interrupt_cases import start_hearing
from taskscape import Embeddings, TaskThemes
from taskscape.cli import app
from taskscape.embeddings import Catalogue
from taskscape.errors import DataError

pytestmark = pytest.mark.slow
TASKS = ["--n-tasks", "300", "--n-way", "3-4", "--n-shot", "5"]
SMALL = [*TASKS, "--paper", "--set", "image_themes=3", "--set", "task_themes=2"]
SMALL += ["--set", "max_passes=2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 4)) * 4
    mixes = rng.dirichlet(np.full(3, 0.5), size=24)
    which = np.stack([rng.choice(3, 12, p=mix) for mix in mixes])
    path = tmp_path_factory.mktemp("data") / "own.npz"
    np.savez(
        path,
        X=(centres[which] + rng.normal(size=(24, 12, 4))).reshape(-1, 4),
        y=np.repeat(np.arange(24), 12),
        split=["train"] * 16 + ["test"] * 8,
    )
    return path


def run(*args: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    os.environ["TASKSCAPE_CACHE"] = str(folder.parent / "cache")
    output = json.loads(run("fit", data, "--split", "train", *SMALL, "--out", folder, "--json"))
    assert output["health"]["n_tasks"] > 0
    assert output["held_out"] == "tasks of the classes learned from (in-sample)"  # 16 of them
    assert output["health"]["tested_on"] == output["held_out"]
    assert not folder.with_name("model.checkpoint").exists()
    return folder


def test_a_fit_says_how_far_its_distances_can_be_trusted(data: Path, tmp_path: Path):
    words = run("fit", data, "--split", "train", *TASKS, "--out", tmp_path / "m")
    assert words.startswith("prepared by: centring\nlearned: 9 image-themes, ")
    assert "tasks of the same classes find each other in" in words
    again = ["fit", data, "--split", "train", *TASKS, "--out", tmp_path / "m", "--json"]
    output = json.loads(run(*again))
    assert output["retrieval"]["measure"]["measure"] == "TaskThemes"
    wish = ["--split", "test", "--n-tasks", 40, "--n-way", 3, "--n-shot", 5]
    run("embed", tmp_path / "m", data, *wish, "--out", tmp_path / "test.parquet")
    run("embed", tmp_path / "m", data, *TASKS, "--out", tmp_path / "train.parquet")
    near = run("nearest", "--catalogue", tmp_path / "train.parquet",
               "--query", tmp_path / "test.parquet", "--task", 3)  # fmt: skip
    assert "No other training task is as near as the first." in near.splitlines()


def test_options_of_the_papers_model_need_it(data: Path, tmp_path: Path):
    with pytest.raises(DataError, match=r"^--resume is for --paper; leave it out"):
        run("fit", data, "--resume", "--out", tmp_path / "m")
    for given in ("task_themes=3", "checkpoint_every=9"):
        with pytest.raises(DataError, match=r"is not a setting.* temperature.* choose_settings"):
            run("fit", data, "--set", given, "--out", tmp_path / "m")


def test_settings_are_named_and_checked_before_the_data_is_read(tmp_path: Path):
    wrong = {
        "image_theme=3": "image_theme=3 is not a setting; did you mean image_themes",
        "image_themes": "'image_themes' is no setting: write name=value",
        "image_themes=0.5": "image_themes=0.5 must be a whole number",
        "choose_settings=perhaps": "choose_settings='perhaps' must be True or False",
        "prepare=pcb": "prepare='pcb': use auto, none, or some of",
    }
    for given, message in wrong.items():
        with pytest.raises(DataError, match=f"^{message}"):
            run("fit", tmp_path / "nowhere", "--set", given, "--out", tmp_path / "m")
    with pytest.raises(DataError, match=r"choose_settings=True is not .* checkpoint_every"):
        run("fit", tmp_path / "nowhere", "--paper", "--set", "choose_settings=true", "--out", "m")


def test_tasks_are_embedded_into_a_file_and_a_catalogue(data: Path, model: Path, tmp_path: Path):
    wish = ["--split", "test", "--n-tasks", 40, "--n-way", 3, "--n-shot", 5]
    run("embed", model, data, *wish, "--out", tmp_path / "test.parquet")
    embedded = Embeddings.load(tmp_path / "test.parquet")
    assert embedded.lam.shape == (1, 40, 2)
    assert embedded.header.model == TaskThemes.load(model).fingerprint_
    for _ in range(2):
        run("embed", model, data, *wish, "--out", tmp_path / "catalogue")
    assert len(Catalogue(tmp_path / "catalogue")) == 40  # the second time adds nothing
    text = run("compare", tmp_path / "test.parquet", tmp_path / "catalogue")
    assert text


def test_interrupted_with_control_c_it_continues_to_the_same_model(data: Path, tmp_path: Path):
    words = ["fit", str(data), "--split", "train", "--seed", "3", *SMALL, "--set", "max_passes=40",
             "--set", "checkpoint_every=1", "--n-tasks", "3000"]  # fmt: skip
    base = [sys.executable, "-m", "taskscape", *words]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(*words, "--out", whole)
    checkpoint = tmp_path / "broken.checkpoint"
    job = start_hearing([*base, "--out", str(broken)])
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    job.send_signal(signal.SIGINT)
    _, output = job.communicate(timeout=60)
    if job.returncode == 130:  # else it had finished before the signal
        assert "Run the same command with --resume to continue." in output
        assert not broken.exists()
        subprocess.run([*base, "--out", str(broken), "--resume"], check=True, capture_output=True)
    assert TaskThemes.load(broken).fingerprint_ == TaskThemes.load(whole).fingerprint_


def test_wrong_settings_are_named_before_the_data_is_read(tmp_path: Path):
    # in a process of its own, as a user has it: here the type checker would speak first
    wrong = ["fit", str(tmp_path / "x"), "--paper", "--set", "method=slow", "--out", "m"]
    done = subprocess.run(
        [sys.executable, "-m", "taskscape", *wrong], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: method='slow' is not known; use 'online' ")
