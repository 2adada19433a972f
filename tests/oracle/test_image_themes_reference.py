"""Posteriors over image-themes, and positions, against plain NumPy and SciPy."""

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import digamma, gammaln, softmax
from scipy.stats import multivariate_normal

from fit_cases import small_tasks
from taskscape import TaskThemes
from taskscape.compare import distances

MODEL = TaskThemes(8, temperature=2.5, prepare=None).fit(small_tasks())
TASKS = small_tasks(12, seed=6)
MIXTURE = MODEL.themes_.mixture
PI, MU, SIGMA = (np.asarray(part, np.float64) for part in (MIXTURE.pi, MIXTURE.mu, MIXTURE.Sigma))


def samples(task: int) -> np.ndarray:
    drawn = TASKS.pool_rows(slice(task, task + 1))
    return TASKS.pool.samples[drawn.support[drawn.support_mask]].astype(np.float64)


def joint(x: np.ndarray) -> np.ndarray:
    return np.stack(
        [np.log(p) + multivariate_normal(m, SIGMA).logpdf(x) for p, m in zip(PI, MU, strict=True)],
        axis=1,
    )


def nu(task: int) -> np.ndarray:
    r = softmax(joint(samples(task)) / 2.5, axis=1)
    return len(PI) * PI + 0.01 + 80 * r.mean(axis=0)


def place(task: int) -> np.ndarray:
    where, x = MODEL.themes_.where, samples(task)
    kernel = np.exp(-cdist(x, MU, "sqeuclidean") / float(where.width))
    f = np.concatenate([kernel, x], axis=1).mean(axis=0)
    return (f - np.asarray(where.centre)) @ np.asarray(where.V)


def test_posteriors_are_those_of_plain_loops():
    embedded = MODEL.embed(TASKS)
    K = len(PI)
    for i in range(len(TASKS)):
        np.testing.assert_allclose(embedded.values[i, :K], nu(i), rtol=2e-3)  # half precision
        np.testing.assert_allclose(embedded.values[i, K:], place(i), atol=2e-3)
        bound = np.logaddexp.reduce(joint(samples(i)), axis=1).mean()
        assert abs(embedded.elbo[i] - bound) < 1e-3


def test_the_distance_is_that_of_its_formula():
    embedded = MODEL.embed(TASKS)
    themes, position = MODEL.factors_

    def apart(i: int, j: int) -> float:
        a, b = nu(i), nu(j)

        def log_beta(c: np.ndarray) -> float:
            return gammaln(c).sum() - gammaln(c.sum())

        kl = log_beta(b) - log_beta(a) + (a - b) @ (digamma(a) - digamma(a.sum()))
        moved = ((place(i) - place(j)) ** 2).sum() / 2
        return themes.share * kl / themes.scale + position.share * moved / position.scale

    computed = distances(embedded[:4], embedded[4:])
    expected = [[apart(i, j) for j in range(4, 12)] for i in range(4)]
    np.testing.assert_allclose(computed, expected, rtol=0.02, atol=0.005)


def test_the_position_is_a_maximum_mean_discrepancy():
    """With all landmarks and directions, distances of positions are those of a Gaussian kernel."""
    model = TaskThemes(4, prepare=None, weights={"kernel": 1.0}, bandwidth=3.0).fit(small_tasks())
    where, mu = model.themes_.where, np.asarray(model.themes_.mixture.mu, np.float64)
    h = float(where.width)
    x, y = samples(0), samples(1)

    def features(z: np.ndarray) -> np.ndarray:
        K = np.exp(-cdist(mu, mu, "sqeuclidean") / h)
        values, vectors = np.linalg.eigh(K)
        return np.exp(-cdist(z, mu, "sqeuclidean") / h) @ vectors / np.sqrt(values)

    plain = ((features(x).mean(0) - features(y).mean(0)) ** 2).sum()
    raw = np.exp(-cdist(np.concatenate([x, y]), mu, "sqeuclidean") / h)
    f = np.concatenate([raw, np.concatenate([x, y])], axis=1)
    own = (f - np.asarray(where.centre)) @ np.asarray(where.V)
    ours = ((own[: len(x)].mean(0) - own[len(x) :].mean(0)) ** 2).sum()
    others = samples(2)
    scale = ours / plain
    theirs = ((features(x).mean(0) - features(others).mean(0)) ** 2).sum()
    g = np.concatenate([np.exp(-cdist(others, mu, "sqeuclidean") / h), others], axis=1)
    moved = (g - np.asarray(where.centre)) @ np.asarray(where.V)
    again = ((own[: len(x)].mean(0) - moved.mean(0)) ** 2).sum()
    np.testing.assert_allclose(again, scale * theirs, rtol=1e-3)
