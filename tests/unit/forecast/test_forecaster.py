"""Forecaster: support samples in, expected accuracies out, whatever the company or the queries."""

import json
import re
import warnings
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import forecast_cases as cases
from fit_cases import fitted
from taskscape import Forecaster, make_tasks, sample_tasks
from taskscape.cli.forecast import _words as in_words
from taskscape.errors import DataError
from taskscape.forecast import ForecastEvaluation, Forecasts, ForecastWarning, forecast
from taskscape.forecast.features import COLUMNS, SHAPE
from taskscape.io.values import from_plain
from taskscape.meta import ProtoNet, TrainConfig, mlp, train


def same(a: Forecasts, b: Forecasts, order: object = slice(None)) -> None:
    for name in ("expected", "low", "high", "outside"):
        np.testing.assert_allclose(getattr(a, name)[order], getattr(b, name), atol=2e-5)
    for what, moved in a.reasons.items():
        np.testing.assert_allclose(moved[order], b.reasons[what], atol=2e-5)


def test_forecasts_are_right_about_test_classes():
    forecaster, _ = cases.calibrated()
    test = cases.tasks("test", 120)
    described = forecaster.describe(test)
    forecasts = forecaster.predict(test, described=described)
    measured = cases.accuracy(described, test.n_way)
    evaluated = forecaster.evaluate(test, measured, described=described)
    assert evaluated.spearman > 0.95
    assert evaluated.ceiling is not None
    assert evaluated.mean_absolute_error < evaluated.always_mean_error / 3
    assert evaluated.coverage > 0.8
    assert evaluated.spearman_interval is not None
    assert evaluated.spearman_interval[0] <= evaluated.spearman <= evaluated.spearman_interval[1]
    assert re.match(r"toy on 120 tasks: rank correlation [\d.]+ \(ceiling", evaluated.summary())
    assert set(forecasts.reasons) == set(COLUMNS.values())
    assert forecasts.average is not None
    np.testing.assert_allclose(
        sum(forecasts.reasons.values()), forecasts.expected - forecasts.average, atol=1e-6
    )
    assert ((forecasts.low >= 0) & (forecasts.high <= 1)).all()


def test_where_the_mean_is_as_good_there_is_no_forecast_and_no_reason():
    forecaster, _ = cases.calibrated()
    assert forecaster.calibration is not None
    test = cases.tasks("test", 12)
    names = [list(test.names(i)) for i in range(12)]
    forecasts = in_words(forecaster, forecaster.predict(test), names)
    assert "mainly because of" in forecasts
    assert "No forecast" not in forecasts
    poor = copy(forecaster)
    poor.calibration = replace(forecaster.calibration, mean_error=forecaster.calibration.error)
    assert poor.summary().endswith("points only.")
    forecasts = in_words(poor, poor.predict(test), names)
    assert "No forecast: always expecting the mean" in forecasts
    assert "because" not in forecasts
    evaluated = ForecastEvaluation("A", 50, 0.1, 0.0561, 0.9, 0.9, None, 0.0559)
    assert not evaluated.beats_mean
    assert evaluated.summary().endswith("No forecast: the mean is as good.")


def test_a_forecast_depends_on_the_task_alone():
    forecaster, _ = cases.calibrated()
    test = cases.tasks("test", 24)
    order = np.random.default_rng(0).permutation(24)
    forecasts = forecaster.predict(test)
    same(forecasts, forecaster.predict(test[order]), order)
    same(forecasts, forecaster.predict(test[:7]), slice(0, 7))


def test_queries_are_never_looked_at():
    forecaster, _ = cases.calibrated()
    test = sample_tasks(cases.pool(), 24, n_way=3, n_shot=3, n_query=4, split="test", seed=1)
    forecasts = forecaster.predict(test)
    same(forecasts, forecaster.predict(test.with_samples(3, 0)))
    listed = make_tasks(
        cases.pool(), test.classes.tolist(),
        support=np.tile(np.arange(3), (24, 3, 1)), query=np.tile(np.arange(3, 9), (24, 3, 1)),
    )  # fmt: skip
    spoiled = cases.pool().samples.copy()
    spoiled[np.concatenate([s + np.arange(3, 12) for s in cases.pool().starts])] = 1e3
    broken = replace(cases.pool(), samples=spoiled, class_digests=None)
    same(forecaster.predict(listed), forecaster.predict(replace(listed, pool=broken)))


