"""Image-themes by themselves: learned from samples, and the posteriors of tasks under them.

What a sample is under the image-themes does not depend on its task: a table holds it for all
samples of the classes, and a task is a sum of rows.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.tree_util import register_dataclass
from jaxtyping import Array, Bool, Float, Int
from scipy.linalg import block_diag
from scipy.sparse import csr_array
from scipy.spatial.distance import pdist, squareform
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from taskscape.arguments import check_number, check_whole
from taskscape.compare import mean_distance
from taskscape.devices import one_thread
from taskscape.embeddings import Factor, Posterior
from taskscape.embeddings.factors import TASK_THEMES
from taskscape.errors import DataError
from taskscape.io.arrays import get_array, tree_from
from taskscape.model import Mixture, Position, log_beta, log_joint, position, tempered_r, update_nu
from taskscape.progress import progress_bar
from taskscape.tasks import TaskSet
from taskscape.themes.embed import SampleTable, piece_sizes, pieces_at_once, refuse_lost
from taskscape.themes.places import all_rows, class_rows, evenly_spaced
from taskscape.themes.prepare import PreparedSamples, check_samples, source_weights
from taskscape.themes.side_by_side import in_order, on_cpu

IMAGE_THEMES, POSITION = "image_themes", "position"
"""The factors of a task's posterior."""
_EVIDENCE = 80.0
"""Samples that every task counts as, however many it has."""
_SAMPLES_TO_LEARN_FROM = 15_000
_SAMPLES_PER_THEME = 20
"""At least, on average: themes of few samples tell samples apart, not kinds of them."""
_ROUNDS = 20
_RIDGE = 0.03
"""Of the mean variance, added to the covariance of image-themes."""
_LEAST_SHARE = 1e-3
"""Samples that every image-theme is given besides its own."""
_DIRECTIONS = 128
"""Of the position, at most."""
_LEAST_EIGENVALUE = 1e-4
_FOR_WIDTH, _FOR_DIRECTIONS = 1000, 6000
"""Samples that the kernel's width, and the directions of the position, are learned from."""
_TASKS_TO_SCALE_BY = 300
_TASKS_ON_CPU = 2048
"""In a piece: few enough for a core's cache."""
_DRAWN_TWICE = 2
"""So many times fewer draws than samples, and only those that are drawn are looked at."""
_LARGEST_HALF = 60_000.0
_FOR_USUAL = 4000
"""Samples that tell how well unseen classes are explained."""
_LEAST_LEFT = 3
"""Groups, or classes, to leave one out of."""

WEIGHTS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "images": {IMAGE_THEMES: 1.0, "kernel": 2.0, "mean": 0.25, TASK_THEMES: 0.0},
        "features": {IMAGE_THEMES: 1.0, "kernel": 2.0, "mean": 4.0, TASK_THEMES: 0.0},
    }
)
"""What the parts of the distance weigh, by kind of sample: chosen on training groups of letters and
symbols, Omniglot, mini-ImageNet, names of places and sentences (docs/similarity.md)."""


@dataclass(frozen=True)
class ImageThemeSettings:
    """How image-themes are learned, and what the parts of the distance weigh."""

    image_themes: int
    temperature: float
    bandwidth: float
    weights: Mapping[str, float]

    def __post_init__(self) -> None:
        check_whole(self.image_themes, "image_themes", 2)
        check_number(self.temperature, "temperature", 0, open_="low")
        check_number(self.bandwidth, "bandwidth", 0, open_="low")
        known = WEIGHTS["images"]
        if set(self.weights) - set(known) or not sum(self.weights.values()):
            raise DataError(f"weights={dict(self.weights)} must weigh some of {', '.join(known)}.")
        for name, weight in self.weights.items():
            check_number(weight, f"weights[{name!r}]", 0)

    def share(self, *names: str) -> float:
        """The share of some parts in the distance."""
        total = sum(self.weights.values())
        return sum(self.weights.get(name, 0.0) for name in names) / total


@register_dataclass
@dataclass(frozen=True, eq=False)
class ImageThemes:
    """A mixture of image-themes, where its samples lie, and how its likelihood is tempered."""

    mixture: Mixture
    where: Position
    temperature: Float[Array, ""]

    @property
    def K(self) -> int:  # noqa: N802
        """The number of image-themes."""
        return len(self.mixture.pi)

    @property
    def P(self) -> int:  # noqa: N802
        """The number of directions of the position."""
        return self.where.V.shape[1]


