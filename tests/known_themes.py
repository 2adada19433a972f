"""Themes that fits are to find again, in sizes that tests share."""

import jax.numpy as jnp
import numpy as np

from taskscape.model import Themes

K, L, D = 8, 4, 16


def true_themes(seed: int) -> Themes:
    """Image-themes far apart, and task-themes that each live on three of them."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(K, D, D)) / np.sqrt(D)
    alpha = np.full((L, K), 0.25)
    for row in range(L):
        alpha[row, [2 * row, 2 * row + 1, (2 * row + 2) % K]] = [4.0, 2.0, 1.0]
    return Themes(
        mu=jnp.asarray(rng.normal(size=(K, D)) * 3, jnp.float32),
        Sigma=jnp.asarray(roots @ roots.transpose(0, 2, 1) + 0.4 * np.eye(D), jnp.float32),
        alpha=jnp.asarray(alpha, jnp.float32),
        delta=jnp.full(L, 0.5),
    )
