"""Measured accuracy of learners on the tasks of a split, kept so that it is measured once."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from taskscape.meta import (
    Architecture,
    ProtoNet,
    TrainConfig,
    conv4,
    evaluate,
    evaluate_many,
    mlp,
    split_settings,
    train_many,
)
from taskscape.meta.episodes import redrawn
from taskscape.pools import ClassPool
from taskscape.pools.cache import cache_dir, cache_key
from taskscape.studies.similarity.study import SimilarityStudy, prepared_pool
from taskscape.tasks import TaskSet, sample_tasks
from taskscape.themes.prepare import PrepareConfig

__all__ = ["SETTINGS", "centroid_accuracy", "learning_pool", "measured_accuracies", "settings_of"]

SETTINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "features": {
        "protonet": {"scale": 1.0, "learning_rate": 3e-4},
        "maml": {"scale": 8.0, "inner_rate": 0.2, "inner_steps": 20, "learning_rate": 3e-4},
    },
    "images": {
        "protonet": {"scale": 2.0, "learning_rate": 3e-3},
        "maml": {"scale": 8.0, "inner_rate": 0.2, "inner_steps": 10, "learning_rate": 3e-3},
    },
    "conv4": {
        "protonet": {"learning_rate": 1e-3},
        "maml": {"inner_rate": 0.4, "inner_steps": 3, "learning_rate": 1e-3},
    },
}
"""Settings of each learner on network features, principal components of images, and images.

Those for principal components are the best of a few tried on validation classes of Omniglot.
"""
_PIXEL_COMPONENTS = 64
_OTHER_DRAWS = 1 << 16
"""Draws of samples that no learner is evaluated on."""


def learning_pool(study: SimilarityStudy) -> ClassPool:
    """What the learners see: images, or feature vectors of unit length."""
    if study.network == "conv4":
        return study.pool
    if not study.pool.is_images:
        return prepared_pool(study.pool, PrepareConfig(l2=True, centre=False, pca=None))
    return prepared_pool(study.pool, PrepareConfig(pca=_PIXEL_COMPONENTS), unit_length=True)


def settings_of(study: SimilarityStudy, name: str) -> dict[str, Any]:
    """How a learner is set for the kind of samples that a study has."""
    plain = "images" if study.pool.is_images else "features"
    return dict(SETTINGS["conv4" if study.network == "conv4" else plain].get(name, {}))


def measured_accuracies(
    study: SimilarityStudy, name: str, seeds: Sequence[int]
) -> dict[int, Float[np.ndarray, "tasks episodes"]]:
    """Accuracy of a learner on each task in each episode, 1-shot, for each seed of its training.

    Seeds that were measured before, with the same data and settings, are read from the cache.
    """
    settings = settings_of(study, name)
    about = (study.identity(), name, settings)
    folder = cache_dir() / "studies"
    files = {s: folder / f"accuracy-{cache_key(*about, s)}.npy" for s in seeds}
    missing = [s for s, file in files.items() if not file.exists()]
    if missing:
        found = _measure(study, name, settings, missing)
        folder.mkdir(parents=True, exist_ok=True)
        for seed, accuracy in found.items():
            np.save(files[seed], accuracy)
    return {s: np.load(file) for s, file in files.items()}


def centroid_accuracy(study: SimilarityStudy) -> Float[np.ndarray, "tasks episodes"]:
    """Nearest class mean of the learners' inputs, without learning, on other draws of samples."""
    pool = learning_pool(study)
    flat = mlp(int(np.prod(pool.sample_shape)), ())
    state = ProtoNet().init(jax.random.key(0), flat, study.n_way)
    tasks = redrawn(_asked(study, pool), _OTHER_DRAWS)
    found = evaluate(ProtoNet(), state, tasks, episodes=study.sizes.episodes)
    return found.accuracy_by_episode.astype(np.float64)


def _measure(
    study: SimilarityStudy,
    name: str,
    settings: Mapping[str, Any],
    seeds: Sequence[int],
) -> dict[int, Float[np.ndarray, "tasks episodes"]]:
    pool, n = learning_pool(study), study.sizes.learner_tasks
    learner, config = split_settings(name, settings)
    shape = pool.sample_shape
    body: Architecture = (
        conv4(shape)
        if study.network == "conv4"
        else mlp(shape[0], scale=settings.get("scale", 1.0))
    )
    training = [
        sample_tasks(
            pool, n, n_way=study.n_way, n_shot=1, n_query=study.n_query, split="train",
            seed=3000 + s,
        )
        for s in seeds
    ]  # fmt: skip
    trained = train_many(
        learner, body, training, TrainConfig.one_pass(n, **config), seeds=seeds, n_way=study.n_way
    )
    found = evaluate_many(
        learner, trained.state, _asked(study, pool), episodes=study.sizes.episodes
    )
    return {s: e.accuracy_by_episode.astype(np.float64) for s, e in zip(seeds, found, strict=True)}


def _asked(study: SimilarityStudy, pool: ClassPool) -> TaskSet:
    return replace(study.tasks, pool=pool).with_samples(1, study.n_query)