def image_themes_from(arrays: Mapping[str, np.ndarray], prefix: str) -> ImageThemes:
    """The image-themes that :func:`taskscape.io.arrays.arrays_of` took apart."""
    K, D = get_array(arrays, f"{prefix}.mixture.mu", axes=2).shape
    _, P = get_array(arrays, f"{prefix}.where.V", axes=2).shape
    mixture = Mixture(jnp.zeros(K), jnp.zeros((K, D)), jnp.zeros((D, D)))
    where = Position(jnp.zeros(()), jnp.zeros(K + D), jnp.zeros((K + D, P)))
    return tree_from(arrays, ImageThemes(mixture, where, jnp.zeros(())), prefix)


def learn_image_themes(
    tasks: TaskSet, prepared: PreparedSamples, settings: ImageThemeSettings, seed: int
) -> tuple[ImageThemes, tuple[Factor, ...]]:
    """Image-themes of the samples of the tasks' classes, and the factors of posteriors under them.

    They are clusters of k-means with a common covariance. Each part of the distance is divided by
    its mean between training tasks, so that the distance of a pair does not depend on other tasks.
    """
    pool, classes = tasks.pool, tasks.class_ids
    rows = evenly_spaced(all_rows(pool, classes), _SAMPLES_TO_LEARN_FROM)
    x = prepared.take(rows)
    check_samples(x, rows, pool)
    mixture = _clusters(x, source_weights(pool, classes, rows), settings, seed)
    spread = np.random.default_rng(seed).permutation(x)
    width = settings.bandwidth * _median_distance(spread[:_FOR_WIDTH])
    temperature = jnp.asarray(settings.temperature, dtype=float)
    root = _kernel_root(mixture, width)
    # at first all directions, which parts are scaled by
    features = block_diag(root, np.eye(x.shape[1]))
    where = Position(*map(_array, (width, np.zeros(len(features)), features)))
    few = tasks[evenly_spaced(np.arange(len(tasks)), _TASKS_TO_SCALE_BY)]
    themes = ImageThemes(mixture, where, temperature)
    means = _means(themes, few, prepared)
    kernel, plain = np.split(means[:, themes.K :], [root.shape[1]], axis=1)
    scales = [
        np.full(part.shape[1], np.sqrt(settings.weights.get(name, 0.0) / _mean_square(part)))
        for name, part in (("kernel", kernel), ("mean", plain))
    ]
    features = features * np.concatenate(scales)
    where = _in_few_directions(themes, features, spread[:_FOR_DIRECTIONS])
    themes = ImageThemes(mixture, where, temperature)
    means = _means(themes, few, prepared)
    nu = np.asarray(update_nu(_array(means[:, : themes.K]), mixture.pi, _EVIDENCE))
    alone = Posterior.of(nu, (Factor(IMAGE_THEMES, "dirichlet", themes.K),))
    pairs = len(few) / max(1, len(few) - 1)  # a task is at no distance from itself
    return themes, (
        Factor(
            IMAGE_THEMES, "dirichlet", themes.K, settings.share(IMAGE_THEMES),
            float(mean_distance(alone, alone).mean() * pairs) or 1.0, half=True,
        ),
        Factor(
            POSITION, "gaussian", themes.P, settings.share("kernel", "mean"),
            _mean_square(means[:, themes.K :]), half=True,
        ),
    )  # fmt: skip


