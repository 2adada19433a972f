"""Features that a mixture of clusters gave, with the themes that they came from."""

import jax.numpy as jnp
import numpy as np

from taskscape import ClassPool
from taskscape.model import Themes
from taskscape.themes import PrepareConfig
from taskscape.themes.prepare import PreparedSamples, learn_preparation

NOISE = 2.0


def pool_and_themes(
    classes: int, samples: int, dims: int, K: int, L: int, seed: int, spread: float = 1.2
) -> tuple[ClassPool, PreparedSamples, Themes]:
    """Classes that mix K clusters in proportions drawn from one of L Dirichlets.

    The smaller ``spread``, the more the clusters overlap and the more sweeps an E-step takes.
    """
    rng = np.random.default_rng(seed)
    mu = (spread * rng.normal(size=(K, dims)) * np.sqrt(64 / dims)).astype(np.float32)
    alpha = rng.gamma(0.7, 1.0, (L, K)) + 0.05
    X = NOISE * rng.standard_normal((classes, samples, dims), dtype=np.float32)
    for c in range(classes):  # class by class, so that the benchmark's own memory is small
        theta = rng.dirichlet(alpha[rng.integers(L)])
        X[c] += mu[rng.choice(K, samples, p=theta)]
    pool = ClassPool.from_arrays(X.reshape(-1, dims), np.repeat(np.arange(classes), samples))
    everything = np.arange(classes)
    config = PrepareConfig(centre=False, pca=None)
    prepared = PreparedSamples(pool, learn_preparation(pool, everything, config), everything)
    themes = Themes(
        mu=jnp.asarray(mu),
        Sigma=jnp.broadcast_to(NOISE**2 * jnp.eye(dims), (K, dims, dims)),
        alpha=jnp.asarray(alpha, dtype=float),
        delta=jnp.full(L, 0.5),
    )
    return pool, prepared, themes
