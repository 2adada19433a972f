"""What the themes are: the samples and classes typical of them, and mean pictures."""

import base64
import io
import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image

from taskscape.pools import ClassPool
from taskscape.tasks.taskset import single_class_tasks
from taskscape.themes.co_clustering import CoClustering
from taskscape.themes.embed import embed, likelihoods
from taskscape.themes.places import evenly_spaced
from taskscape.themes.prepare import PreparedSamples

_CLASSES, _SAMPLES_PER_CLASS = 2000, 20
"""Classes, and samples of each, among which typical ones are looked for."""
_TYPICAL = 12


Numbered: TypeAlias = tuple[Int[np.ndarray, "_"], ...]
"""Of each theme, rows of samples or classes, most typical first."""


def view_themes(pool: ClassPool, model: CoClustering) -> tuple[Numbered, Numbered]:
    """Of each image-theme the typical samples, of each task-theme the typical classes.

    Among the training classes (all, where there are no splits), by a model's best fit.
    """
    split = "train" if pool.splits is not None and "train" in pool.splits else None
    classes = evenly_spaced(pool.classes_in(split), _CLASSES)
    prepared = PreparedSamples(pool, model.preparation_, classes)
    samples = _typical_samples(pool, model, prepared, classes)
    return samples, _typical_classes(pool, model, prepared, classes)


def mean_pictures(
    pool: ClassPool, samples: Numbered
) -> UInt8[np.ndarray, "K height width *colour"]:
    """The mean of the typical samples of each image-theme; black where it has none."""
    means = np.zeros((len(samples), *pool.sample_shape), dtype=np.uint8)
    for mean, rows in zip(means, samples, strict=True):
        if len(rows):
            mean[:] = np.round(255 * np.clip(pool.take(rows).mean(axis=0), 0, 1))
    return means


def _typical_samples(
    pool: ClassPool,
    model: CoClustering,
    prepared: PreparedSamples,
    classes: Int[np.ndarray, "some"],
) -> Numbered:
    """The samples of highest density among those that each image-theme explains best.

    Every class gives one sample of each theme at most, for variety.
    """
    table = likelihoods(model.members_[0], prepared, classes)
    counts = np.minimum(pool.counts[classes], _SAMPLES_PER_CLASS)
    owner = np.repeat(classes, counts)
    first = np.repeat(pool.starts[classes], counts)
    rows = first + np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    log_lik = np.asarray(table.values)[table.where[rows]]
    best = (log_lik + np.log(np.maximum(model.theme_usage_, 1e-12))).argmax(axis=1)
    typical = []
    for k in range(log_lik.shape[1]):
        mine = np.flatnonzero(best == k)
        mine = mine[np.argsort(-log_lik[mine, k], kind="stable")]
        _, once = np.unique(owner[mine], return_index=True)
        typical.append(rows[mine[np.sort(once)[:_TYPICAL]]])
    return tuple(typical)


def _typical_classes(
    pool: ClassPool,
    model: CoClustering,
    prepared: PreparedSamples,
    classes: Int[np.ndarray, "some"],
) -> Numbered:
    r"""For each task-theme, the classes that belong to it with the mixtures most like its own.

    A task of a single class has :math:`\lambda = \delta + \eta`, which tells the class's theme.
    """
    themes = model.members_[0]
    alone = single_class_tasks(pool, classes, _SAMPLES_PER_CLASS)
    embedded = embed([themes], alone, prepared, keep_gamma=True)
    assert embedded.gamma is not None
    eta = embedded.lam[0] - np.asarray(themes.delta)
    gamma = embedded.gamma[0, :, 0]
    mixture = gamma / gamma.sum(axis=1, keepdims=True)
    alpha = model.alpha_ / model.alpha_.sum(axis=1, keepdims=True)
    typical = []
    for l in range(len(alpha)):  # noqa: E741
        overlap = np.sqrt(mixture * alpha[l]).sum(axis=1)
        mine = np.flatnonzero(eta.argmax(axis=1) == l)
        order = np.lexsort((-overlap[mine], -np.round(eta[mine, l], 2)))
        typical.append(classes[mine[order[:_TYPICAL]]])
    return tuple(typical)


# -- many small pictures in one image, which the page shows in parts ----------------------------

_LARGEST, _SMALLEST = 64, 20
_PIXELS = 3_000_000
"""Of a whole sheet; thumbnails shrink where there are many."""


@dataclass(frozen=True)
class Sheet:
    """Pictures of one size in rows, as a data URI."""

    uri: str
    columns: int
    rows: int
    width: int
    height: int
    """Of one picture, in pixels."""


def make_sheet(images: UInt8[np.ndarray, "n height width *colour"]) -> Sheet:
    """Put images of one shape into a sheet, shrunk where they are large or many."""
    n, height, width = images.shape[:3]
    room = math.sqrt(_PIXELS / max(n, 1))
    side = max(_SMALLEST, min(_LARGEST, int(room)))
    shrink = min(1.0, side / max(height, width))
    w, h = max(1, round(width * shrink)), max(1, round(height * shrink))
    columns = math.ceil(math.sqrt(n * h / w)) or 1
    rows = max(1, math.ceil(n / columns))
    grey = images.ndim == 3
    whole = Image.new("L" if grey else "RGB", (columns * w, rows * h))
    for i, image in enumerate(images):
        small = Image.fromarray(image)
        if shrink < 1:
            small = small.resize((w, h), Image.Resampling.LANCZOS)
        whole.paste(small, (i % columns * w, i // columns * h))
    return Sheet(_data_uri(whole, lossless=grey), columns, rows, w, h)


def _data_uri(image: Image.Image, lossless: bool) -> str:
    stream = io.BytesIO()
    image.save(stream, "webp", lossless=lossless, quality=70 if lossless else 80)
    return f"data:image/webp;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"
