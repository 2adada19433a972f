"""The stages about learners: training, accuracy on the tasks, and the correlation diagram."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from taskscape.diagram import CorrelationDiagram, correlation_diagram
from taskscape.errors import DataError
from taskscape.meta import TrainConfig, evaluate, label_of, train
from taskscape.pools import ClassPool
from taskscape.similarity import TASK_THEMES
from taskscape.statistics import class_interval
from taskscape.storage import read_json, read_table, write_json, write_table
from taskscape.studies.pipeline.distances import Distances
from taskscape.studies.pipeline.makers import learner_of, network_of
from taskscape.studies.pipeline.plan import Plan, joined
from taskscape.studies.pipeline.stages import Stage, Steps
from taskscape.tasks import TaskSet

__all__ = ["Accuracy", "diagram_stage", "learner_stage", "mean_with_interval"]


@dataclass(frozen=True, eq=False)
class Accuracy:
    """What a trained learner reached on each task, in each episode."""

    learner: str
    test: Float[np.ndarray, "tests episodes"]
    val: Float[np.ndarray, "vals episodes"] | None
    summary: Mapping[str, Any]


def learner_stage(plan: Plan, features: ClassPool, name: str) -> Stage[Accuracy]:
    """Train a learner on random training tasks; evaluate the test and validation tasks."""
    config = plan.config
    learner, training = learner_of(config, name)

    def make(folder: Path, steps: Steps) -> None:
        tasks = plan.train[: config.learners.train_tasks]
        settings = TrainConfig.one_pass(
            len(tasks), config.learners.batch_size, config.learners.epochs, **training
        )
        with steps.step(0.7, "training"):
            trained = train(
                learner,
                network_of(config, name, features),
                plan.episodes(tasks, features, "evaluate"),
                settings,
                seed=config.seed,
            )
        asked = plan.episodes(joined(plan.test, plan.val), features, "evaluate")
        with steps.step(0.3, "evaluating"):
            found = evaluate(
                learner, trained.state, asked, seed=config.seed, episodes=config.evaluate.episodes
            )
        trained.save(folder / "learner")
        accuracy, n = found.accuracy_by_episode, len(plan.test)
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
            summary=read_json(folder / "learner.json"),
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
    return mean_with_interval(accuracy.mean(axis=1).astype(np.float64), tasks) | {
        "tasks": len(tasks),
        "episodes": accuracy.shape[1],
    }


def mean_with_interval(values: Float[np.ndarray, "tasks"], tasks: TaskSet) -> dict[str, Any]:
    """The mean over tasks, and its interval by leaving out classes where that is possible."""
    try:
        around = class_interval(values, tasks.classes)
        interval: list[float] | None = [around.low, around.high]
    except DataError:
        interval = None
    return {"accuracy": float(values.mean()), "interval": interval}


def diagram_stage(
    plan: Plan, distances: Distances, accuracies: list[Accuracy]
) -> Stage[CorrelationDiagram]:
    """Accuracy against distance to the training tasks."""
    evaluate = plan.config.evaluate

    def make(folder: Path, steps: Steps) -> None:
        with steps.step(1.0, "correlating"):
            made = correlation_diagram(
                distances.distance,
                {a.learner: a.test for a in accuracies},
                **_label(plan.config.similarity),
                classes=plan.test,
                difficulty=distances.difficulty,
                n_bins=evaluate.n_bins,
                bins=evaluate.bins,
                confidence=evaluate.confidence,
                seed=plan.config.seed,
            )
            made.save(folder / "diagram.json")
            made.plot(folder / "diagram.png")
            write_json(folder / "table.json", made.table())

    def load(folder: Path) -> CorrelationDiagram:
        return CorrelationDiagram.load(folder / "diagram.json")

    settings = {k: getattr(evaluate, k) for k in ("n_bins", "bins", "confidence")}
    needs = ("distances", *(f"learners/{name}" for name in plan.config.learners.names))
    return Stage("diagram", settings, make, load, needs)


def _label(similarity: str) -> dict[str, Any]:
    """What the diagram's axis is called where its distances are not the usual ones."""
    if similarity == TASK_THEMES:
        return {}
    return {"distance_label": f"mean distance to the training tasks ({similarity})"}
