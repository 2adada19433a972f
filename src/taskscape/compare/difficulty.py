"""How hard a task is in itself: how far apart the classes within it are."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from taskscape.compare.divergences import DIVERGENCES
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


def class_separation(
    posterior: Any, *, kind: str = "jeffreys", class_mask: object = None
) -> Separation:
    """Divergence between the class posteriors Dir(γ_c) of each task: as the model sees it.

    ``posterior`` has ``gamma`` (tasks, classes, K), or (members, tasks, classes, K), and ``eta`` or
    ``classes``, by which padded classes are known, as ``model.embed(tasks, keep_gamma=True)`` has;
    or it is a bare array of γ, with ``class_mask`` (tasks, classes) where there is padding. Members
    are averaged after division by each one's mean.
    """
    if kind not in DIVERGENCES or DIVERGENCES[kind].needs_alpha or DIVERGENCES[kind].has_stderr:
        known = [d.name for d in DIVERGENCES.values() if not (d.needs_alpha or d.has_stderr)]
        raise DataError(f"kind={kind!r} compares no classes; use one of {', '.join(known)}.")
    given = getattr(posterior, "gamma", posterior)
    if given is None:
        raise DataError("posterior has no gamma; embed the tasks with keep_gamma=True.")
    gamma = np.asarray(given, dtype=np.float64)
    gamma = gamma[None] if gamma.ndim == 3 else gamma
    if gamma.ndim != 4 or not (gamma > 0).all():
        raise DataError(
            f"gamma has shape {gamma.shape}; expected positive (tasks, classes, image-themes) or "
            "(members, tasks, classes, image-themes)."
        )
    mask = _read_mask(posterior, class_mask, gamma.shape[1:3])
    spec = DIVERGENCES[kind]
    step = max(1, _BLOCK_NUMBERS // max(1, gamma[0, :1].size * gamma.shape[2]))
    parts = []
    for rows in (slice(start, start + step) for start in range(0, gamma.shape[1], step)):
        between = spec.finish(spec.compute(gamma[:, rows, :, None], gamma[:, rows, None]))
        parts.append(_over_pairs(between, mask[rows]))
    mean, smallest = (np.concatenate(p, axis=1) for p in zip(*parts, strict=True))
    return Separation(_over_members(mean), _over_members(smallest))


def _over_members(values: Float[np.ndarray, "members tasks"]) -> Float[np.ndarray, "tasks"]:
    """The mean over the fits of an ensemble, each divided by its mean over the tasks."""
    if len(values) == 1:
        return values[0]
    means = values.mean(axis=1, keepdims=True)
    return (values / np.where(means > 0, means, 1.0)).mean(axis=0)


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
    if n_classes is not None and len(counts) > n_classes:
        raise DataError(f"y goes up to {labels.max()}; n_classes={n_classes} has no such class.")
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
    parts = []
    for start in range(0, len(ids), step):
        block = ids[start : start + step].astype(np.int64)
        safe = np.maximum(block, 0)
        parts.append(_over_pairs(ratio[safe[:, :, None], safe[:, None]][None], block >= 0))
    mean, smallest = (np.concatenate(p, axis=1)[0] for p in zip(*parts, strict=True))
    return Separation(mean, smallest)


def _over_pairs(
    distances: Float[np.ndarray, "members tasks C C"], mask: Bool[np.ndarray, "tasks C"]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and minimum over ordered pairs of different, real classes."""
    pair = mask[:, :, None] & mask[:, None] & ~np.eye(mask.shape[1], dtype=bool)
    n_pairs = pair.sum(axis=(1, 2))
    if (n_pairs == 0).any():
        task = int(np.flatnonzero(n_pairs == 0)[0])
        raise DataError(f"task {task} has fewer than 2 classes, so no separation.")
    mean = np.where(pair, distances, 0.0).sum(axis=(2, 3)) / n_pairs
    return mean, np.where(pair, distances, np.inf).min(axis=(2, 3))


def _read_mask(
    posterior: Any, class_mask: object, shape: tuple[int, ...]
) -> Bool[np.ndarray, "tasks C"]:
    if class_mask is None and hasattr(posterior, "eta"):
        eta = np.asarray(posterior.eta)
        return (eta[0] if eta.ndim == 4 else eta).sum(axis=-1) > 0
    if class_mask is None and hasattr(posterior, "classes"):
        class_mask = np.asarray(posterior.classes) >= 0
    mask = np.ones(shape, dtype=bool) if class_mask is None else np.asarray(class_mask, dtype=bool)
    if mask.shape != shape:
        raise DataError(f"class_mask has shape {mask.shape}; expected (tasks, classes) = {shape}.")
    return mask
