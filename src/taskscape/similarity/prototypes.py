"""Class-prototype distance: how far the class means of one task are from those of another."""

import numpy as np
from jaxtyping import Float, Int

from taskscape.similarity.features import FeatureEmbedding, TaskFeatures, class_means
from taskscape.similarity.similarity import Rows, TaskVectors
from taskscape.similarity.transport import transport_classes

__all__ = ["PrototypeDistance"]


class PrototypeDistance(FeatureEmbedding):
    r"""Distance between the class means of two tasks under their best assignment.

    .. math:: d(a, b) = \sqrt{\min_\pi \frac1C \sum_c
        \lVert m^a_c - m^b_{\pi(c)} \rVert^2}

    in prepared features. Tasks with different numbers of classes are compared by optimal transport
    with equal weights, :math:`1/C_a` and :math:`1/C_b`, so that it is a metric for all tasks: the
    2-Wasserstein distance of the two sets of means. Embeddings are the class means, (tasks,
    classes, dims).
    """

    pairs_at_once = 1 << 17

    def _embed(self, features: TaskFeatures) -> TaskVectors:
        return class_means(features)

    def rows(self, a: TaskVectors, b: TaskVectors) -> Rows:
        way_a, way_b = n_way(a), n_way(b)
        second = np.nan_to_num(b).reshape(-1, b.shape[2])

        def some_rows(some: slice) -> Float[np.ndarray, "some others"]:
            first = np.nan_to_num(a[some]).reshape(-1, a.shape[2])
            costs = squared_distances(first, second).reshape(-1, a.shape[1], len(b), b.shape[1])
            return np.sqrt(transport_classes(costs.swapaxes(1, 2), way_a[some], way_b))

        return some_rows


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