def explained_without(
    themes: ImageThemes, tasks: TaskSet, prepared: PreparedSamples
) -> Float[np.ndarray, "tasks"]:
    """How well each task would be explained had its classes not been learned from.

    In nats per sample, without the image-themes that have most of their samples from the group of
    the class; where there are hardly any groups, from the class itself. With these, any classes but
    those that were learned from seem badly explained.
    """
    pool, classes = tasks.pool, tasks.class_ids
    each = max(1, _FOR_USUAL // len(classes))
    rows = [evenly_spaced(pool.starts[c] + np.arange(pool.counts[c]), each) for c in classes]
    owner = np.repeat(np.arange(len(classes)), [len(own) for own in rows])
    joint = np.asarray(log_joint(_array(prepared.take(np.concatenate(rows))), themes.mixture))
    units = np.arange(len(classes))
    if pool.groups is not None:
        groups = np.unique(np.asarray(pool.groups)[classes], return_inverse=True)[1]
        units = groups if groups.max() + 1 >= _LEAST_LEFT else units
    if units.max() + 1 >= _LEAST_LEFT:
        uses = np.zeros((units.max() + 1, themes.K))
        np.add.at(uses, (units[owner], joint.argmax(axis=1)), 1)
        joint = np.where(uses.argmax(axis=0) == units[owner, None], -np.inf, joint)
    explained = np.bincount(owner, np.logaddexp.reduce(joint, axis=1)) / np.bincount(owner)
    real = tasks.classes >= 0
    of_tasks = explained[np.searchsorted(classes, np.where(real, tasks.classes, classes[0]))]
    return np.average(of_tasks, axis=1, weights=real)


def _array(values: object) -> Float[Array, "..."]:
    return jnp.asarray(values, dtype=float)


def _clusters(
    x: Float[np.ndarray, "S D"],
    weights: Float[np.ndarray, "S"] | None,
    settings: ImageThemeSettings,
    seed: int,
) -> Mixture:
    K = min(settings.image_themes, max(2, len(x) // _SAMPLES_PER_THEME))
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different samples than themes
        k_means = KMeans(K, n_init=1, max_iter=_ROUNDS, random_state=seed % 2**32)
        labels = k_means.fit(x, sample_weight=weights).labels_
    used, labels = np.unique(labels, return_inverse=True)
    mu = k_means.cluster_centers_[used].astype(np.float64)
    within = x - mu[labels]
    Sigma = within.T @ within / len(x)
    Sigma += _RIDGE * x.var(axis=0, dtype=np.float64).mean() * np.eye(len(Sigma))
    counts = np.bincount(labels, weights, minlength=len(used)) + _LEAST_SHARE
    return Mixture(*map(_array, (counts / counts.sum(), mu, Sigma)))


def _median_distance(x: Float[np.ndarray, "n D"]) -> float:
    """The median squared distance between samples."""
    return float(np.median(pdist(x, "sqeuclidean"))) or 1.0


def _kernel_root(mixture: Mixture, width: float) -> Float[np.ndarray, "K directions"]:
    r"""R with :math:`R R^\top` the inverse of the landmarks' kernel, small directions left out."""
    apart = squareform(pdist(np.asarray(mixture.mu), "sqeuclidean"))
    with one_thread():
        values, vectors = np.linalg.eigh(np.exp(-apart / width))
    keep = values > _LEAST_EIGENVALUE * values[-1]
    return vectors[:, keep] / np.sqrt(values[keep])


def _in_few_directions(
    themes: ImageThemes, features: Float[np.ndarray, "K_and_D all"], x: Float[np.ndarray, "S D"]
) -> Position:
    """The position in the directions in which samples vary most, about their mean."""
    raw = Position(themes.where.width, themes.where.centre, _array(np.eye(len(features))))
    f = np.asarray(position(_array(x), themes.mixture, raw), dtype=np.float64)
    centre = f.mean(axis=0)
    seen = (f - centre) @ features
    with one_thread():
        values, vectors = np.linalg.eigh(seen.T @ seen)
    directions = vectors[:, ::-1][:, : min(_DIRECTIONS, len(values))]
    return Position(themes.where.width, _array(centre), _array(features @ directions))


def _mean_square(m: Float[np.ndarray, "tasks directions"]) -> float:
    r"""The mean of :math:`\tfrac12 \lVert m_i - m_j \rVert^2` over pairs of tasks."""
    return float(m.var(axis=0, ddof=1).sum()) or 1.0 if len(m) > 1 else 1.0


# -- tasks --------------------------------------------------------------------------------------


class Embedded(NamedTuple):
    """The posteriors of tasks."""

    values: Float[np.ndarray | Array, "tasks columns"]
    logs: Float[np.ndarray | Array, "tasks 2"]
    elbo: Float[np.ndarray | Array, "tasks"]
    """Log-likelihood in nats per sample."""


@jax.jit
def _numbers(x: Float[Array, "S D"], themes: ImageThemes) -> Float[Array, "S columns"]:
    """What is summed over the samples of a task: r, position, log-likelihood, and one to count."""
    joint = log_joint(x, themes.mixture)
    r = tempered_r(joint, themes.temperature)
    own = position(x, themes.mixture, themes.where)
    known = logsumexp(joint, axis=1, keepdims=True)
    return jnp.concatenate([r, own, known, jnp.ones_like(known)], axis=1)


def embed_in_themes(themes: ImageThemes, tasks: TaskSet, prepared: PreparedSamples) -> Embedded:
    """The posteriors of tasks: a function of each task alone."""
    totals_of, size = _totals(themes, tasks, prepared)
    parts: list[Embedded] = []
    with progress_bar("embedding tasks", len(tasks)) as advance:

        def of_piece(start: int) -> Embedded:
            totals = totals_of(start)
            n = min(size, len(tasks) - start)
            return Embedded(*(np.asarray(part)[:n] for part in _posteriors(totals, themes)))

        for part in in_order(of_piece, range(0, len(tasks), size), pieces_at_once()):
            parts.append(part)
            advance(len(part.elbo))
    values, logs, elbo = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Embedded(values, logs, elbo)


def _means(
    themes: ImageThemes, tasks: TaskSet, prepared: PreparedSamples
) -> Float[np.ndarray, "tasks K_and_P"]:
    """Mean responsibilities and position of each task."""
    totals_of, size = _totals(themes, tasks, prepared)
    parts = [np.asarray(totals_of(start)) for start in range(0, len(tasks), size)]
    totals = np.concatenate(parts)[: len(tasks)].astype(np.float64)
    return totals[:, :-2] / totals[:, -1:]


@jax.jit
def _posteriors(totals: Float[Array, "M columns"], themes: ImageThemes) -> Embedded:
    means = totals / totals[:, -1:]
    nu = update_nu(means[:, : themes.K], themes.mixture.pi, _EVIDENCE)
    m = jnp.clip(means[:, themes.K : -2], -_LARGEST_HALF, _LARGEST_HALF)
    # as they are kept, so that what is read back is the same
    nu, m = (part.astype(jnp.float16).astype(jnp.float32) for part in (nu, m))
    logs = jnp.stack([log_beta(nu), (m * m).sum(axis=1) / 2], axis=1)
    return Embedded(jnp.concatenate([nu, m], axis=1), logs, means[:, -2])


def _totals(
    themes: ImageThemes, tasks: TaskSet, prepared: PreparedSamples
) -> tuple[Callable[[int], Float[Array | np.ndarray, "size columns"]], int]:
    """The sums over the samples of a piece of the tasks, from its start on, and its size."""
    classes, whole = tasks.class_ids, tasks.takes_everything
    columns = themes.K + themes.P + 2
    few = None
    if not whole and _DRAWN_TWICE * len(tasks) * tasks.max_way * tasks.max_shot < sum(
        tasks.pool.counts[classes].tolist()
    ):
        drawn = tasks.pool_rows(slice(None))
        few = np.unique(drawn.support[drawn.support_mask])
    table = SampleTable(prepared, classes, columns, partial(_numbers, themes=themes), few)
    refuse_lost(table, tasks)
    values = _sums_of_classes(table, classes) if whole else table.values
    sizes = piece_sizes(8 * columns)
    size = _TASKS_ON_CPU if on_cpu() else next((n for n in sizes if n >= len(tasks)), sizes[-1])
    of_class = np.zeros(len(tasks.pool), dtype=np.int32)
    of_class[classes] = np.arange(len(classes), dtype=np.int32)

    def rows_of(piece: TaskSet) -> tuple[Int[np.ndarray, "n M"], Bool[np.ndarray, "n M"]]:
        """Where the samples, or whole classes, of each task are in the table."""
        if whole:
            ids = class_rows(piece, tasks.max_way, len(piece))
            return of_class[ids], ids >= 0
        drawn = piece.pool_rows(slice(None))
        rows, mask = (part.reshape(len(piece), -1) for part in (drawn.support, drawn.support_mask))
        return np.where(mask, table.where[rows], 0).T, mask.T

    def on_host(start: int) -> Float[np.ndarray, "size columns"]:
        rows, mask = rows_of(tasks[start : start + size])
        ends = np.concatenate([[0], np.cumsum(mask.sum(axis=0))])
        ones = np.ones(ends[-1], dtype=values.dtype)
        summing = csr_array((ones, rows.T[mask.T], ends), shape=(mask.shape[1], len(values)))
        totals = np.ones((size, columns), dtype=values.dtype)
        totals[: mask.shape[1]] = summing @ values
        return totals

    def on_device(start: int) -> Float[Array, "size columns"]:
        piece = tasks[start : start + size]
        if whole or few is not None:
            filled = ((0, 0), (0, size - len(piece)))
            index, mask = (jnp.asarray(np.pad(part, filled)) for part in rows_of(piece))
        else:
            index, mask = table.find(piece, tasks.max_way, tasks.max_shot, size)
        return _sum_rows(values, index.reshape(-1, size), mask.reshape(-1, size))

    return (on_host if table.on_host else on_device), size


def _sums_of_classes(
    table: SampleTable, classes: Int[np.ndarray, "some"]
) -> Float[np.ndarray, "some columns"] | Float[Array, "some columns"]:
    values = np.asarray(table.values)
    places = [slice(table.starts[c], table.starts[c] + table.counts[c]) for c in classes.tolist()]
    sums = np.stack([values[place].sum(axis=0, dtype=np.float64) for place in places])
    sums = sums.astype(values.dtype)
    return sums if table.on_host else jnp.asarray(sums)


@jax.jit
def _sum_rows(
    values: Float[Array, "rows columns"], index: Int[Array, "n M"], mask: Bool[Array, "n M"]
) -> Float[Array, "M columns"]:
    def add(i: Int[Array, ""], total: Float[Array, "M columns"]) -> Float[Array, "M columns"]:
        return total + jnp.where(mask[i][:, None], values[index[i]], 0)

    nothing = jnp.zeros((index.shape[1], values.shape[1]), values.dtype)
    return jax.lax.fori_loop(0, len(index), add, nothing)
