"""Similarity of tasks by where their samples lie: image-themes, and a mean position."""

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import digamma, softmax
from sklearn.cluster import KMeans

from taskscape.arguments import Seed, check_number, check_seed, check_whole
from taskscape.embeddings.blocks import log_beta
from taskscape.similarity.similarity import (
    FeatureSimilarity,
    Rows,
    TaskFeatures,
    TaskVectors,
    class_means,
)
from taskscape.similarity.transport import squared_distances
from taskscape.tasks import TaskSet
from taskscape.themes.places import all_rows
from taskscape.themes.prepare import Prepare

_SAMPLES_TO_LEARN_FROM = 15_000
_SAMPLES_PER_THEME = 20
"""At least, on average: themes of few samples tell samples apart, not kinds of them."""
_TASKS_TO_SCALE_BY = 300
_TASKS_AT_ONCE = 256
"""Whose samples are in memory with a number for every theme and landmark."""
_LEAST_EIGENVALUE = 1e-4
_RIDGE = 0.03
"""Of the mean variance, added to the covariance of image-themes."""
_LEAST_PRIOR = 0.01
_KERNEL_WEIGHT, _SAMPLE_WEIGHT = 2.0, 0.25
"""Of the parts of the position, where KL weighs 1: chosen on training groups of letters, symbols,
Omniglot and mini-ImageNet, as the other settings."""


class TaskMeans(FeatureSimilarity):
    r"""Distance between the means of two tasks, of all their classes alike: the simplest measure.

    .. math:: d(a, b) = \lVert \bar x_a - \bar x_b \rVert
    """

    cheap = True

    def embed_features(self, features: TaskFeatures) -> TaskVectors:
        return np.nanmean(class_means(features), axis=1)

    def rows(self, a: TaskVectors, b: TaskVectors) -> Rows:
        return lambda part: np.sqrt(squared_distances(a[part], b))


