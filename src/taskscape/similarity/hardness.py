"""Task hardness: how likely a simple classifier is to be wrong within the task."""

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from taskscape.arguments import check_number
from taskscape.similarity.similarity import FeatureSimilarity, Rows, TaskFeatures, TaskVectors
from taskscape.themes.prepare import Prepare


class TaskHardness(FeatureSimilarity):
    r"""Mean log-odds of a sample being classified wrongly by cosine to the class means.

    .. math:: \Omega = \frac1N \sum_n \ln \frac{1 - p(y_n \mid x_n)}{p(y_n \mid x_n)}, \quad
        p(c \mid x) \propto \exp(s \cos(x, m_c))

    Dhillon et al. 2020, "A baseline for few-shot image classification".

    Differs: they classify the query samples by the means of the support samples, which tells
    about samples that a new task does not have yet. Here every support sample is classified with
    itself left out of its own class's mean; a class with one sample keeps it, so that 1-shot
    hardness only tells how near the classes are to each other. Features are prepared as for the
    other measures, and ``scale`` is s.

    The embedding is this one number, (tasks, 1): the difficulty for the correlation diagram, where
    it knows nothing of the training tasks. As a distance it is the absolute difference.
    """

    cheap = True

    def __init__(self, *, scale: float = 10.0, prepare: Prepare = "auto") -> None:
        super().__init__(prepare=prepare)
        self.scale = check_number(scale, "scale", 0, open_="low")

    def embed_features(self, features: TaskFeatures) -> TaskVectors:
        x, mask = features.x, features.mask
        sums = x.sum(axis=2, dtype=np.float64)
        alone = (mask.sum(axis=2) == 1)[..., None, None]
        others = np.where(alone, x, sums[:, :, None] - x)
        own = self.scale * (_unit(x) * _unit(others)).sum(axis=-1)
        cosines = np.einsum("twnd,tcd->twnc", _unit(x), _unit(sums), optimize=True)
        known = np.asarray(mask.any(axis=2))[:, None, None]
        logits = np.where(known, self.scale * cosines, -np.inf)
        index = np.arange(x.shape[1])
        logits[:, index, :, index] = -np.inf
        wrong = logsumexp(logits, axis=-1)
        odds = np.subtract(wrong, own, out=np.zeros_like(own), where=mask).sum(axis=(1, 2))
        return (odds / mask.sum(axis=(1, 2)))[:, None]

    def rows(self, a: TaskVectors, b: TaskVectors) -> Rows:
        return lambda part: np.abs(a[part] - b[:, 0])


def _unit(x: Float[np.ndarray, "*any dims"]) -> Float[np.ndarray, "*any dims"]:
    lengths = np.linalg.norm(x.astype(np.float64), axis=-1, keepdims=True)
    return x / np.where(lengths > 0, lengths, 1.0)
