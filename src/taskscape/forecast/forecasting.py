"""Forecasts in one call: evaluate the learner on calibration tasks, calibrate, predict."""

from dataclasses import replace
from typing import Any

from taskscape.errors import DataError
from taskscape.forecast.forecaster import Forecaster
from taskscape.forecast.result import Forecasts
from taskscape.meta import Trained, evaluate
from taskscape.pools import ClassPool
from taskscape.seeds import Seed
from taskscape.similarity import Similarity
from taskscape.tasks import TaskSet
from taskscape.themes.estimator import TaskThemes

__all__ = ["forecast"]


def forecast(
    trained: Trained,
    model: TaskThemes,
    train_tasks: Any,
    calibration_tasks: TaskSet,
    new_tasks: TaskSet,
    *,
    learner_pool: ClassPool | None = None,
    episodes: int = 10,
    confidence: float = 0.9,
    seed: Seed = 0,
    similarity: Similarity | None = None,
) -> Forecasts:
    """The expected accuracy of a trained learner on new tasks, from their support samples alone.

    ``train_tasks`` are those the learner was trained on, as tasks, embeddings or λ.
    ``calibration_tasks`` have queries and classes that the learner has not seen; each is evaluated
    ``episodes`` times with freshly drawn samples. ``learner_pool`` holds the same classes and
    samples as the learner takes them, where that differs from what the model takes, such as
    features of unit length. ``similarity`` is a fitted notion of similarity to measure distances
    by; ``train_tasks`` are then a TaskSet.
    """
    if calibration_tasks.n_query == 0:
        raise DataError("calibration_tasks have no queries; make them with n_query=15, say.")
    if episodes < 1:
        raise DataError(f"episodes={episodes} must be at least 1.")
    by_model = isinstance(train_tasks, TaskSet) and similarity is None
    train = model.transform(train_tasks) if by_model else train_tasks
    forecaster = Forecaster(
        model, train, _name(trained), confidence=confidence, similarity=similarity
    )
    asked = calibration_tasks
    if learner_pool is not None:
        asked = as_learned(calibration_tasks, learner_pool)
    found = evaluate(trained.learner, trained.state, asked, episodes=episodes, seed=seed)
    return forecaster.fit(calibration_tasks, found).predict(new_tasks)


def as_learned(tasks: TaskSet, pool: ClassPool) -> TaskSet:
    """The same tasks over another pool of the same classes and samples."""
    if pool.class_names != tasks.pool.class_names or (pool.counts != tasks.pool.counts).any():
        raise DataError(
            f"learner_pool {pool!r} has other classes, or other numbers of samples, than "
            f"{tasks.pool!r}; both must hold the same samples."
        )
    return replace(tasks, pool=pool)


def _name(trained: Trained) -> str:
    return type(trained.learner).__name__