class ImageThemes(FeatureSimilarity):
    r"""A task as a product of a Dirichlet over image-themes and a Gaussian position.

    .. math:: d(a, b) = \frac{KL[\mathrm{Dir}(\nu_a) \| \mathrm{Dir}(\nu_b)]}{s}
        + \lVert m_a - m_b \rVert^2, \quad
        \nu_k = \alpha_k + \sum_n r_{nk}, \quad
        r_{nk} \propto \bigl(\pi_k\, \mathcal N(x_n; \mu_k, \Sigma)\bigr)^{1/T}, \quad
        m = \frac1N \sum_n \varphi(x_n)

    with :math:`\alpha_k = K \pi_k + 0.01`. The likelihood is tempered (T), so that a theme that a
    sample nearly belongs to counts too. :math:`\varphi` is a sample in the space of a Gaussian
    kernel with the image-themes as landmarks (Nyström), so that the distance of two positions is
    the maximum mean discrepancy of two sets of samples; and beside it the sample itself, for tasks
    that lie far from every theme. Each part is divided by its mean over pairs of training tasks
    and weighted, so that the distance of a pair does not depend on other tasks.

    The image-themes are clusters of k-means with a common covariance, learned from samples of the
    training tasks' classes. ``bandwidth`` is the kernel's, in units of the median squared distance
    between samples. Nguyen, Do and Carneiro, "Probabilistic task modelling for meta-learning"
    (2021), drop the level of classes too; their themes are not tempered, and have no position.
    Gretton et al., "A kernel two-sample test" (2012).
    """

    cheap = True
    symmetric = False

    def __init__(
        self,
        image_themes: int = 256,
        temperature: float = 3.0,
        bandwidth: float = 0.4,
        *,
        prepare: Prepare = "auto",
        seed: Seed = 0,
    ) -> None:
        super().__init__(prepare=prepare)
        self.image_themes = check_whole(image_themes, "image_themes", 2)
        self.temperature = check_number(temperature, "temperature", 0, open_="low")
        self.bandwidth = check_number(bandwidth, "bandwidth", 0, open_="low")
        self.seed = check_seed(seed)

    def fit(self, tasks: TaskSet) -> "ImageThemes":
        super().fit(tasks)
        preparation, rng = self._fitted(tasks), np.random.default_rng(self.seed)
        rows = rng.permutation(all_rows(tasks.pool, tasks.class_ids))[:_SAMPLES_TO_LEARN_FROM]
        x = np.asarray(preparation(tasks.pool.take(np.sort(rows))), dtype=np.float64)
        K = min(self.image_themes, max(2, len(x) // _SAMPLES_PER_THEME))
        clusters = KMeans(K, n_init=1, max_iter=20, random_state=self.seed % 2**32).fit(x)
        self.mu_ = clusters.cluster_centers_
        within = x - self.mu_[clusters.labels_]
        Sigma = within.T @ within / len(x)
        Sigma += _RIDGE * x.var(axis=0).mean() * np.eye(len(Sigma))
        self.whiten_ = np.linalg.cholesky(np.linalg.inv(Sigma))
        self.pi_ = (np.bincount(clusters.labels_, minlength=K) + 1e-3) / len(x)
        pairs = squared_distances(x[:1000], x[:1000])
        middle = float(np.median(pairs[np.triu_indices(len(pairs), 1)]))
        self.width_ = self.bandwidth * (middle or 1.0)
        values, vectors = np.linalg.eigh(self._kernel(self.mu_))
        keep = values > _LEAST_EIGENVALUE * values[-1]
        self.landmarks_ = vectors[:, keep] / np.sqrt(values[keep])
        self._scale_by(tasks[:_TASKS_TO_SCALE_BY])
        return self

    def _kernel(self, x: Float[np.ndarray, "n dims"]) -> Float[np.ndarray, "n K"]:
        return np.exp(-squared_distances(x, self.mu_) / self.width_)

    def _scale_by(self, tasks: TaskSet) -> None:
        """Learn what each part of the distance is on average between training tasks."""
        self.scale_, self.weights_ = 1.0, np.ones(2)
        known, K = self.embed(tasks), len(self.pi_)
        kernel, sample = np.split(known[:, K:], [self.landmarks_.shape[1]], axis=1)
        parts = self._themes(known, known), *(squared_distances(m, m) for m in (kernel, sample))
        pairs = max(1, len(tasks) * (len(tasks) - 1))  # a task is at no distance from itself
        means = [float(part.sum() / pairs) or 1.0 for part in parts]
        self.scale_ = means[0]
        self.weights_ = np.array([_KERNEL_WEIGHT, _SAMPLE_WEIGHT]) / means[1:]

    def embed_features(self, features: TaskFeatures) -> TaskVectors:
        parts = [slice(s, s + _TASKS_AT_ONCE) for s in range(0, len(features.x), _TASKS_AT_ONCE)]
        return np.concatenate([self._embed(features.x[p], features.mask[p]) for p in parts])

    def _embed(
        self, x: Float[np.ndarray, "tasks way shot dims"], mask: Bool[np.ndarray, "tasks way shot"]
    ) -> TaskVectors:
        K, flat = len(self.pi_), x.reshape(-1, x.shape[-1]).astype(np.float64)
        away = squared_distances(flat @ self.whiten_, self.mu_ @ self.whiten_)
        r = softmax((np.log(self.pi_) - away / 2) / self.temperature, axis=1)
        phi = np.sqrt(self.weights_[0]) * self._kernel(flat) @ self.landmarks_
        every = np.concatenate([r, phi, np.sqrt(self.weights_[1]) * flat], axis=1)
        total = (every * mask.reshape(-1, 1)).reshape(len(x), -1, every.shape[1]).sum(axis=1)
        total[:, :K] += K * self.pi_ + _LEAST_PRIOR
        total[:, K:] /= np.maximum(mask.sum(axis=(1, 2)), 1)[:, None]
        return total

    def rows(self, a: TaskVectors, b: TaskVectors) -> Rows:
        K = len(self.pi_)
        return lambda part: (
            self._themes(a[part], b) / self.scale_ + squared_distances(a[part, K:], b[:, K:])
        )

    def _themes(self, a: TaskVectors, b: TaskVectors) -> Float[np.ndarray, "tests trains"]:
        """KL between the Dirichlets over image-themes: affine in (ν_b, ln B(ν_b))."""
        nu, other = a[:, : len(self.pi_)], b[:, : len(self.pi_)]
        expected = digamma(nu) - digamma(nu.sum(axis=1, keepdims=True))
        own = (nu * expected).sum(axis=1) - log_beta(nu)
        return np.maximum(own[:, None] + log_beta(other) - expected @ other.T, 0.0)
