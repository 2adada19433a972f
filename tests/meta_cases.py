"""A small problem that every meta-learner should solve, and single tasks of it."""

import jax.numpy as jnp
import numpy as np

from taskscape.meta import Episode, Shots
from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet, sample_tasks

DIMS = 6


def toy_pool(n_classes: int = 24, n_samples: int = 16, seed: int = 0) -> ClassPool:
    """Round clouds about random places; a third of the classes each train, val and test."""
    rng = np.random.default_rng(seed)
    places = 2 * rng.normal(size=(n_classes, 1, DIMS))
    x = places + 0.5 * rng.normal(size=(n_classes, n_samples, DIMS))
    return ClassPool.from_arrays(
        x.reshape(-1, DIMS).astype(np.float32),
        np.repeat(np.arange(n_classes), n_samples),
        splits=np.repeat(["train", "val", "test"], n_classes // 3).tolist(),
    )


def toy_tasks(
    pool: ClassPool, split: str, n_tasks: int, *, seed: int = 0, n_way: int | tuple = 4
) -> TaskSet:
    return sample_tasks(pool, n_tasks, n_way=n_way, n_shot=3, n_query=5, split=split, seed=seed)


def toy_episode(way: int = 3, shot: int = 2, asked: int = 4, seed: int = 0) -> Episode:
    """One task, in the precision that is switched on."""
    rng = np.random.default_rng(seed)
    places = 2 * rng.normal(size=(way, 1, DIMS))

    def shots(n: int) -> Shots:
        x = (places + 0.5 * rng.normal(size=(way, n, DIMS))).reshape(-1, DIMS)
        y = np.repeat(np.arange(way), n)
        full = jnp.ones(way * n, bool)
        return Shots(jnp.asarray(x, float), jnp.asarray(y), full, jnp.ones(way, bool))

    return Episode(shots(shot), shots(asked))
