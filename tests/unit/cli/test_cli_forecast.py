"""The command ``forecast``, and ``select --rule auto``."""

import csv
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import forecast_cases as cases
from taskscape import load_pool, sample_tasks
from taskscape.cli import app
from taskscape.errors import DataError
from taskscape.meta import ProtoNet, TrainConfig, mlp, train
from taskscape.themes.prepare import prepared_pool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::taskscape.forecast.ForecastWarning"),
]
SIZES = {"n_way": 3, "n_shot": 3, "n_query": 4}
NEW = ["--split", "test", "--n-tasks", 24, "--n-way", 3, "--n-shot", 3]


def run(*args: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, a model, embedded training tasks, and a trained learner, as files."""
    folder = tmp_path_factory.mktemp("forecast")
    os.environ["TASKSCAPE_CACHE"] = str(folder / "cache")
    built = cases.pool()
    labels = np.repeat(np.arange(len(built)), built.counts)
    np.savez(folder / "own.npz", X=built.samples, y=labels, split=list(built.splits or ()))
    pool, model = load_pool(str(folder / "own.npz")), cases.model()
    model.save(folder / "model")
    for split, n in (("train", 60), ("val", 60), ("test", 20)):
        tasks = sample_tasks(pool, n, split=split, seed=3, **SIZES)
        tasks.save(folder / f"{split}-tasks.parquet")
        model.embed(tasks).save(folder / f"{split}.parquet")
    tasks = sample_tasks(pool, 16, split="train", **SIZES)
    features = prepared_pool(pool, model.preparation_, unit_length=True)
    trained = train(
        ProtoNet(), mlp(3, (4,)), replace(tasks, pool=features),
        TrainConfig(updates=4, validate_every=4),
    )  # fmt: skip
    trained.save(folder / "learner")
    return folder


def test_a_learner_is_evaluated_and_forecast(folder: Path, tmp_path: Path):
    base = ["forecast", folder / "model", folder / "own.npz"]
    text = run(*base, "--train", folder / "train.parquet", "--trained", folder / "learner", *NEW,
               "--n-calibration", 100, "--n-query", 4, "--episodes", 2,
               "--save", tmp_path / "saved", "--out", tmp_path / "found.csv")  # fmt: skip
    assert text.startswith("ProtoNet: expected accuracy over 24 tasks")
    assert "calibrated on 100 tasks of 24 classes" in text
    assert "… and 14 more" in text
    with (tmp_path / "found.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24
    assert "because of own difficulty" in rows[0]
    output = json.loads(run(*base, "--forecaster", tmp_path / "saved", *NEW, "--json"))
    assert output["learner"] == "ProtoNet"
    assert output["expected"][3] == pytest.approx(float(rows[3]["expected"]))
    assert len(output["classes"][3]) == 3
    assert json.loads(rows[3]["classes"]) == output["classes"][3]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_accuracies_may_be_measured_elsewhere(folder: Path, tmp_path: Path, kind: str):
    accuracy = np.random.default_rng(0).uniform(0.4, 0.9, size=(60, 2))
    path = tmp_path / f"MyNet.{kind}"
    if kind == "csv":
        lines = [
            "task,accuracy/1,accuracy/2",
            *(f"{i},{a},{b}" for i, (a, b) in enumerate(accuracy)),
        ]
        path.write_text("\n".join(lines) + "\n")
    else:
        pq.write_table(pa.table({"accuracy": accuracy.tolist()}), path)
    out = tmp_path / "found.csv"
    text = run("forecast", folder / "model", folder / "own.npz", "--train",
               folder / "train.parquet", "--calibration", folder / "val-tasks.parquet",
               "--accuracy", path, *NEW, "--out", out)  # fmt: skip
    assert text.startswith("MyNet: expected accuracy over 24 tasks")
    with out.open() as file:
        assert all(float(row["low"]) <= float(row["high"]) for row in csv.DictReader(file))


def test_wrong_wishes_are_named_before_work_starts(folder: Path, tmp_path: Path):
    base = ["forecast", folder / "nowhere", "nothing"]
    train = ["--train", folder / "train.parquet"]
    for words, message in (
        ([], "^--train is missing"),
        (train, "^give either --trained, to be evaluated, or --accuracy"),
        ([*train, "--accuracy", "a.csv"], "^--accuracy needs --calibration"),
        (
            ["--forecaster", "f", "--trained", "l"],
            r"^--trained has no effect with --forecaster, which is calibrated already\.",
        ),
        (["--forecaster", "f", "--confidence", "0.8"], "^--confidence has no effect with"),
    ):
        with pytest.raises(DataError, match=message):
            run(*base, *words)
    for text, message in (
        ("task,acc\n0,0.5\n", "bad.csv has no column 'accuracy'; expected a column accuracy, or"),
        ("accuracy\n0.5\nhigh\n", "bad.csv, line 3: 'high' in column 'accuracy' is not a number."),
    ):
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises(DataError, match=message):
            run("forecast", folder / "model", folder / "own.npz", *train, "--calibration",
                folder / "val-tasks.parquet", "--accuracy", tmp_path / "bad.csv", *NEW)  # fmt: skip


def test_select_auto_tries_the_rules_with_a_learner(folder: Path):
    words = ["select", folder / "test.parquet", folder / "train.parquet", "-n", 8, "--rule", "auto"]
    rest = ["--learner", "protonet", "--model", folder / "model", "--data", folder / "own.npz",
            "--tasks", folder / "train-tasks.parquet", "--validation", folder / "val.parquet",
            "--validation-tasks", folder / "val-tasks.parquet", "--trials", 3]  # fmt: skip
    output = json.loads(run(*words, *rest, "--json"))
    assert len(output["settings"]["auto"]["tried"]) == 5
    assert len(output["indices"]) == 8
    with pytest.raises(DataError, match=r"^--rule auto trains a learner and needs --learner"):
        run(*words, *rest[2:])
    lists = [folder / "test-tasks.parquet", folder / "train-tasks.parquet", *words[3:]]
    by = ["--similarity", "prototypes", "--validation-tasks", folder / "val-tasks.parquet"]
    output = json.loads(run("select", *lists, *rest[:6], *by, "--trials", 3, "--json"))
    assert len(output["settings"]["auto"]["tried"]) == 5
    assert output["settings"]["auto"]["n_validation"] == 60


def test_the_command_has_help_with_an_example():
    assert "Example:" in run("forecast", "--help")
