"""Posteriors to compare: of task-themes, of an ensemble of them, and of several kinds of factor."""

import numpy as np

from taskscape.embeddings import Factor, Posterior

LAM = (Factor("task_themes", "dirichlet", 4),)
ENSEMBLE = (
    Factor("task_themes_1", "dirichlet", 4, 0.5, 2.0),
    Factor("task_themes_2", "dirichlet", 3, 0.5, 0.7),
)
PRODUCT = (
    Factor("image_themes", "dirichlet", 6, 0.4, 3.0),
    Factor("position", "gaussian", 5, 0.6, 2.0),
)
KINDS = {"task-themes": LAM, "ensemble": ENSEMBLE, "product": PRODUCT}


def posteriors(
    rng: np.random.Generator, n: int, factors: tuple[Factor, ...], ways: tuple[int, int] = (5, 5)
) -> Posterior:
    """Tasks of so many classes, or from so many to so many."""
    parts = []
    for factor in factors:
        if factor.kind == "gaussian":
            parts.append(rng.normal(size=(n, factor.size)))
        else:
            n_way = rng.integers(ways[0], ways[1] + 1, (n, 1))
            parts.append(0.5 + n_way * rng.dirichlet(np.full(factor.size, 0.3), n))
    return Posterior.of(np.concatenate(parts, axis=1), factors)
