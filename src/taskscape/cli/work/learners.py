"""For ``taskscape train`` and ``evaluate``: samples as learners take them, settings, tables."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from taskscape.cli.work.tables import Tables
from taskscape.errors import DataError
from taskscape.files import json_with
from taskscape.meta import Evaluation, TrainConfig, Trained, find_learner
from taskscape.pools import ClassPool
from taskscape.recipes import prepared_pool
from taskscape.statistics import class_interval
from taskscape.tasks import TaskSet
from taskscape.themes.estimator import TaskThemes

__all__ = [
    "ACCURACIES",
    "interval_of",
    "read_settings",
    "rows_of",
    "samples_for",
    "split_if_there",
]

ACCURACIES = Tables(
    "accuracies",
    ("task", "classes", "log_likelihood", "calibration_error"),
    json_with("accuracies", "learner", "accuracy", "interval", "tasks"),
    more="accuracy",
)


def samples_for(
    trained: Trained, pool: ClassPool, model: TaskThemes | None, path: Path
) -> ClassPool:
    """The samples as the learner takes them: prepared by the model, or as they are."""
    shape, dims = tuple(trained.network.sample_shape), None
    if model is not None:
        dims = model.preparation_.dims
        if shape == (dims,):
            return prepared_pool(pool, model.preparation_, unit_length=True)
    if shape == tuple(pool.sample_shape):
        return pool
    prepared = "" if dims is None else f", and ({dims},) as the model prepares them"
    remedy = " Give the --model that it was trained with." if dims is None else ""
    raise DataError(
        f"{path} takes samples of shape {shape}; the data have {tuple(pool.sample_shape)}"
        f"{prepared}.{remedy}"
    )


def split_if_there(pool: ClassPool, split: str) -> str | None:
    return split if split in (pool.splits or ()) else None


def read_settings(learner: str, changes: list[str]) -> dict[str, Any]:
    """Read ``name=value``, each as the kind of value that the setting usually has."""
    usual = {f.name: f.default for f in fields(TrainConfig)}
    usual |= {"scale": 1.0, **find_learner(learner).defaults}
    read: dict[str, Any] = {}
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals or name not in usual:
            raise DataError(f"--set {change}: use name=value, with one of {', '.join(usual)}.")
        try:
            value = text if isinstance(usual[name], str) else json.loads(text)
        except ValueError:
            raise DataError(f"--set {change}: {text!r} is not a number, true or false.") from None
        read[name] = value
    return read


def interval_of(scores: Evaluation, tasks: TaskSet) -> tuple[tuple[float, float] | None, str]:
    """The interval of the mean accuracy, or why there is none."""
    try:
        around = class_interval(scores.accuracy, tasks.classes)
        return (around.low, around.high), ""
    except DataError as error:
        return None, str(error)


def rows_of(scores: Evaluation, tasks: TaskSet) -> list[dict[str, Any]]:
    """A row for each task; one column of accuracy for each episode, which `forecast` can read."""
    n = scores.accuracy_by_episode.shape[1]
    names = ["accuracy"] if n == 1 else [f"accuracy/{e + 1}" for e in range(n)]
    return [
        {
            "task": i,
            "classes": list(tasks.names(i)),
            "log_likelihood": float(scores.log_likelihood[i]),
            "calibration_error": float(scores.calibration_error[i]),
            **dict(zip(names, scores.accuracy_by_episode[i].tolist(), strict=True)),
        }
        for i in range(len(tasks))
    ]
