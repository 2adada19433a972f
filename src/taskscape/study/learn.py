"""The stages about learners: accuracy on the tasks, the correlation diagram, and forecasts."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from taskscape.diagram import CorrelationDiagram, correlation_diagram
from taskscape.errors import DataError
from taskscape.forecast import Forecaster, ForecastEvaluation, Forecasts, ForecastWarning
from taskscape.forecast.calibration import FORMAT
from taskscape.io.tables import read_table, write_csv, write_table
from taskscape.io.values import from_plain, read_json, write_json
from taskscape.meta import TrainConfig, evaluate, label_of, train
from taskscape.pools import ClassPool
from taskscape.similarity import DEFAULT_SIMILARITY
from taskscape.study.plan import Plan
from taskscape.study.represent import Embedded
from taskscape.study.result import ways_and_shots
from taskscape.study.stages import Stage, Steps
from taskscape.tasks import TaskSet
from taskscape.tasks.class_lists import write_classes
from taskscape.themes.estimator import TaskThemes


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
        network = config.learners.network_for(name, features)
        given = plan.episodes(tasks, features, "evaluate")
        with steps.step(0.7, "training"):
            trained = train(learner, network, given, settings, seed=config.seed)
        held_out = [tasks for tasks in (plan.test, plan.val) if tasks is not None]
        asked = plan.episodes(TaskSet.concatenate(held_out), features, "evaluate")
        with steps.step(0.3, "evaluating"):
            evaluation = evaluate(
                learner, trained.state, asked, seed=config.seed, episodes=config.evaluate.episodes
            )
        trained.save(folder / "learner")
        accuracy, n = evaluation.accuracy_by_episode, len(plan.test)
        for split, reached in (("test", accuracy[:n]), ("val", accuracy[n:])):
            if len(reached):
                columns = {"task": np.arange(len(reached)), "accuracy": reached.astype(np.float64)}
                write_table(folder / f"{split}.parquet", columns)

    def load(folder: Path) -> Accuracy:
        val = folder / "val.parquet"
        return Accuracy(
            learner=label_of(name),
            test=read_table(folder / "test.parquet")["accuracy"],
            val=read_table(val)["accuracy"] if val.exists() else None,
        )

    settings = plan.settings("evaluate") | plan.learner_settings(name)
    # training needs the prepared features of the fit, evaluation the tasks that were embedded
    return Stage(f"learners/{name}", settings, make, load, ("embed",))


def diagram_stage(
    plan: Plan, distances: Mapping[str, Any], accuracies: list[Accuracy]
) -> Stage[CorrelationDiagram]:
    """Accuracy against distance to the training tasks."""
    shown = ways_and_shots(plan.test.classes, plan.config.evaluate.n_shot)
    similarity = plan.config.similarity
    by = "" if similarity == DEFAULT_SIMILARITY else f" ({similarity})"

    def make(folder: Path, steps: Steps) -> None:
        with steps.step(1.0, "correlating"):
            diagram = correlation_diagram(
                distances["distance"],
                {a.learner: a.test for a in accuracies},
                distance_label=f"mean distance to the training tasks{by}",
                accuracy_label=f"accuracy, {shown}",
                classes=plan.test,
                difficulty=distances["difficulty"],
                **asdict(plan.config.diagram),
                seed=plan.config.seed,
            )
            diagram.save(folder / "diagram.json")
            diagram.plot(folder / "diagram.png")
            write_csv(folder / "tasks.csv", _by_task(plan, distances, accuracies))

    settings = plan.settings("diagram", "similarity")
    needs = ("distances", *(f"learners/{name}" for name in plan.config.learners.names))
    return Stage(
        "diagram", settings, make, lambda f: CorrelationDiagram.load(f / "diagram.json"), needs
    )


def _by_task(
    plan: Plan, distances: Mapping[str, Any], accuracies: list[Accuracy]
) -> dict[str, Any]:
    """What the diagram is drawn from, a row for each task, as `taskscape diagram` reads it."""
    columns: dict[str, Any] = {
        "task": range(len(plan.test)),
        "classes": [write_classes(plan.test.names(i)) for i in range(len(plan.test))],
        "distance": distances["distance"],
        "nearest": distances["nearest_distance"].mean(axis=1),
        "difficulty": distances["difficulty"],
    }
    for a in accuracies:
        columns |= {f"{a.learner}/{e + 1}": values for e, values in enumerate(a.test.T)}
    return columns


def forecast_stage(
    plan: Plan, model: TaskThemes, embedded: Embedded, accuracies: list[Accuracy]
) -> Stage[list[tuple[Forecasts, ForecastEvaluation]]]:
    """By learner, the accuracy to expect on each test task, and how right that is."""
    setting = plan.config.forecast

    def make(folder: Path, steps: Steps) -> None:
        assert plan.val is not None
        val, test = plan.val, plan.test
        if setting.n_shot:  # else as they are embedded
            val, test = (tasks.with_samples(setting.n_shot) for tasks in (val, test))
        forecasters = [
            Forecaster(model, embedded["train"], a.learner, confidence=setting.confidence)
            for a in accuracies
        ]
        with steps.step(0.6, "describing tasks by their labelled samples"):
            known, asked = (forecasters[0].describe(tasks) for tasks in (val, test))
        evaluated = []
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
                evaluation = forecaster.evaluate(test, accuracy.test, described=asked)
            forecaster.save(folder / f"forecaster-{name}")
            rows = {"task": np.arange(len(test))} | forecasts.columns()
            write_table(folder / f"{name}.parquet", rows)
            forecasts.save(folder / f"{name}.json")
            about = {"evaluation": evaluation.to_dict(), "summary": evaluation.summary()}
            evaluated.append({"name": name, **about})
        write_json(folder / "forecast.json", evaluated)

    def load(folder: Path) -> list[tuple[Forecasts, ForecastEvaluation]]:
        return [
            (
                Forecasts.load(folder / f"{one['name']}.json"),
                from_plain(ForecastEvaluation, one["evaluation"]),
            )
            for one in read_json(folder / "forecast.json")
        ]

    settings = {"calibration_format": FORMAT, **plan.settings("forecast")}
    needs = ("embed", *(f"learners/{name}" for name in plan.config.learners.names))
    return Stage("forecast", settings, make, load, needs)
