"""The stages about learners: accuracy on the tasks, the correlation diagram, and forecasts."""

import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from taskscape.csv_tables import write_csv
from taskscape.diagram import CorrelationDiagram, correlation_diagram
from taskscape.errors import DataError
from taskscape.forecast import Forecaster, Forecasts, ForecastWarning, Judgement
from taskscape.forecast.calibration import FORMAT
from taskscape.meta import TrainConfig, evaluate, label_of, train
from taskscape.pools import ClassPool
from taskscape.similarity import TASK_THEMES
from taskscape.statistics import class_interval
from taskscape.storage import read_json, read_table, write_json, write_table
from taskscape.study.distances import Distances
from taskscape.study.plan import Plan
from taskscape.study.represent import SplitEmbeddings
from taskscape.study.result import ways_and_shots
from taskscape.study.stages import Stage, Steps
from taskscape.tasks import TaskSet
from taskscape.tasks.class_lists import write_classes
from taskscape.themes.estimator import TaskThemes

__all__ = ["Accuracy", "LearnerForecasts", "diagram_stage", "forecast_stage", "learner_stage"]

_REASON = "because of "


@dataclass(frozen=True, eq=False)
class Accuracy:
    """What a trained learner reached on each task, in each episode."""

    learner: str
    test: Float[np.ndarray, "tests episodes"]
    val: Float[np.ndarray, "vals episodes"] | None


def learner_stage(plan: Plan, features: ClassPool, name: str) -> Stage[Accuracy]:
    """Train a learner on random training tasks; evaluate the test and validation tasks."""
    config = plan.config
    learner, training = config.learners.learner(name)

    def make(folder: Path, steps: Steps) -> None:
        tasks = plan.train[: config.learners.train_tasks]
        settings = TrainConfig.one_pass(
            len(tasks), config.learners.batch_size, config.learners.epochs, **training
        )
        with steps.step(0.7, "training"):
            trained = train(
                learner,
                config.learners.network_for(name, features),
                plan.episodes(tasks, features, "evaluate"),
                settings,
                seed=config.seed,
            )
        judged = [tasks for tasks in (plan.test, plan.val) if tasks is not None]
        asked = plan.episodes(TaskSet.concatenate(judged), features, "evaluate")
        with steps.step(0.3, "evaluating"):
            evaluation = evaluate(
                learner, trained.state, asked, seed=config.seed, episodes=config.evaluate.episodes
            )
        trained.save(folder / "learner")
        accuracy, n = evaluation.accuracy_by_episode, len(plan.test)
        write_table(folder / "test.parquet", _columns(accuracy[:n]))
        summary = {"learner": label_of(name), "test": _summary(accuracy[:n], plan.test)}
        if plan.val is not None:
            write_table(folder / "val.parquet", _columns(accuracy[n:]))
            summary["val"] = _summary(accuracy[n:], plan.val)
        write_json(folder / "learner.json", summary)

    def load(folder: Path) -> Accuracy:
        val = folder / "val.parquet"
        return Accuracy(
            learner=label_of(name),
            test=read_table(folder / "test.parquet")["accuracy"],
            val=read_table(val)["accuracy"] if val.exists() else None,
        )

    own = {k: v for k, v in asdict(config.learners).items() if k not in ("names", "settings")}
    measured = {k: getattr(config.evaluate, k) for k in ("n_shot", "n_query", "episodes")}
    settings = {**own, "own": dict(config.learners.settings.get(name, {})), **measured}
    settings |= {"seed": config.seed}
    # training needs the prepared features of the fit, evaluation the tasks that were embedded
    return Stage(f"learners/{name}", settings, make, load, ("embed",))


def _columns(accuracy: Float[np.ndarray, "tasks episodes"]) -> dict[str, np.ndarray]:
    return {"task": np.arange(len(accuracy)), "accuracy": accuracy.astype(np.float64)}


def _summary(accuracy: Float[np.ndarray, "tasks episodes"], tasks: TaskSet) -> dict[str, Any]:
    """The mean over tasks, and its interval by leaving out classes where that is possible."""
    values = accuracy.mean(axis=1).astype(np.float64)
    try:
        around = class_interval(values, tasks.classes)
        interval: list[float] | None = [around.low, around.high]
    except DataError:
        interval = None
    n, episodes = accuracy.shape
    mean = float(values.mean())
    return {"accuracy": mean, "interval": interval, "tasks": n, "episodes": episodes}


