"""A start from the data: k-means for the image-themes, then for the task-themes."""

import warnings

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from taskscape.errors import DataError
from taskscape.fit.config import FitConfig
from taskscape.model import Themes, moment_match
from taskscape.pools import ClassPool
from taskscape.prepare import PreparedSamples, all_rows
from taskscape.tasks import TaskSet

__all__ = ["Scale", "start_themes"]

_MOST_SAMPLES = 20_000
_PSEUDO_COUNT = 0.5


class Scale:
    """Where the samples lie and how far they spread; fixed for the whole fit."""

    def __init__(self, x: Float[np.ndarray, "S D"]) -> None:
        mean, variance = x.mean(axis=0, dtype=np.float64), x.var(axis=0, dtype=np.float64)
        floor = 1e-6 * max(variance.mean(), np.finfo(np.float32).tiny)
        self.shift: Float[Array, " D"] = jnp.asarray(mean, dtype=float)
        self.Psi0: Float[Array, " D"] = jnp.asarray(np.maximum(variance, floor), dtype=float)


def start_themes(
    tasks: TaskSet, prepared: PreparedSamples, config: FitConfig, seed: int
) -> tuple[Themes, Scale]:
    """Themes to start a fit from, and the scale of the data.

    k-means of the samples gives the image-themes; a histogram of image-themes for every class,
    clustered by k-means of the square roots, gives groups of classes, and a Dirichlet matched to
    the moments of each group a task-theme. Random starts of alpha end in poorer optima.
    """
    rows, owner = _rows_with_class(tasks)
    if len(rows) > _MOST_SAMPLES:
        pick = np.sort(np.random.default_rng([seed, 2]).permutation(len(rows))[:_MOST_SAMPLES])
        rows, owner = rows[pick], owner[pick]
    x = prepared.take(rows)
    K, L = config.image_themes, config.task_themes
    if len(np.unique(owner)) < L or len(x) < K:
        raise DataError(
            f"image_themes={K} and task_themes={L} need at least {K} samples and {L} classes; the "
            f"tasks have {len(x)} and {len(np.unique(owner))}. Ask for fewer themes."
        )
    scale = Scale(x)
    if not np.var(x) > 0:
        raise DataError("all samples are the same; there is nothing to tell apart.")
    labels = _clusters(K, 4, seed, x / np.sqrt(np.var(x)))
    found = len(np.unique(labels))
    if found < K:
        raise DataError(
            f"image_themes={K} need as many different samples; the tasks have {found}. Ask for "
            "fewer themes."
        )
    mu = np.stack([x[labels == k].mean(axis=0) for k in range(K)])
    return Themes(
        mu=jnp.asarray(mu, dtype=float),
        Sigma=jnp.asarray(_within(x, labels, mu, np.asarray(scale.Psi0), config), dtype=float),
        alpha=_start_alpha(labels, owner, config, seed),
        delta=jnp.full(L, config.delta, dtype=float),
        covariance=config.covariance,
    ), scale


def _rows_with_class(tasks: TaskSet) -> tuple[Int[np.ndarray, "rows"], Int[np.ndarray, "rows"]]:
    """All samples of the classes that occur in the tasks, and the class of each."""
    pool: ClassPool = tasks.pool
    classes = np.unique(tasks.classes[tasks.classes >= 0])
    by_start = classes[np.argsort(pool.starts[classes])]
    return all_rows(pool, classes), np.repeat(by_start, pool.counts[by_start])


def _within(
    x: Float[np.ndarray, "S D"],
    labels: Int[np.ndarray, "S"],
    mu: Float[np.ndarray, "K D"],
    Psi0: Float[np.ndarray, "D"],
    config: FitConfig,
) -> Float[np.ndarray, "..."]:
    """Covariances within the clusters, drawn towards the data's own variances."""
    K, D = mu.shape
    nu = max(config.nu_fraction * len(x) / K, 1.0)
    if config.covariance == "tied":
        centred = x - mu[labels]
        return (centred.T @ centred + nu * np.diag(Psi0)) / (len(x) + nu)
    parts = [x[labels == k] - mu[k] for k in range(K)]
    if config.covariance == "diag":
        return np.stack([((p**2).sum(axis=0) + nu * Psi0) / (len(p) + nu) for p in parts])
    # a small cluster leans on all of the data, so that no start is nearly singular
    nu = max(nu, float(D))
    return np.stack([(p.T @ p + nu * np.diag(Psi0)) / (len(p) + nu) for p in parts])


def _clusters(n: int, n_init: int, seed: int, x: Float[np.ndarray, "S D"]) -> Int[np.ndarray, "S"]:
    """Labels by k-means; with fewer different rows than clusters, some clusters stay empty."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return KMeans(n, n_init=n_init, random_state=seed).fit_predict(x)


def _start_alpha(
    labels: Int[np.ndarray, "S"], owner: Int[np.ndarray, "S"], config: FitConfig, seed: int
) -> Float[Array, "L K"]:
    K, L = config.image_themes, config.task_themes
    _, row = np.unique(owner, return_inverse=True)
    counts = np.full((row.max() + 1, K), _PSEUDO_COUNT / K)
    np.add.at(counts, (row, labels), 1.0)
    share = counts / counts.sum(axis=1, keepdims=True)
    groups = _clusters(L, 4, seed, np.sqrt(share))
    weights = np.eye(L)[groups].T + 1e-3  # a group of one class still has moments
    return jnp.stack(
        [
            moment_match(jnp.asarray(share, dtype=float), jnp.asarray(w, dtype=float))
            for w in weights
        ]
    )
