"""A start from the data: k-means for the image-themes, then for the task-themes."""

import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from taskscape.errors import DataError
from taskscape.model import ConditionalPosterior, Themes, moment_match
from taskscape.progress import track
from taskscape.tasks import TaskSet
from taskscape.themes.config import FitConfig
from taskscape.themes.data import FitBatch
from taskscape.themes.health import flaws, repair
from taskscape.themes.places import all_rows, evenly_spaced
from taskscape.themes.prepare import PreparedSamples, check_samples
from taskscape.themes.steps import FitState, batch_part, init, maximise

_MOST_SAMPLES = 10_000
_DOCUMENT = 32
"""Most samples of a class that a start takes for one task; real tasks seldom have more."""
_FOR_CLUSTERS = 4000, 100
"""Samples that clusters are learned from, at least: in all, and for each of them."""
_ROUNDS = 50
_TRIED = 3
"""Starts that are tried."""
_FEW, _MANY = 4, 8
"""Passes over the classes before starts are compared, and for those that continue."""
_SWEEPS = 6
"""Of a pass: most classes have settled by then, and the others continue in the next pass."""
_PSEUDO_COUNT = 0.5


class Scale:
    """Where the samples lie and how far they spread; fixed for the whole fit."""

    def __init__(self, x: Float[np.ndarray, "S D"]) -> None:
        mean, variance = x.mean(axis=0, dtype=np.float64), x.var(axis=0, dtype=np.float64)
        floor = 1e-6 * max(variance.mean(), np.finfo(np.float32).tiny)
        self.shift: Float[Array, " D"] = jnp.asarray(mean, dtype=float)
        self.Psi0: Float[Array, " D"] = jnp.asarray(np.maximum(variance, floor), dtype=float)


def starts(tasks: TaskSet, prepared: PreparedSamples, config: FitConfig, n: int) -> list[FitState]:
    """Where ``n`` fits begin: the best of several starts that the classes suggest, best first.

    Each start is k-means with another seed, taken on by passes over the classes, 16 samples or so
    at a time, each as a task of its own. How good it is shows in the bound. The starts depend on
    the classes alone, so that fits to the same classes begin alike whatever tasks they see, and
    their statistics are what the first mini-batches are averaged with.
    """
    x, owner = _samples(tasks, prepared, config)
    scale = Scale(x)
    if config.update == "paper":
        return [
            init(start_themes(x, owner, scale, config, i), scale.shift, scale.Psi0)
            for i in range(n)
        ]
    documents = _documents(x, owner, tasks.max_shot)
    per_task = float((tasks.classes >= 0).sum(axis=1).mean())
    begun = []
    for i in track(range(max(n, _TRIED)), "trying starts"):
        themes = start_themes(x, owner, scale, config, i)
        begun.append(_passes(init(themes, scale.shift, scale.Psi0), documents, config, _FEW))
    # starts as good but for rounding keep their order, whatever the machine
    ranks = [(flaws(state), -round(bound / (10 * config.min_gain))) for state, bound in begun]
    order = sorted(range(len(begun)), key=lambda i: ranks[i])
    kept = [_passes(begun[i][0], documents, config, _MANY)[0] for i in order[:n]]
    # the statistics of all classes, scaled to those of a task
    scaled = [state.stats * (per_task / state.stats.classes) for state in kept]
    return [
        replace(state, stats=replace(stats, tasks=jnp.ones_like(stats.tasks)))
        for state, stats in zip(kept, scaled, strict=True)
    ]


def _passes(
    state: FitState, documents: FitBatch, config: FitConfig, most: int
) -> tuple[FitState, float]:
    """Full passes over the classes until the bound hardly rises, repairing dead themes."""
    settings = config.of_steps()
    settings = replace(settings, max_iter=min(settings.max_iter, _SWEEPS))
    posterior: ConditionalPosterior | None = None
    last = -np.inf
    for _ in range(most):
        stats, posterior, total = batch_part(state, documents, posterior, settings)
        state = replace(state, stats=stats, themes=maximise(state, stats, settings))
        bound = float(total) / float(stats.samples)
        if bound < last + config.min_gain:
            state, repaired = repair(state, settings)
            if not repaired:
                break
            posterior = None
        last = bound
    return state, bound


def _documents(x: Float[np.ndarray, "S D"], owner: Int[np.ndarray, "S"], size: int) -> FitBatch:
    """The samples of each class in pieces of at most ``size``, each a task of one class."""
    size = min(max(size, 1), _DOCUMENT)
    place = np.arange(len(owner)) - np.searchsorted(owner, owner)  # owner ascends
    piece = np.cumsum(place % size == 0) - 1
    index = np.zeros((piece[-1] + 1, 1, size), dtype=np.int32)
    mask = np.zeros(index.shape, dtype=bool)
    index[piece, 0, place % size] = np.arange(len(owner))
    mask[piece, 0, place % size] = True
    return FitBatch(
        jnp.asarray(x, dtype=float),
        jax.device_put(index),
        jax.device_put(mask),
        jnp.ones(index.shape[:2], bool),
    )


