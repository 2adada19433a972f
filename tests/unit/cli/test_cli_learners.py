"""The commands ``train`` and ``evaluate``, and what all commands have in common."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from meta_cases import toy_pool
from taskscape.cli import app
from taskscape.errors import DataError
from taskscape.meta import LEARNERS, ProtoNet, Trained

COMMANDS = [
    [name] if not hasattr(command, "commands") else [name, inner]
    for name, command in get_command(app).commands.items()  # type: ignore[attr-defined]
    for inner in getattr(command, "commands", [""])
]
SMALL = ["--n-tasks", "40", "--n-way", "3", "--n-shot", "2", "--n-query", "4"]


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [str(w) for w in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data with splits, and a learner trained on them."""
    folder = tmp_path_factory.mktemp("learners")
    pool = toy_pool()
    np.savez(
        folder / "own.npz",
        X=pool.samples,
        y=np.repeat(np.arange(len(pool)), pool.counts),
        splits=np.array(pool.splits),
    )
    changes = ["--set", "learning_rate=0.01", "--set", "validate_every=5"]
    words = run("train", folder / "own.npz", *SMALL, "--n-validation", 10, *changes,
                "--out", folder / "protonet")  # fmt: skip
    assert words.startswith("ProtoNet after 10 updates: mean loss of the last 10 is ")
    assert "; best validation accuracy " in words
    return folder


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_an_example(words: list[str]) -> None:
    assert "Example" in run(*words, "--help")


def test_every_learner_is_in_the_help() -> None:
    text = "".join(c for c in run("train", "--help") if c.isalnum())
    for name, entry in LEARNERS.items():
        assert name in text
        assert "".join(c for c in entry.meaning if c.isalnum()) in text


def test_help_leaves_no_folder(tmp_path: Path) -> None:
    home = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home.pop("JAX_COMPILATION_CACHE_DIR", None)
    home["TASKSCAPE_CACHE"] = str(tmp_path / "ours")
    command = [sys.executable, "-m", "taskscape", "fit", "--help"]
    subprocess.run(command, env=home, check=True, capture_output=True, timeout=120)
    assert list(tmp_path.rglob("compiled")) == []


def test_a_trained_learner_is_kept_and_evaluated(folder: Path, tmp_path: Path) -> None:
    trained = Trained.load(folder / "protonet")
    assert trained.learner == ProtoNet()
    assert trained.losses.shape == (10,)
    base = ["evaluate", folder / "protonet", folder / "own.npz", *SMALL]
    words = run(*base, "--out", tmp_path / "a.csv")
    assert words.startswith("ProtoNet: accuracy ")
    assert "95 % interval of the accuracy, over classes: " in words
    whole = json.loads(run(*base, "--json"))
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(whole["tasks"]) == 40
    assert float(rows[3]["accuracy"]) == whole["tasks"][3]["accuracy"]
    assert whole["interval"][0] <= whole["accuracy"] <= whole["interval"][1]
    run(*base, "--episodes", 2, "--out", tmp_path / "a.parquet")
    names = pq.read_schema(tmp_path / "a.parquet").names
    assert names[-2:] == ["accuracy/1", "accuracy/2"]
    for name in ("a.parquet", "a.json"):  # what is ours is replaced
        for _ in range(2):
            run(*base, "--out", tmp_path / name)


def test_tasks_are_drawn_from_test_classes_unless_told(folder: Path) -> None:
    base = ["evaluate", folder / "protonet", folder / "own.npz", *SMALL, "--json"]
    names = {c for row in json.loads(run(*base))["tasks"] for c in row["classes"]}
    assert names <= {str(i) for i in range(16, 24)}
    every = {
        c for row in json.loads(run(*base, "--split", "train"))["tasks"] for c in row["classes"]
    }
    assert every <= {str(i) for i in range(8)}


def test_few_classes_have_no_interval(folder: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "few.npz", X=np.random.default_rng(0).normal(size=(30, 6)),
             y=np.repeat(np.arange(3), 10))  # fmt: skip
    words = run("evaluate", folder / "protonet", tmp_path / "few.npz", *SMALL)
    assert "no interval of the accuracy: leaving out a class leaves no task" in words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--learner", "sgd"], "learner='sgd' is not known; use 'protonet', "),
        (["--set", "speed=1"], "--set speed=1: use name=value, with one of updates, batch_size"),
        (["--set", "learning_rate=fast"], "'fast' is not a number, true or false."),
        (["--set", "updates=3"], "--set updates: use --epochs and --batch-size instead."),
        (["--out", "own.npz"], "own.npz exists and is not a folder; it is left as it is."),
    ],
)
def test_what_cannot_be_trained_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(folder)
    words = ["train", "own.npz", *SMALL, *options]
    with pytest.raises(DataError) as error:
        run(*words, *([] if "--out" in options else ["--out", "new"]))
    assert message in str(error.value)


def test_a_learner_of_other_samples_is_refused(folder: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", X=np.zeros((60, 3)), y=np.repeat(np.arange(12), 5))
    with pytest.raises(DataError) as error:
        run("evaluate", folder / "protonet", tmp_path / "d.npz", "--n-way", 3, "--n-shot", 2,
            "--n-query", 2)  # fmt: skip
    assert str(error.value) == (
        f"{folder / 'protonet'} takes samples of shape (6,); the data have (3,). "
        "Give the --model that it was trained with."
    )


def test_a_report_needs_a_finished_study(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no finished study: it has no study\.json"):
        run("report", tmp_path)
