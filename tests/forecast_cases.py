"""A small pool with three kinds of classes, and a learner made of formulas to forecast."""

from functools import cache

import numpy as np

from fit_cases import blobs, fitted_themes
from taskscape import ClassPool, Embeddings, Forecaster, TaskSet, TaskThemes, sample_tasks
from taskscape.forecast.features import Described


@cache
def pool() -> ClassPool:
    """The 16 classes that the small model was fitted on, 24 to calibrate with, 20 to test."""
    splits = ["train"] * 16 + ["val"] * 24 + ["test"] * 20
    return ClassPool.from_classes(blobs(n_classes=60), name="blobs", splits=splits)


def tasks(split: str, n_tasks: int, n_way: object = (2, 4), n_shot: object = (1, 4)) -> TaskSet:
    return sample_tasks(pool(), n_tasks, n_way=n_way, n_shot=n_shot, n_query=4, split=split, seed=7)


@cache
def known() -> Embeddings:
    """The training tasks, embedded."""
    return model().embed(tasks("train", 80, n_shot=6))


def model() -> TaskThemes:
    return fitted_themes()


def accuracy(described: Described, n_way: np.ndarray, episodes: int = 8) -> np.ndarray:
    """What a learner that is worse on hard tasks reaches, with a little noise."""
    rng = np.random.default_rng(0)
    logits = 1.0 - 0.4 * described["hardness"] - np.log(n_way - 1)
    noise = 0.3 * rng.normal(size=(len(logits), episodes))
    return 1 / (1 + np.exp(-logits[:, None] - noise))


@cache
def calibrated() -> tuple[Forecaster, TaskSet]:
    """A fitted forecaster, shared: do not change it; and its calibration tasks."""
    given = tasks("val", 160)
    forecaster = Forecaster(model(), known(), "toy")
    described = forecaster.describe(given)
    return forecaster.fit(given, accuracy(described, given.n_way), described=described), given
