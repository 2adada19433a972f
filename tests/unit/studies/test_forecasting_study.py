"""The study of forecasts: calibrated on validation classes, judged on test classes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import forecast_cases as cases
from taskscape.errors import DataError
from taskscape.studies.forecasting import ABLATION, ForecastingStudy, load, main, run
from taskscape.studies.ledger import Ledger

pytestmark = pytest.mark.filterwarnings("ignore::taskscape.forecast.ForecastWarning")


def study() -> ForecastingStudy:
    made = ForecastingStudy(
        cases.pool(), cases.pool(), n_way=3, n_query=4, ensemble=1, known_tasks=50, train_tasks=16,
        val_tasks=100, test_tasks=60, episodes=2, settings={"protonet": {"scale": 0.5}},
    )  # fmt: skip
    made.__dict__["model"] = cases.model()  # a fit of its own would take a while
    return made


@pytest.mark.slow
def test_one_line_for_each_learner_and_number_of_samples(tmp_path: Path):
    path = tmp_path / "found.jsonl"
    run(study(), Ledger(path, {"command": "test"}), ["protonet"], [2], [6])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["cell"]["labelled"] for line in lines] == [2, 6]
    for line in lines:
        assert set(line["results"]) == set(ABLATION)
        assert line["tasks"] == {"val": 100, "test": 60}
        assert line["classes"] == {"val": 24, "test": 20}
        for judged in line["results"].values():
            assert {"spearman", "ceiling", "coverage", "always_mean_error"} <= set(judged)
        assert set(line["results"]["distance"]["weights"]) < set(line["results"]["all"]["weights"])
    before = path.read_text()
    run(study(), Ledger(path, {"command": "test"}), ["protonet"], [2], [6])
    assert path.read_text() == before


def test_unknown_learners_are_refused_before_the_data_is_read(tmp_path: Path):
    with pytest.raises(DataError, match="learner 'luck' is not known; choose from protonet"):
        main(["--pool", "nowhere", "--learners", "luck", "--out", str(tmp_path / "x.jsonl")])


def test_a_pool_without_validation_classes_gets_some(monkeypatch: pytest.MonkeyPatch):
    pool = cases.pool()
    groups = tuple(f"g{c // 4}" for c in range(60))
    splits = tuple("train" if s == "val" else s for s in pool.splits or ())
    monkeypatch.setattr(
        "taskscape.studies.forecasting.load_pool",
        lambda _: replace(pool, groups=groups, splits=splits),
    )
    with_val, features = load("blobs")
    assert with_val.splits is not None
    assert with_val.splits.count("val") == 4
    np.testing.assert_allclose(np.linalg.norm(features.samples, axis=1), 1, rtol=1e-5)