def diagram_stage(
    plan: Plan, distances: Distances, accuracies: list[Accuracy]
) -> Stage[CorrelationDiagram]:
    """Accuracy against distance to the training tasks."""
    evaluate = plan.config.evaluate

    def make(folder: Path, steps: Steps) -> None:
        with steps.step(1.0, "correlating"):
            diagram = correlation_diagram(
                distances.distance,
                {a.learner: a.test for a in accuracies},
                **_label(plan.config.similarity),
                accuracy_label=f"accuracy, {ways_and_shots(plan.test.classes, evaluate.n_shot)}",
                classes=plan.test,
                difficulty=distances.difficulty,
                n_bins=evaluate.n_bins,
                bins=evaluate.bins,
                confidence=evaluate.confidence,
                seed=plan.config.seed,
            )
            diagram.save(folder / "diagram.json")
            diagram.plot(folder / "diagram.png")
            write_json(folder / "table.json", diagram.table())
            write_csv(folder / "tasks.csv", _by_task(plan, distances, accuracies))

    def load(folder: Path) -> CorrelationDiagram:
        return CorrelationDiagram.load(folder / "diagram.json")

    settings = {k: getattr(evaluate, k) for k in ("n_bins", "bins", "confidence")}
    needs = ("distances", *(f"learners/{name}" for name in plan.config.learners.names))
    return Stage("diagram", settings, make, load, needs)


def _by_task(plan: Plan, distances: Distances, accuracies: list[Accuracy]) -> dict[str, Any]:
    """What the diagram is drawn from, a row for each task, as `taskscape diagram` reads it."""
    columns: dict[str, Any] = {
        "task": range(len(plan.test)),
        "classes": [write_classes(plan.test.names(i)) for i in range(len(plan.test))],
        "distance": distances.distance,
        "difficulty": distances.difficulty,
    }
    for a in accuracies:
        columns |= {f"{a.learner}/{e + 1}": values for e, values in enumerate(a.test.T)}
    return columns


def _label(similarity: str) -> dict[str, Any]:
    """What the diagram's axis is called where its distances are not the usual ones."""
    if similarity == TASK_THEMES:
        return {}
    return {"distance_label": f"mean distance to the training tasks ({similarity})"}


@dataclass(frozen=True, eq=False)
class LearnerForecasts:
    """What was expected of a learner on the test tasks, and how right that was."""

    forecasts: Forecasts
    judgement: Judgement


def forecast_stage(
    plan: Plan, model: TaskThemes, embedded: SplitEmbeddings, accuracies: list[Accuracy]
) -> Stage[list[LearnerForecasts]]:
    """Expected accuracies of the test tasks, from labelled samples of their classes."""
    setting = plan.config.forecast

    def make(folder: Path, steps: Steps) -> None:
        assert plan.val is not None
        val, test = plan.val, plan.test
        if setting.n_shot:  # else as they are embedded
            val, test = (tasks.with_samples(setting.n_shot) for tasks in (val, test))
        forecasters = [
            Forecaster(model, embedded.train, a.learner, confidence=setting.confidence)
            for a in accuracies
        ]
        with steps.step(0.6, "describing tasks by their labelled samples"):
            known, asked = (forecasters[0].describe(tasks) for tasks in (val, test))
        judged = []
        names = plan.config.learners.names
        for name, forecaster, accuracy in zip(names, forecasters, accuracies, strict=True):
            with steps.step(0.4 / len(names), f"forecasting {accuracy.learner}"):
                try:
                    forecaster.fit(val, accuracy.val, described=known)
                except DataError as error:  # too few validation tasks, say: the rest stands
                    text = f"No forecast for {accuracy.learner}: {error}"
                    warnings.warn(text, ForecastWarning, stacklevel=1)
                    continue
                forecasts = forecaster.predict(test, described=asked)
                judgement = forecaster.judge(test, accuracy.test, described=asked)
            forecaster.save(folder / f"forecaster-{name}")
            write_table(folder / f"{name}.parquet", _forecast_columns(forecasts))
            about = {"average": forecasts.average, "summary": judgement.summary()}
            judged.append({"name": name, "judgement": judgement.to_dict(), **about})
        write_json(folder / "forecast.json", judged)

    def load(folder: Path) -> list[LearnerForecasts]:
        return [_read(folder, one) for one in read_json(folder / "forecast.json")]

    settings = {"calibration_format": FORMAT, **asdict(setting)}
    needs = ("embed", *(f"learners/{name}" for name in plan.config.learners.names))
    return Stage("forecast", settings, make, load, needs)


def _forecast_columns(forecasts: Forecasts) -> dict[str, np.ndarray]:
    columns = {"task": np.arange(len(forecasts))}
    columns |= {name: getattr(forecasts, name) for name in ("expected", "low", "high")}
    if forecasts.outside is not None:
        columns["outside"] = forecasts.outside
    return columns | {_REASON + what: moved for what, moved in forecasts.reasons.items()}


def _read(folder: Path, stored: dict[str, Any]) -> LearnerForecasts:
    table, judged = read_table(folder / f"{stored['name']}.parquet"), stored["judgement"]
    forecasts = Forecasts(
        learner=judged["learner"],
        expected=table["expected"],
        low=table["low"],
        high=table["high"],
        confidence=judged["confidence"],
        reasons={k[len(_REASON) :]: v for k, v in table.items() if k.startswith(_REASON)},
        average=stored["average"],
        outside=table.get("outside"),
    )
    return LearnerForecasts(forecasts, Judgement.from_dict(judged))
