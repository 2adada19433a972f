"""The study of forecasts: calibrated on validation classes, evaluated on test classes."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import forecast_cases as cases
from experiments.__main__ import main
from experiments.class_splits import ClassSplits
from experiments.forecasting import (
    ABLATION,
    ForecastingSettings,
    ForecastingSizes,
    ForecastingStudy,
    evaluate_all,
)
from experiments.lab import Lab
from experiments.recipes import with_validation
from taskscape.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore::taskscape.forecast.ForecastWarning")


SIZES = ForecastingSizes(
    n_way=3, n_query=4, known_tasks=50, train_tasks=16, val_tasks=100, test_tasks=60,
    episodes=2,
)  # fmt: skip
SETTINGS = ForecastingSettings("blobs", learners=("protonet",), shots=(2,), labelled=(6,))


def study() -> ForecastingStudy:
    built = ForecastingStudy(cases.pool(), cases.pool(), SIZES, {"protonet": {"scale": 0.5}})
    built.__dict__["model"] = cases.model()  # a fit of its own would take a while
    return built


@pytest.mark.slow
def test_one_line_for_each_learner_and_number_of_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "found.jsonl"
    evaluate_all(study(), SETTINGS, Lab(path, "test"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["cell"]["labelled"] for line in lines] == [2, 6]
    for line in lines:
        assert set(line["results"]) == set(ABLATION)
        assert line["tasks"] == {"val": 100, "test": 60}
        assert line["classes"] == {"val": 24, "test": 20}
        for evaluated in line["results"].values():
            assert {"spearman", "ceiling", "coverage", "always_mean_error"} <= set(evaluated)
        assert set(line["results"]["distance"]["weights"]) < set(line["results"]["all"]["weights"])
    before = path.read_text()
    evaluate_all(study(), SETTINGS, Lab(path, "test"))
    assert path.read_text() == before
    monkeypatch.setattr(ForecastingStudy, "trained", None)  # its accuracies are kept
    evaluate_all(study(), replace(SETTINGS, labelled=(1, 6)), Lab(path, "test"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["cell"]["labelled"] for line in lines] == [2, 6, 1]  # also fewer than learners
    assert len({line["learner_seconds"] for line in lines}) == 1


def test_unknown_learners_are_refused_before_the_data_is_read(tmp_path: Path):
    with pytest.raises(SystemExit, match="error: learner='luck' is not known; use 'protonet'"):
        main(
            [
                "forecasting",
                "--pool",
                "nowhere",
                "--learners",
                "luck",
                "--out",
                str(tmp_path / "x.jsonl"),
            ]
        )


def test_a_pool_without_validation_classes_gets_some():
    pool = cases.pool()
    groups = tuple(f"g{c // 4}" for c in range(60))
    splits = tuple("train" if s == "val" else s for s in pool.splits or ())
    without = replace(pool, groups=groups, splits=splits)
    for n_groups, classes in ((None, 4), (2, 8)):
        held = with_validation(without, n_groups).splits
        assert held is not None
        assert held.count("val") == classes
    assert with_validation(pool, 2) is pool
    with pytest.raises(
        DataError, match=r"held out by group, of training classes; .* has no splits"
    ):
        with_validation(replace(pool, splits=None), 2)


@pytest.mark.slow
def test_coverage_over_splits_of_validation_classes(tmp_path: Path):
    path = tmp_path / "found.jsonl"
    splits = ClassSplits(12, n_splits=5, calibration_tasks=80, held_out_tasks=20)
    built = study()
    evaluate_all(built, SETTINGS, Lab(path, "test"), splits)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["cell"]["labelled"] for line in lines] == [2, 6]
    for line in lines:
        assert line["cell"]["splits"]["n_classes"] == 12
        assert line["classes"] == {"calibration": 12, "left_out": 12}
        assert len(line["coverage_by_split"]) == 5
        assert line["coverage"] == pytest.approx(np.mean(line["coverage_by_split"]), abs=1e-4)
        assert line["coverage_interval"][0] <= line["coverage"] <= line["coverage_interval"][1]
        missed = line["below"] + line["above"]
        assert missed == pytest.approx(1 - line["coverage"])
        assert 0 < line["mean_width"] < 1
    before = path.read_text()
    evaluate_all(built, SETTINGS, Lab(path, "test"), splits)
    assert path.read_text() == before
    evaluate_all(
        built, replace(SETTINGS, labelled=()), Lab(path, "test")
    )  # test classes: other cells
    assert len(path.read_text().splitlines()) == 3


def test_splits_leave_whole_classes_out():
    known = np.arange(100, 124)
    drawn = ClassSplits(9, n_splits=30, calibration_tasks=70, held_out_tasks=25).draw(known, 3, 0)
    assert len(drawn.rows) == 30
    assert len(set(drawn.tasks)) == len(drawn.tasks)
    table = np.array(drawn.tasks)
    for inside, outside in drawn.rows:
        assert (len(inside), len(outside)) == (70, 25)
        assert not set(table[inside].ravel()) & set(table[outside].ravel())
        assert len(np.unique(table[inside])) <= 9
        assert set(table[inside].ravel()) | set(table[outside].ravel()) <= set(known)
    again = ClassSplits(9, n_splits=30, calibration_tasks=70, held_out_tasks=25).draw(known, 3, 0)
    assert again.tasks == drawn.tasks


def test_few_classes_give_every_combination_once():
    drawn = ClassSplits(5, n_splits=2).draw(np.arange(10), 3, 0)
    assert [len(inside) for inside, _ in drawn.rows] == [10, 10]
    assert [len(outside) for _, outside in drawn.rows] == [10, 10]


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        (ClassSplits(8, n_splits=1), "splits=1 must be at least 2."),
        (ClassSplits(12), "split_classes=12: of 16 validation classes, 5-way tasks need from 6 to "
         "calibrate with, and leave out 5 or more: at most 11. Choose a number between, or lower "
         "n_way."),
    ],
)  # fmt: skip
def test_splits_that_cannot_be_are_refused(splits, message):
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        splits.check(16, 5)