def test_permuting_the_classes_of_a_task_changes_nothing():
    forecaster, _ = cases.calibrated()
    ids = np.array([[40, 41, 42], [45, 50, 55]])
    support = np.array([[[0, 1], [2, 3], [4, 5]], [[1, 2], [3, 4], [5, 6]]])
    turned = np.array([2, 0, 1])
    one = make_tasks(cases.pool(), ids.tolist(), support=support)
    other = make_tasks(cases.pool(), ids[:, turned].tolist(), support=support[:, turned])
    same(forecaster.predict(one), forecaster.predict(other))


@pytest.mark.parametrize("members", [0, 1, 2])
def test_one_shot_and_models_of_every_kind(members):
    model = cases.model()
    if members:  # the paper's, whose distances depend on the number of classes unless evened out
        model = fitted() if members == 1 else fitted(n_restarts=2, ensemble=2)
    forecaster = Forecaster(model, cases.tasks("train", 80, n_shot=6), "toy")
    given = cases.tasks("val", 120, n_way=3, n_shot=1)
    described = forecaster.describe(given)
    assert np.isnan(described["spread_within"]).all()
    assert all(np.isfinite(v).all() for k, v in described.items() if k != "spread_within")
    forecaster.fit(given, cases.accuracy(described, given.n_way), described=described)
    forecasts = forecaster.predict(cases.tasks("test", 20, n_way=3, n_shot=1))
    assert np.isfinite(forecasts.expected).all()
    np.testing.assert_allclose(forecasts.reasons[SHAPE], 0, atol=1e-12)


def test_it_is_written_and_read(tmp_path: Path):
    forecaster, _ = cases.calibrated()
    forecaster.save(tmp_path / "forecaster")
    back = Forecaster.load(tmp_path / "forecaster", cases.model())
    test = cases.tasks("test", 20)
    same(forecaster.predict(test), back.predict(test))
    assert (back.learner, back.confidence) == ("toy", 0.9)
    with pytest.raises(DataError, match="was made with another model"):
        Forecaster.load(tmp_path / "forecaster", fitted())
    forecaster.model.save(tmp_path / "model")
    with pytest.raises(DataError, match="does not hold a forecaster"):
        Forecaster.load(tmp_path / "model", cases.model())


def test_forecasts_are_said_kept_and_drawn(tmp_path: Path):
    numbers = np.array([0.4, 0.6, 0.5])
    forecasts = Forecasts(
        "toy", numbers, numbers - 0.1, numbers + 0.2, 0.9, {"luck": numbers - 0.5}, 0.5,
        np.array([False, True, False]),
    )  # fmt: skip
    assert repr(forecasts) == "Forecasts('toy', 3 tasks, mean 0.500)"
    assert forecasts.summary() == (
        "toy: expected accuracy over 3 tasks 50.0 % (from 40.0 to 60.0), with 90 % intervals 30.0 "
        "points wide on average. 1 are unlike all calibration tasks in something."
    )
    forecasts.save(tmp_path / "f.json")
    back = Forecasts.load(tmp_path / "f.json")
    same(forecasts, back)
    assert back.to_dict() == forecasts.to_dict()
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(DataError, match=r"is not a list of forecasts written by taskscape\.$"):
        Forecasts.load(tmp_path / "other.json")
    forecasts.plot(tmp_path / "f.png", accuracy=numbers, title="$ odd $")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


def test_evaluations_are_kept_with_what_they_do_not_know():
    evaluated = ForecastEvaluation(
        "toy", 9, float("nan"), 0.1, 0.9, 0.9, None, 0.2, coverage_interval=(0.8, 1.0)
    )
    plain = json.loads(json.dumps(evaluated.to_dict(), allow_nan=False))
    back = from_plain(ForecastEvaluation, plain)
    assert back.coverage_interval == (0.8, 1.0)
    assert back.spearman_interval is None
    assert np.isnan(back.spearman)


