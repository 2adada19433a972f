"""Optimal transport between tasks: of class means, of classes as Gaussians, or of samples."""

from functools import cache
from itertools import permutations
from math import lcm

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import csc_array, eye_array, kron, vstack

from taskscape.arguments import check_choice
from taskscape.compare.posteriors import distinct_rows
from taskscape.errors import DataError
from taskscape.similarity.similarity import (
    FeatureSimilarity,
    Rows,
    TaskFeatures,
    TaskVectors,
    class_means,
)
from taskscape.tasks import TaskSet
from taskscape.themes.prepare import Prepare

_TRY_ALL = 5
"""Up to this many classes all assignments (120) are tried at once, in one matrix product."""
_MOST_COPIES = 512
"""Up to this many places an assignment is quicker than a linear programme."""
_MOST_BYTES = 1 << 32
_PAIRS_AT_ONCE = 1 << 16


class TaskMeans(FeatureSimilarity):
    r"""Distance between the means of two tasks, of all their classes alike: the simplest measure.

    .. math:: d(a, b) = \lVert \bar x_a - \bar x_b \rVert
    """

    cheap = True

    def embed_features(self, features: TaskFeatures) -> TaskVectors:
        return np.nanmean(class_means(features), axis=1)

    def rows(self, a: TaskVectors, b: TaskVectors) -> Rows:
        return lambda part: np.sqrt(squared_distances(a[part], b))


class PrototypeDistance(FeatureSimilarity):
    r"""Distance between the class means of two tasks under their best assignment.

    .. math:: d(a, b) = \sqrt{\min_\pi \frac1C \sum_c
        \lVert m^a_c - m^b_{\pi(c)} \rVert^2}

    in prepared features. Tasks with different numbers of classes are compared by optimal transport
    with equal weights, :math:`1/C_a` and :math:`1/C_b`, so that it is a metric for all tasks: the
    2-Wasserstein distance of the two sets of means. Embeddings are the class means, (tasks,
    classes, dims).
    """

    pairs_at_once = 1 << 17

    def embed_features(self, features: TaskFeatures) -> TaskVectors:
        return class_means(features)

    def rows(self, a: TaskVectors, b: TaskVectors) -> Rows:
        way_a, way_b = n_way(a), n_way(b)
        second = np.nan_to_num(b).reshape(-1, b.shape[2])

        def rows_of(part: slice) -> Float[np.ndarray, "some others"]:
            first = np.nan_to_num(a[part]).reshape(-1, a.shape[2])
            costs = squared_distances(first, second).reshape(-1, a.shape[1], len(b), b.shape[1])
            return np.sqrt(transport_classes(costs.swapaxes(1, 2), way_a[part], way_b))

        return rows_of


