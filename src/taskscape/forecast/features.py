"""What a forecast knows of a task: numbers computed from its labelled samples, never its queries.

Every number of a task depends on that task, the model and the training tasks alone, so it is the
same in whatever company the task comes.
"""

import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from taskscape.compare import normalise_ways
from taskscape.compare.posteriors import read_posterior
from taskscape.embeddings import Embeddings, Posterior
from taskscape.similarity import PosteriorSource, TaskHardness
from taskscape.similarity.similarity import TaskFeatures, class_means, support_features
from taskscape.tasks import TaskSet
from taskscape.themes.prepare import Preparation
from taskscape.themes.task_model import OutlierTasksWarning, TaskModel

Described: TypeAlias = Mapping[str, Float[np.ndarray, "tasks"]]

DISTANCE, DIFFICULTY = "distance to the training tasks", "own difficulty"
SHAPE = "ways and shots"
COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "mean_distance": DISTANCE,
        "nearest_distance": DISTANCE,
        "near_distance": DISTANCE,
        "prototype_distance": DIFFICULTY,
        "nearest_prototypes": DIFFICULTY,
        "spread_within": DIFFICULTY,
        "hardness": DIFFICULTY,
        "n_way": SHAPE,
        "n_shot": SHAPE,
        "bound": "uncertainty",
    }
)
"""The numbers that a forecast looks at, and what they tell, in words."""
_MAIN = {"mean_distance", "prototype_distance", "hardness", "n_way", "n_shot"}
TRUST = np.array([1.0 if name in _MAIN else 0.1 for name in COLUMNS])
"""Some tell most. The others tell much the same or little; with few calibration classes, fits that
trusted them as much did worse on validation classes left out."""

_SCALE = 5.0
"""Of the cosines in ``hardness``."""
_NEAR = 10
_TYPICAL = 200
"""Training tasks whose mean distance to the others is the unit of distances."""
_FLOOR = 1e-3
"""Added to distances before their logarithm; they are in units of the mean distance."""
_TINY = 1e-12


def unit_of(train: Posterior) -> float:
    """The unit of distances: the mean between training tasks, from the first of them to all."""
    return float(PosteriorSource(train[:_TYPICAL], train).mean_distance().mean()) or 1.0


def describe(
    tasks: TaskSet, model: TaskModel, train: Posterior, unit: float
) -> dict[str, Float[np.ndarray, "tasks"]]:
    """All numbers of each task; NaN where one cannot be known, such as spread at one shot.

    Where distances are by task-themes, these are put on five ways
    (:func:`taskscape.compare.normalise_ways`), so that they do not depend on the number of classes.
    """
    with warnings.catch_warnings():
        # how well it is explained is one of the numbers, compared with tasks of the same shots
        warnings.simplefilter("ignore", OutlierTasksWarning)
        embedded = model.embed(tasks)
    source = PosteriorSource(read_even(embedded), train)
    near = source.nearest(np.arange(source.n_test), min(_NEAR, len(train))).distances / unit
    return {
        "mean_distance": np.log(source.mean_distance() / unit + _FLOOR),
        "nearest_distance": np.log(near[:, 0] + _FLOOR),
        "near_distance": np.log(near.mean(axis=1) + _FLOOR),
        **_difficulty(model.preparation_, tasks),
        "n_way": tasks.n_way.astype(np.float64),
        "n_shot": np.log(shots_of(tasks)),
        "bound": embedded.elbo.astype(np.float64),
    }


def shots_of(tasks: TaskSet) -> Float[np.ndarray, "tasks"]:
    """Labelled samples per class of each task, averaged over its classes."""
    if tasks.support is None and tasks.n_shot.all():
        return tasks.n_shot.astype(np.float64)
    samples = [b.support_mask.sum(axis=(1, 2)) for b in tasks.batches(4096)]
    return np.concatenate(samples) / tasks.n_way


def read_even(embedded: Embeddings) -> Posterior:
    """Posteriors over task-themes as if all tasks had five classes; others as they are."""
    even = normalise_ways(embedded) if embedded.header.counts_themes else embedded
    return read_posterior(even, "tasks")


def _difficulty(preparation: Preparation, tasks: TaskSet) -> dict[str, Float[np.ndarray, "tasks"]]:
    hardness = TaskHardness(scale=_SCALE, prepare=None)
    parts = [
        _geometry(features) | {"hardness": hardness.embed_features(features)[:, 0]}
        for features in support_features(tasks, preparation)
    ]
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


def _geometry(features: TaskFeatures) -> dict[str, Float[np.ndarray, "tasks"]]:
    r"""Squared distances between class means, and the spread about them, as logarithms.

    .. math:: \ln \|m_i - m_j\|^2 \text{ (mean and least over pairs)}, \quad
        \ln \frac{\sum_{c,n} \|x_{cn} - m_c\|^2}{\sum_c (N_c - 1)}
    """
    means, count = class_means(features), features.mask.sum(axis=2)
    real = count > 0
    centred = np.where(features.mask[..., None], features.x - means[:, :, None], 0.0)
    free = np.maximum(count - 1, 0).sum(axis=1)
    within = np.divide(
        (centred**2).sum(axis=(1, 2, 3)), free, out=np.full(len(count), np.nan), where=free > 0
    )
    squared = ((means[:, :, None] - means[:, None]) ** 2).sum(axis=-1)
    pair = real[:, :, None] & real[:, None] & ~np.eye(real.shape[1], dtype=bool)
    apart = np.log(np.maximum(np.where(pair, squared, 1.0), _TINY))
    return {
        "prototype_distance": np.where(pair, apart, 0.0).sum(axis=(1, 2)) / pair.sum(axis=(1, 2)),
        "nearest_prototypes": np.where(pair, apart, np.inf).min(axis=(1, 2)),
        "spread_within": np.log(np.maximum(within, _TINY)),
    }
