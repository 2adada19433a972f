"""``taskscape advise``: the command, on a small pool and a target from outside."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from taskscape.cli import app
from taskscape.errors import DataError

SMALL = [
    "--budget", "5", "--candidates", "30", "--n-way", "3", "--n-shot", "3",
    "--updates", "4", "--trials", "2",
]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Sources in three places, and a target near one of them."""
    rng = np.random.default_rng(0)
    place = np.repeat([-8.0, 0.0, 8.0], 6)
    middles = place[:, None] + rng.normal(size=(18, 6))
    x = np.repeat(middles, 10, axis=0) + 0.3 * rng.normal(size=(180, 6))
    np.savez(
        tmp_path / "pool.npz", X=x.astype(np.float32), y=np.repeat(np.arange(18), 10),
        groups=np.repeat(["down", "middle", "up"], 60),
    )  # fmt: skip
    mine = np.repeat(8 + rng.normal(size=(3, 6)), 4, axis=0) + 0.3 * rng.normal(size=(12, 6))
    np.savez(tmp_path / "mine.npz", X=mine.astype(np.float32), y=np.repeat(np.arange(3), 4))
    return tmp_path / "pool.npz", tmp_path / "mine.npz"


def test_it_names_the_nearest_source_and_writes_the_tasks(files: tuple[Path, Path], tmp_path: Path):
    pool, mine = files
    words = ["advise", "--data", str(pool), "--target", str(mine), *SMALL]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "advice"), "--json"])
    assert done.exit_code == 0, done.output
    advice = json.loads(done.stdout)
    assert advice["sources"][0]["name"] == "up"
    assert advice["measured_gains"] == {}  # it has labelled samples only
    assert {p.name for p in (tmp_path / "advice").iterdir()} == {
        "advice.json", "tasks.parquet", "tasks.csv", "classes.csv", "sources.csv"
    }  # fmt: skip


def test_what_is_wrong_is_said_first(files: tuple[Path, Path]):
    asked = ["advise", "--data", str(files[0]), "--target", str(files[1])]
    for words, said in (
        (["advise", "--target", "x"], "--data is missing"),
        (["advise", "--data", str(files[0]), "--target", "nowhere"], "neither a file"),
        ([*asked, "--experience", "nowhere.jsonl"], "--experience nowhere.jsonl: write own"),
        ([*asked, "--experience", "own"], "has 3 groups of 5 or more training classes"),
    ):
        done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, DataError)
        assert said in str(done.exception)


def test_help_has_an_example():
    assert "Example:" in CliRunner().invoke(app, ["advise", "--help"]).stdout