class OTDD(FeatureSimilarity):
    r"""Optimal transport data set distance: samples and labels are moved together.

    A sample of one task moves onto one of another at the cost of their squared distance and of the
    squared 2-Wasserstein distance of their classes, taken as Gaussians:

    .. math:: d(a, b)^2 = \min_T \sum_{nm} T_{nm} \left( \lVert x_n - x_m \rVert^2
        + W_2^2(\mathcal N_{y_n}, \mathcal N_{y_m}) \right), \quad
        W_2^2 = \lVert m - m' \rVert^2
        + \mathrm{tr}\bigl(S + S' - 2 (S^{1/2} S' S^{1/2})^{1/2}\bigr)

    with ``level="samples"``: exact transport, samples of a task weigh the same, :math:`m` and
    :math:`S` are the mean and covariance (divided by n) of a class's support samples; a class of
    one sample has covariance zero. With ``level="classes"``, the default, whole classes are moved:

    .. math:: d(a, b)^2 = 2 \min_T \sum_{cd} T_{cd} W_2^2(\mathcal N_c, \mathcal N_d)

    where classes of a task weigh the same. That is what the first becomes when the samples of each
    class are a Gaussian's and classes are moved as such; it costs a fraction, and pairs of classes
    that occur in many tasks (with the same samples) are compared once.

    Alvarez-Melis and Fusi 2020, "Geometric dataset distances via optimal transport".

    Differs: no entropic smoothing; ``level="classes"`` is the distance between Gaussian mixtures of
    Delon and Desolneux 2020. Embeddings of samples are (tasks, classes, samples, dims); those of
    classes (tasks, classes, 1 + rank, dims): the mean, then rows A with S = AᵀA.
    """

    pairs_at_once = 1 << 12

    def __init__(self, *, level: str = "classes", prepare: Prepare = "auto") -> None:
        super().__init__(prepare=prepare)
        self.level = check_choice(level, "level", ("classes", "samples"))

    def embed(self, tasks: TaskSet) -> TaskVectors:
        dims = self._fitted(tasks).dims
        per_class = tasks.max_shot if self.level == "samples" else 1 + min(tasks.max_shot, dims)
        size = len(tasks) * tasks.max_way * per_class * dims * 4
        if size > _MOST_BYTES:
            raise DataError(
                f"embedding {len(tasks):,} tasks of up to {tasks.max_shot} samples per class takes "
                f"{size / 2**30:.0f} GiB. Use level='classes', fewer principal components or fewer "
                "tasks."
            )
        return super().embed(tasks)

    def embed_features(self, features: TaskFeatures) -> TaskVectors:
        if self.level == "samples":
            return np.where(features.mask[..., None], features.x, np.float32(np.nan))
        return _gaussians(features).astype(np.float32)

    def rows(self, a: TaskVectors, b: TaskVectors) -> Rows:
        if self.level == "samples":
            return self._sample_rows(a, b)
        way_a, way_b = n_way(a), n_way(b)
        costs = _label_costs(a, b)
        return lambda part: np.sqrt(2 * transport_classes(costs(part), way_a[part], way_b))

    def _sample_rows(self, a: TaskVectors, b: TaskVectors) -> Rows:
        shown = [TaskFeatures(np.nan_to_num(e), ~np.isnan(e[..., 0])) for e in (a, b)]
        label_costs = _label_costs(*(_gaussians(x).astype(np.float32) for x in shown))
        seconds = [_samples(task) for task in b]

        def rows_of(part: slice) -> Float[np.ndarray, "some others"]:
            labels = label_costs(part)
            distances = np.empty((len(labels), len(b)))
            for i, task in enumerate(a[part]):
                x, y = _samples(task)
                for j, (z, label) in enumerate(seconds):
                    costs = squared_distances(x, z) + labels[i, j][np.ix_(y, label)]
                    distances[i, j] = move_equal_weights(costs)
            return np.sqrt(np.maximum(distances, 0.0))

        return rows_of