def test_tasks_unlike_the_calibration_tasks_are_warned_of():
    forecaster, given = cases.calibrated()
    with pytest.warns(ForecastWarning, match=r"tasks lie outside what .*: .*n way \(12 of 12"):
        forecasts = forecaster.predict(cases.tasks("test", 12, n_way=6))
    assert forecasts.outside is not None
    assert forecasts.outside.all()
    with pytest.warns(ForecastWarning, match="n shot"):
        forecaster.predict(cases.tasks("test", 12, n_shot=8))
    with pytest.warns(ForecastWarning, match=r"among those of the calibration tasks too: .* flatt"):
        forecaster.evaluate(given, np.full(len(given), 0.5))


def test_classes_shared_with_training_are_warned_of():
    forecaster = Forecaster(cases.model(), cases.known())
    given = cases.tasks("train", 120)
    with pytest.warns(ForecastWarning, match="among those of the training tasks too"):
        forecaster.fit(given, np.random.default_rng(0).random(120))


def test_few_calibration_classes_are_warned_of():
    few = sample_tasks(cases.pool().subset(np.arange(16, 23)), 120, n_way=3, n_shot=2, seed=0)
    forecaster = Forecaster(cases.model(), cases.known())
    with pytest.warns(ForecastWarning, match="of 7 classes are too few to leave out all classes"):
        forecaster.fit(few, np.random.default_rng(0).random(120))


@pytest.mark.parametrize(
    ("accuracy", "message"),
    [
        (np.full(12, 55.0), "accuracy holds 55; give fractions from 0 to 1"),
        (np.full(12, np.nan), "accuracy holds nan; give fractions from 0 to 1"),
        (np.full(11, 0.5), r"accuracy has shape \(11, 1\); expected \(12,\) or \(12, episodes\)"),
    ],
)
def test_accuracies_that_cannot_be_are_refused(accuracy, message):
    forecaster = Forecaster(cases.model(), cases.known())
    with pytest.raises(DataError, match=message):
        forecaster.fit(cases.tasks("val", 12), accuracy)


def test_other_wrong_wishes_are_refused():
    model, known = cases.model(), cases.known()
    with pytest.raises(DataError, match=r"confidence=0.1 must be a number of at least 0.5"):
        Forecaster(model, known, confidence=0.1)
    with pytest.raises(DataError, match=r"train must be a Embeddings, not ndarray"):
        Forecaster(model, known.values)
    other = replace(known, header=replace(known.header, model="f" * 32))
    with pytest.raises(DataError, match="train was embedded by another model"):
        Forecaster(model, other)
    with pytest.raises(DataError, match=r"this forecaster is not fitted; call fit"):
        Forecaster(model, known).predict(cases.tasks("test", 5))


def test_in_one_call_with_a_trained_learner():
    pool = cases.pool()
    sizes = {"n_way": 3, "n_shot": 2, "n_query": 4}
    trained = train(
        ProtoNet(), mlp(3, (4,)), sample_tasks(pool, 40, split="train", **sizes),
        TrainConfig(updates=4, validate_every=4),
    )  # fmt: skip
    given = sample_tasks(pool, 100, split="val", seed=1, **sizes)
    test = sample_tasks(pool, 20, split="test", seed=2, **sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForecastWarning)  # few tasks: some lie outside
        forecasts = forecast(
            trained, cases.model(), cases.tasks("train", 60, n_shot=6), given, test, episodes=2
        )
        again = forecast(
            trained, cases.model(), cases.tasks("train", 60, n_shot=6), given, test, episodes=2,
            learner_pool=replace(pool, name="the same"),
        )  # fmt: skip
    same(forecasts, again)
    assert forecasts.learner == "ProtoNet"
    with pytest.raises(DataError, match="calibration_tasks have no queries"):
        forecast(trained, cases.model(), cases.known(), given.with_samples(2), test)
    with pytest.raises(DataError, match="has other classes, or other numbers of samples"):
        forecast(
            trained, cases.model(), cases.known(), given, test,
            learner_pool=pool.subset(np.arange(20)),
        )  # fmt: skip
