"""The stage about forecasts: learned from the validation tasks, judged on the test tasks."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from taskscape.errors import DataError
from taskscape.forecast import Forecaster, Forecasts, ForecastWarning, Judgement
from taskscape.forecast.calibration import FORMAT
from taskscape.storage import read_json, read_table, write_json, write_table
from taskscape.studies.pipeline.learn import Accuracy
from taskscape.studies.pipeline.plan import Plan
from taskscape.studies.pipeline.represent import SplitEmbeddings
from taskscape.studies.pipeline.stages import Stage, Steps
from taskscape.themes.estimator import TaskThemes

__all__ = ["Foreseen", "forecast_stage"]

_REASON = "because of "


@dataclass(frozen=True, eq=False)
class Foreseen:
    """What was expected of a learner on the test tasks, and how right that was."""

    forecasts: Forecasts
    judgement: Judgement


def forecast_stage(
    plan: Plan, model: TaskThemes, embedded: SplitEmbeddings, accuracies: list[Accuracy]
) -> Stage[list[Foreseen]]:
    """Expected accuracies of the test tasks, from the labelled samples that learners have."""
    setting = plan.config.forecast

    def make(folder: Path, steps: Steps) -> None:
        assert plan.val is not None
        val = plan.episodes(plan.val, plan.pool, "evaluate")
        test = plan.episodes(plan.test, plan.pool, "evaluate")
        made = [
            Forecaster(model, embedded.train, found.learner, confidence=setting.confidence)
            for found in accuracies
        ]
        with steps.step(0.6, "describing tasks by their labelled samples"):
            known, asked = (made[0].describe(tasks) for tasks in (val, test))
        judged = []
        names = plan.config.learners.names
        for name, forecaster, found in zip(names, made, accuracies, strict=True):
            with steps.step(0.4 / len(names), f"forecasting {found.learner}"):
                try:
                    forecaster.fit(val, found.val, described=known)
                except DataError as error:  # too few validation tasks, say: the rest stands
                    text = f"no forecast for {found.learner}: {error}"
                    warnings.warn(text, ForecastWarning, stacklevel=1)
                    continue
                forecasts = forecaster.predict(test, described=asked)
                judgement = forecaster.judge(test, found.test, described=asked)
            forecaster.save(folder / f"forecaster-{name}")
            write_table(folder / f"{name}.parquet", _columns(forecasts))
            about = {"average": forecasts.average, "summary": judgement.summary()}
            judged.append({"name": name, "judgement": judgement.to_dict(), **about})
        write_json(folder / "forecast.json", judged)

    def load(folder: Path) -> list[Foreseen]:
        return [_read(folder, told) for told in read_json(folder / "forecast.json")]

    settings = {"confidence": setting.confidence, "calibration_format": FORMAT}
    needs = ("embed", *(f"learners/{name}" for name in plan.config.learners.names))
    return Stage("forecast", settings, make, load, needs)


def _columns(forecasts: Forecasts) -> dict[str, np.ndarray]:
    columns = {"task": np.arange(len(forecasts))}
    columns |= {name: getattr(forecasts, name) for name in ("expected", "low", "high")}
    if forecasts.outside is not None:
        columns["outside"] = forecasts.outside
    return columns | {_REASON + what: moved for what, moved in forecasts.reasons.items()}


def _read(folder: Path, told: dict[str, Any]) -> Foreseen:
    table, judged = read_table(folder / f"{told['name']}.parquet"), told["judgement"]
    forecasts = Forecasts(
        learner=judged["learner"],
        expected=table["expected"],
        low=table["low"],
        high=table["high"],
        confidence=judged["confidence"],
        reasons={k[len(_REASON) :]: v for k, v in table.items() if k.startswith(_REASON)},
        average=told["average"],
        outside=table.get("outside"),
    )
    return Foreseen(forecasts, Judgement.from_dict(judged))