def gaussian_distances(
    a: Float[np.ndarray, "n rows_a dims"], b: Float[np.ndarray, "m rows_b dims"]
) -> Float[np.ndarray, "n m"]:
    r"""Squared 2-Wasserstein distance of all pairs of Gaussians, given as mean and factor rows.

    With :math:`S = A^\top A` the cross term is :math:`\mathrm{tr}(S^{1/2} S' S^{1/2})^{1/2}
    = \lVert A A'^\top \rVert_*`, the sum of singular values, of a matrix no larger than the
    number of samples; so singular covariances need no care.
    """
    means = squared_distances(a[:, 0], b[:, 0])
    A, B = a[:, 1:].astype(np.float64), b[:, 1:].astype(np.float64)
    traces = (A**2).sum(axis=(1, 2))[:, None] + (B**2).sum(axis=(1, 2))
    cross = np.empty_like(means)
    step = max(1, _PAIRS_AT_ONCE // max(1, len(b)))
    for start in range(0, len(a), step):
        products = np.einsum("nrd,msd->nmrs", A[start : start + step], B, optimize=True)
        cross[start : start + step] = np.linalg.svd(products, compute_uv=False).sum(axis=-1)
    return means + np.maximum(traces - 2 * cross, 0.0)


def _label_costs(a: TaskVectors, b: TaskVectors) -> Rows:
    """Squared distances between the classes of tasks; classes that many tasks share, once."""
    a, b = np.nan_to_num(a), np.nan_to_num(b)
    others = distinct_rows(b.reshape(b.shape[0] * b.shape[1], -1))
    second = b.reshape(-1, *b.shape[2:])[others.first]

    def costs_of(part: slice) -> Float[np.ndarray, "some others way another_way"]:
        own = a[part].reshape(-1, *a.shape[2:])
        kinds = distinct_rows(own.reshape(len(own), -1))
        costs = gaussian_distances(own[kinds.first], second)[np.ix_(kinds.kind, others.kind)]
        return costs.reshape(-1, a.shape[1], *b.shape[:2]).swapaxes(1, 2)

    return costs_of


def _gaussians(features: TaskFeatures) -> Float[np.ndarray, "tasks way numbers dims"]:
    """Mean and factor rows of every class, NaN where there is none."""
    means = class_means(features)
    left = np.where(features.mask[..., None], features.x - np.nan_to_num(means)[:, :, None], 0.0)
    left /= np.sqrt(np.maximum(features.mask.sum(axis=2), 1))[..., None, None]
    if left.shape[2] > left.shape[3]:
        # square roots of the covariances: as many rows as dimensions are enough
        values, vectors = np.linalg.eigh(np.einsum("twnd,twne->twde", left, left, optimize=True))
        rows = np.sqrt(np.maximum(values, 0.0))[..., None] * vectors.swapaxes(-1, -2)
    else:
        rows = left
    none = np.isnan(means[..., :1])[..., None]
    return np.where(none, np.nan, np.concatenate([means[:, :, None], rows], axis=2))


def _samples(
    task: Float[np.ndarray, "way shot dims"],
) -> tuple[Float[np.ndarray, "n dims"], Int[np.ndarray, "n"]]:
    """The real samples of a task and the class of each."""
    real = ~np.isnan(task[..., 0])
    return task[real], np.nonzero(real)[0]


def transport_classes(
    costs: Float[np.ndarray, "tasks others way another_way"],
    n_way: Int[np.ndarray, "tasks"],
    other_way: Int[np.ndarray, "others"],
) -> Float[np.ndarray, "tasks others"]:
    r"""Least mean cost of moving the classes of one task onto those of another.

    .. math:: \min_T \sum_{cd} T_{cd} C_{cd}, \quad T 1 = 1/C_a, \quad T^\top 1 = 1/C_b

    Every class of a task weighs the same. Between tasks with as many classes this is the optimal
    assignment; with different numbers of classes, a class is divided among several.
    """
    distances = np.empty(costs.shape[:2])
    for way in np.unique(n_way).tolist():
        for other in np.unique(other_way).tolist():
            place = np.ix_(n_way == way, other_way == other)
            block = costs[place][..., :way, :other]
            flat = block.reshape(-1, way * other)
            if way == other and way <= _TRY_ALL:
                least = (flat @ _assignments(way)).min(axis=1) / way
            else:
                least = np.array([move_equal_weights(c.reshape(way, other)) for c in flat])
            distances[place] = least.reshape(block.shape[:2])
    return distances


def move_equal_weights(costs: Float[np.ndarray, "n m"]) -> float:
    r"""Least cost where the n places of the first set weigh :math:`1/n` each, the others 1/m.

    Places are copied until both sets have as many, and then assigned to each other; where they
    would be too many, it is a linear programme.
    """
    n, m = costs.shape
    copies = lcm(n, m)
    if copies > max(n, m, _MOST_COPIES):
        rows = kron(eye_array(n), np.ones((1, m)))
        columns = kron(np.ones((1, n)), eye_array(m).tocsr()[:-1])  # the last one follows
        weights = np.repeat([1 / n, 1 / m], [n, m - 1])
        sums = csc_array(vstack([rows, columns]))
        return float(linprog(costs.ravel(), A_eq=sums, b_eq=weights, method="highs-ds").fun)
    square = np.repeat(np.repeat(costs, copies // n, axis=0), copies // m, axis=1)
    return float(square[linear_sum_assignment(square)].mean())


@cache
def _assignments(way: int) -> Float[np.ndarray, "cells assignments"]:
    """Every assignment as a column of zeros and ones over the cells of a cost matrix."""
    orders = np.array(list(permutations(range(way))))
    return np.eye(way)[orders].reshape(len(orders), way * way).T


def n_way(embedded: Float[np.ndarray, "tasks way *rest"]) -> Int[np.ndarray, "tasks"]:
    """The number of classes of each task, from an embedding that is NaN where there is none."""
    flat = embedded.reshape(*embedded.shape[:2], -1)
    return (~np.isnan(flat[:, :, 0])).sum(axis=1)


def squared_distances(
    a: Float[np.ndarray, "n dims"], b: Float[np.ndarray, "m dims"]
) -> Float[np.ndarray, "n m"]:
    """Squared Euclidean distance of all pairs."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.maximum(squares, 0.0)