def _samples(
    tasks: TaskSet, prepared: PreparedSamples, config: FitConfig
) -> tuple[Float[np.ndarray, "S D"], Int[np.ndarray, "S"]]:
    """Samples of the classes, at most so many, and the class of each, ascending.

    Of many small classes some are taken whole, of large ones all in part.
    """
    pool, classes = tasks.pool, tasks.class_ids
    by_start = classes[np.argsort(pool.starts[classes])]
    rows, owner = all_rows(pool, classes), np.repeat(by_start, pool.counts[by_start])
    if len(rows) > _MOST_SAMPLES:
        named = np.unique(owner)
        share = _MOST_SAMPLES / len(rows)
        part = max(int(share * len(named)), config.task_themes)
        if len(rows) <= _DOCUMENT * len(named) and part < len(named):
            pick = np.flatnonzero(np.isin(owner, evenly_spaced(named, part)))
        else:
            pick = evenly_spaced(np.arange(len(rows)), _MOST_SAMPLES)
        rows, owner = rows[pick], owner[pick]
    _, owner = np.unique(owner, return_inverse=True)
    order = np.argsort(owner, kind="stable")
    rows, owner = rows[order], owner[order]
    x = prepared.take(rows)
    K, L = config.image_themes, config.task_themes
    n_classes = int(owner.max(initial=-1)) + 1
    if n_classes < L or len(x) < K:
        raise DataError(
            f"image_themes={K} and task_themes={L} need at least {K} samples and {L} classes; the "
            f"tasks have {len(x)} and {n_classes}. Ask for fewer themes."
        )
    check_samples(x, rows, pool)
    return x, owner


def start_themes(
    x: Float[np.ndarray, "S D"],
    owner: Int[np.ndarray, "S"],
    scale: Scale,
    config: FitConfig,
    seed: int,
) -> Themes:
    """Themes from clusters of the samples, and of the classes.

    k-means of the samples gives the image-themes; a histogram of image-themes for every class,
    clustered by k-means of the square roots, gives groups of classes, and a Dirichlet matched to
    the moments of each group a task-theme. Random starts of alpha end in poorer optima.
    """
    K, L = config.image_themes, config.task_themes
    labels = _clusters(K, 1, seed, x / np.sqrt(np.var(x)))
    different = len(np.unique(labels))
    if different < K:
        raise DataError(
            f"image_themes={K} need as many different samples; the tasks have {different}. Ask for "
            "fewer themes."
        )
    mu = np.stack([x[labels == k].mean(axis=0) for k in range(K)])
    return Themes(
        mu=jnp.asarray(mu, dtype=float),
        Sigma=jnp.asarray(_within(x, labels, mu, np.asarray(scale.Psi0), config), dtype=float),
        alpha=_start_alpha(labels, owner, config, seed),
        delta=jnp.full(L, config.delta, dtype=float),
    )


def _within(
    x: Float[np.ndarray, "S D"],
    labels: Int[np.ndarray, "S"],
    mu: Float[np.ndarray, "K D"],
    Psi0: Float[np.ndarray, "D"],
    config: FitConfig,
) -> Float[np.ndarray, "K D D"]:
    """Covariances within the clusters, drawn towards the data's own variances."""
    K, D = mu.shape
    # a small cluster leans on all of the data, so that no start is nearly singular
    nu = max(config.nu_fraction * len(x) / K, float(D))
    parts = [x[labels == k] - mu[k] for k in range(K)]
    return np.stack([(p.T @ p + nu * np.diag(Psi0)) / (len(p) + nu) for p in parts])


def _clusters(n: int, n_init: int, seed: int, x: Float[np.ndarray, "S D"]) -> Int[np.ndarray, "S"]:
    """Labels by k-means; with fewer different rows than clusters, some clusters stay empty."""
    least, each = _FOR_CLUSTERS
    part = evenly_spaced(np.arange(len(x)), max(least, each * n))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        k_means = KMeans(n, n_init=n_init, max_iter=_ROUNDS, random_state=seed).fit(x[part])
        return k_means.labels_ if len(part) == len(x) else k_means.predict(x)


def _start_alpha(
    labels: Int[np.ndarray, "S"], owner: Int[np.ndarray, "S"], config: FitConfig, seed: int
) -> Float[Array, "L K"]:
    K, L = config.image_themes, config.task_themes
    counts = np.full((owner.max() + 1, K), _PSEUDO_COUNT / K)
    np.add.at(counts, (owner, labels), 1.0)
    share = counts / counts.sum(axis=1, keepdims=True)
    groups = _clusters(L, 4, seed, np.sqrt(share))
    weights = np.eye(L)[groups].T + 1e-3  # a group of one class still has moments
    return _moments(jnp.asarray(share, dtype=float), jnp.asarray(weights, dtype=float))


_moments = jax.jit(jax.vmap(moment_match, in_axes=(None, 0)))
