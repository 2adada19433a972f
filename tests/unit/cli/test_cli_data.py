"""The commands ``taskscape data`` and ``taskscape tasks``."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from taskscape.cli import app
from taskscape.errors import DataError
from taskscape.pools import POOLS, load_pool
from taskscape.tasks import TaskSet

runner = CliRunner()


@pytest.fixture
def own_data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "own.npz"
    np.savez(
        path,
        X=rng.normal(size=(60, 5)),
        y=np.repeat(np.arange(6), 10),
        split=["train"] * 3 + ["test"] * 3,
    )
    return path


def run(*args: object) -> str:
    result = runner.invoke(app, [str(a) for a in args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_known_data_sets_are_listed(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("TASKSCAPE_DATA", str(tmp_path))
    output = json.loads(run("data", "--json"))
    assert output["folder"] == str(tmp_path)
    here = {row["name"]: row["path"] is not None for row in output["pools"]}
    assert here == {name: known.locate() is not None for name, known in POOLS.items()}
    assert (here["glyphs"], here["omniglot"]) == (True, False)
    assert "not found" in run("data")


def test_show_counts_and_draws_a_sheet(own_data: Path, tmp_path: Path):
    sheet = tmp_path / "deep" / "sheet.png"
    text = run("data", "show", own_data, "--out", sheet)
    assert "6 classes, 3 train, 3 test, 60 samples of 5 features" in text.replace("\n", " ")
    with Image.open(sheet) as image:
        assert min(image.size) > 400
    output = json.loads(run("data", "show", own_data, "--split", "test", "--json"))
    assert output["parts"] == [{"split": "test", "group": "", "classes": 3, "samples": 30}]
    assert output["kind"] == "features"


@pytest.mark.parametrize("colour", [False, True])
def test_images_get_a_sheet_too(tmp_path: Path, colour: bool):
    rng = np.random.default_rng(0)
    shape = (8, 12, 12, 3) if colour else (8, 12, 12)
    np.savez(
        tmp_path / "i.npz",
        X=rng.integers(0, 255, shape).astype(np.uint8),
        y=np.repeat(np.arange(4), 2),
    )
    run("data", "show", tmp_path / "i.npz", "--out", tmp_path / "s.png")
    with Image.open(tmp_path / "s.png") as image:
        assert image.size[0] > 400


def test_tasks_are_written_and_can_be_read(own_data: Path, tmp_path: Path):
    out = tmp_path / "tasks.parquet"
    text = run(
        "tasks", own_data, "--split", "train", "--n-tasks", 20, "--n-way", "2-3",
        "--n-shot", "1-4", "--n-query", 2, "--seed", 5, "--out", out,
    )  # fmt: skip
    assert "TaskSet(20 tasks over 'own': 2–3-way, 1–4-shot, 2 queries)" in text
    tasks = TaskSet.load(out, load_pool(own_data))
    assert len(tasks) == 20
    assert tasks.classes.max() == 2


def test_every_task_can_be_written(own_data: Path, tmp_path: Path):
    text = run("tasks", own_data, "--all", "--n-way", 3, "--n-shot", "all", "--out", tmp_path / "t")
    assert "TaskSet(20 tasks over 'own': 3-way, all-shot)" in text
    with pytest.raises(DataError, match="lists tasks of one size"):
        run("tasks", own_data, "--all", "--n-way", "2-3", "--out", tmp_path / "t")
    with pytest.raises(DataError, match=r"^--n-tasks has no effect with --all, which lists"):
        run("tasks", own_data, "--all", "--n-tasks", 9, "--out", tmp_path / "t")


def test_data_are_kept_as_decided(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (43, 8, 8), np.uint8)
    np.savez(tmp_path / "d.npz", images=images, y=[*np.repeat(np.arange(20), 2), 20, 20, 20])
    kept = tmp_path / "kept"
    text = run("data", "save", tmp_path / "d.npz", "--image-size", 4, "--deal", 1, "--out", kept)
    assert "dealt out by class with seed 1: 13 train, 4 val, 4 test." in text
    assert load_pool(kept).sample_shape == (4, 4)
    (tmp_path / "s.csv").write_text("class,split\n20,train\n")
    narrow = ["data", "save", kept, "--min-samples", 3, "--split-file", tmp_path / "s.csv"]
    assert "20 of 21 classes have fewer than 3 samples" in run(*narrow, "--out", kept)
    assert load_pool(kept).class_names == ("20",)


def test_every_command_has_help_with_an_example():
    for command in (["data"], ["data", "show"], ["data", "get"], ["data", "save"], ["tasks"]):
        assert "Example:" in run(*command, "--help")
    assert run("--version").startswith("taskscape ")


def test_errors_are_printed_plainly():
    done = subprocess.run(
        [sys.executable, "-m", "taskscape", "tasks", "glyps", "--out", "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: source='glyps' is neither a known data set")
    assert "Traceback" not in done.stderr


def test_joined_data_say_what_was_changed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, size in (("small", 8), ("large", 12)):
        pictures = rng.integers(0, 256, (6, size, size), np.uint8)
        np.savez(tmp_path / f"{name}.npz", images=pictures, labels=[f"{name}{c}" for c in "aabbcc"])
    source = f"{tmp_path / 'small.npz'}+{tmp_path / 'large.npz'}"
    shown = runner.invoke(app, ["data", "show", source])
    assert shown.exit_code == 0, shown.output
    assert "large: brought from 12×12 to 8×8 pixels." in shown.output
    out = tmp_path / "tasks.parquet"
    drawn = runner.invoke(
        app,
        ["tasks", source, "--n-way", "2", "--n-shot", "1", "--within-group", "--out", str(out)],
    )  # fmt: skip
    assert drawn.exit_code == 0, drawn.output


def test_what_load_pool_can_be_told_data_save_can_be_told(tmp_path: Path, monkeypatch):
    table = tmp_path / "flowers.csv"
    rows = [f"{i / 7},{i / 5},{i % 3},{'ab'[i % 2]},{'xyz'[i % 3]}" for i in range(30)]
    table.write_text("\n".join(["one,two,three,colour,species", *rows]))
    said = subprocess.run(
        [sys.executable, "-m", "taskscape", "data", "show", str(table)], capture_output=True,
        text=True, check=False,
    ).stderr  # fmt: skip
    assert "label_column=…" in said
    assert "taskscape data save DATA --option label_column=NAME" in said
    (tmp_path / "groups.csv").write_text("class,group\nx,p\ny,p\nz,q\n")
    (tmp_path / "halving.py").write_text("def halve(batch):\n    return batch / 2\n")
    monkeypatch.chdir(tmp_path)
    run(
        "data", "save", table, "--option", "label_column=species", "--option",
        "feature_columns=one,two", "--group-file", "groups.csv", "--encoder", "halving:halve",
        "--out", "mine",
    )  # fmt: skip
    pool = load_pool("mine")
    assert (pool.class_names, pool.groups) == (("x", "y", "z"), ("p", "p", "q"))
    np.testing.assert_allclose(pool.samples_of("x")[1], [3 / 14, 3 / 10], rtol=1e-6)
    with pytest.raises(DataError, match=r"--option nonsense=1: expected label_column"):
        run("data", "save", table, "--option", "nonsense=1", "--out", "other")


def test_flags_take_nothing_in_help():
    for words in (["tasks"], ["data"], ["data", "save"], []):
        text = run(*words, "--help")
        assert "--help" in text
        assert "<bool>" not in text
        assert "BOOL" not in text
