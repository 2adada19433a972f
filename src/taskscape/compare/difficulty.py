"""How hard a task is in itself: how far apart the classes within it are."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from taskscape.errors import DataError

_BLOCK_NUMBERS = 1 << 23


class Separation(NamedTuple):
    """How far apart the classes of each task are; a small number means a hard task."""

    mean: Float[np.ndarray, "tasks"]
    """Averaged over pairs of classes."""
    smallest: Float[np.ndarray, "tasks"]
    """Of the two nearest classes."""


class ClassMoments(NamedTuple):
    """Mean and spread of the prepared features of each class."""

    means: Float[np.ndarray, "classes dims"]
    spread: Float[np.ndarray, "classes"]
    """Mean squared distance of the samples from their class mean."""


def class_moments(X: object, y: object, n_classes: int | None = None) -> ClassMoments:
    """Mean and spread of each class's prepared features ``X`` (rows, dims), labels ``y`` from 0."""
    features = np.asarray(X, dtype=np.float64)
    labels = np.asarray(y)
    if features.ndim != 2 or labels.shape != (len(features),) or labels.dtype.kind not in "iu":
        raise DataError(
            f"X has shape {features.shape} and y {labels.shape} of type {labels.dtype}; expected "
            "features (rows, dims) and one class number per row."
        )
    counts = np.bincount(labels, minlength=n_classes or 0).astype(np.float64)
    present = np.maximum(counts, 1)
    means = np.zeros((len(counts), features.shape[1]))
    np.add.at(means, labels, features)
    means /= present[:, None]
    squares = ((features - means[labels]) ** 2).sum(axis=1)
    return ClassMoments(means, np.bincount(labels, squares, minlength=len(counts)) / present)


def feature_separation(moments: ClassMoments, classes: object) -> Separation:
    r"""Squared distance between class means over the spread within classes, pair by pair.

    .. math:: \frac{\|m_i - m_j\|^2}{(v_i + v_j) / 2}, \quad
        v_i = \text{mean} \|x - m_i\|^2

    ``moments`` comes from :func:`class_moments`, ``classes`` is a TaskSet or class ids (tasks,
    way) padded with -1. Moments belong to classes, not tasks, so millions of tasks cost little.
    """
    ids = np.asarray(getattr(classes, "classes", classes))
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise DataError(f"classes has shape {ids.shape} and type {ids.dtype}; expected class ids.")
    if ids.size and ids.max() >= len(moments.means):
        raise DataError(f"classes names class {ids.max()}; moments has {len(moments.means)}.")
    means, spread = moments.means - moments.means.mean(axis=0), moments.spread
    squares = (means**2).sum(axis=1)
    apart = np.maximum(squares[:, None] + squares - 2 * means @ means.T, 0.0)
    within = (spread[:, None] + spread) / 2
    ratio = apart / np.maximum(within, np.finfo(np.float64).tiny)
    np.fill_diagonal(ratio, 0.0)
    step = max(1, _BLOCK_NUMBERS // max(1, ids.shape[1] ** 2))
    mean, smallest = np.empty(len(ids)), np.empty(len(ids))
    for start in range(0, len(ids), step):
        rows = slice(start, start + step)
        real, safe = ids[rows] >= 0, np.maximum(ids[rows].astype(np.int64), 0)
        between = ratio[safe[:, :, None], safe[:, None]]
        pair = real[:, :, None] & real[:, None] & ~np.eye(ids.shape[1], dtype=bool)
        n_pairs = pair.sum(axis=(1, 2))
        if (n_pairs == 0).any():
            task = start + int(np.argmin(n_pairs))
            raise DataError(f"task {task} has fewer than 2 classes, so no separation.")
        mean[rows] = np.where(pair, between, 0.0).sum(axis=(1, 2)) / n_pairs
        smallest[rows] = np.where(pair, between, np.inf).min(axis=(1, 2))
    return Separation(mean, smallest)
