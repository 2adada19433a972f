"""What several studies are made from: settings of learners, networks, features, splits, tasks."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from taskscape.compare import class_moments, feature_separation
from taskscape.errors import DataError
from taskscape.meta import (
    Architecture,
    Evaluation,
    ProtoNet,
    TrainConfig,
    conv4,
    evaluate,
    evaluate_many,
    learner_and_training,
    mlp,
    train_many,
)
from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet, enumerate_tasks, sample_tasks
from taskscape.themes.estimator import HealthWarning, OutlierTasksWarning
from taskscape.themes.places import all_rows
from taskscape.themes.prepare import Preparation, PrepareConfig, learn_preparation

__all__ = [
    "LEARNER_PRESETS",
    "PIXEL_COMPONENTS",
    "PREFERRED_SIZES",
    "difficulty",
    "draw_tasks",
    "hold_out",
    "nearest_centroid",
    "network_for",
    "prepared_pool",
    "train_and_test",
    "unit_length",
    "with_validation",
    "without_advice",
]

PIXEL_COMPONENTS = 64
"""Principal components of images that learners on features take."""
_LEAST_SEPARATION = 1e-6

PREFERRED_SIZES: Mapping[str, Mapping[str, int]] = {
    "letters": {"task_themes": 4, "image_themes": 32},
    "glyphs": {"task_themes": 4, "image_themes": 32},
    "omniglot": {"task_themes": 32, "image_themes": 32},
    "mini_imagenet": {"task_themes": 32, "image_themes": 16},
}
"""By data set, the smallest model whose bound on validation classes is within two standard errors
of the highest, of K in 8, 16, 32, 64 and L in 4, 8, 16, 32 (docs/results/sizes.jsonl, one fit, mean
over seeds); letters with symbols, which were not searched, take that of the letters."""

LEARNER_PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # Features of mini-ImageNet, tuned on its validation classes: 5-way, with 10,000 training tasks
    # at 1 shot and 1,000 at 5 shots, unless it is said otherwise. ABML and VAMPIRE were tuned when
    # their steps were plain gradient steps. maml-untuned takes the usual 5 steps of a small rate: a
    # learner that needs its training tasks.
    "paper 1-shot": {
        "protonet": {"scale": 1.0, "learning_rate": 3e-4},
        "maml": {"inner_rate": 0.2, "inner_steps": 20, "learning_rate": 3e-4},
        "abml": {"inner_rate": 0.5, "inner_steps": 10, "kl_weight": 1e-3},
        "bmaml": {"inner_rate": 1.0, "inner_steps": 10, "learning_rate": 3e-4},
        "vampire": {"inner_rate": 0.5, "inner_steps": 10, "kl_weight": 1e-4},
    },
    "paper 5-shot": {
        "protonet": {"scale": 2.0, "learning_rate": 3e-3},
        "maml": {"inner_rate": 0.05, "inner_steps": 20, "learning_rate": 3e-4},
        "abml": {"inner_rate": 0.2, "inner_steps": 10, "kl_weight": 1e-3},
        "bmaml": {"inner_rate": 1.0, "inner_steps": 10, "learning_rate": 3e-4},
        "vampire": {
            "inner_rate": 0.2, "inner_steps": 10, "kl_weight": 1e-3, "learning_rate": 3e-3,
        },
        "maml-untuned": {"inner_rate": 0.05, "inner_steps": 5, "learning_rate": 1e-3},
    },
    "paper 5-shot, 100 tasks": {
        "protonet": {"scale": 1.0, "learning_rate": 1e-3},
        "maml": {"inner_rate": 0.2, "inner_steps": 20, "learning_rate": 3e-4},
    },
    "paper 10-way, 100 tasks": {
        "protonet": {"scale": 1.0, "learning_rate": 3e-4},
        "maml": {"inner_rate": 0.2, "inner_steps": 20, "learning_rate": 3e-4},
    },
    "paper 10-way, 1,000 tasks": {
        "protonet": {"scale": 2.0, "learning_rate": 1e-3},
        "maml": {"inner_rate": 0.1, "inner_steps": 20, "learning_rate": 3e-4},
    },
    "paper 10-way, 10,000 tasks": {
        "protonet": {"scale": 2.0, "learning_rate": 3e-4},
        "maml": {"inner_rate": 0.2, "inner_steps": 20, "learning_rate": 3e-4},
    },
    "paper 5-shot, 10,000 tasks": {
        "protonet": {"scale": 2.0, "learning_rate": 3e-4},
        "maml": {"inner_rate": 0.1, "inner_steps": 20, "learning_rate": 3e-4},
    },
    # conv4 on Omniglot, compared with other rates on validation alphabets: the first two in
    # float32, the inner rates of the others on 4,000 tasks (learning-omniglot-bayesian.jsonl). Few
    # draws of weights and steps of the leader: they are most of the others' time.
    "paper images": {
        "protonet": {"learning_rate": 1e-3, "precision": "bfloat16"},
        "maml": {
            "inner_rate": 0.4, "inner_steps": 3, "learning_rate": 1e-3, "precision": "bfloat16",
        },
        "abml": {
            "inner_rate": 0.1, "inner_steps": 3, "predict_samples": 5, "precision": "bfloat16",
        },
        "bmaml": {
            "inner_rate": 0.5, "inner_steps": 3, "leader_steps": 1, "precision": "bfloat16",
        },
        "vampire": {
            "inner_rate": 0.1, "inner_steps": 3, "predict_samples": 5, "precision": "bfloat16",
        },
    },
    # 1-shot on network features, on principal components of images (the best of a few tried on
    # validation classes of Omniglot), and on images
    "similarity features": {
        "protonet": {"scale": 1.0, "learning_rate": 3e-4},
        "maml": {"scale": 8.0, "inner_rate": 0.2, "inner_steps": 20, "learning_rate": 3e-4},
    },
    "similarity components": {
        "protonet": {"scale": 2.0, "learning_rate": 3e-3},
        "maml": {"scale": 8.0, "inner_rate": 0.2, "inner_steps": 10, "learning_rate": 3e-3},
    },
    "similarity images": {
        "protonet": {"learning_rate": 1e-3},
        "maml": {"inner_rate": 0.4, "inner_steps": 3, "learning_rate": 1e-3},
    },
    # chosen on validation classes before; also what `taskscape select --rule auto` trains with
    "forecasting": {
        "protonet": {"scale": 2.0, "learning_rate": 3e-4},
        "maml": {"scale": 8.0, "learning_rate": 3e-4, "inner_rate": 0.1, "inner_steps": 20},
    },
}  # fmt: skip
"""By preset and learner, what differs from the defaults: settings of the learner, those of
:class:`taskscape.meta.TrainConfig`, and the ``scale`` of the features."""


# -- learners -----------------------------------------------------------------------------------


def network_for(
    pool: ClassPool,
    settings: Mapping[str, Any],
    *,
    widths: tuple[int, ...] = (128,),
    scale: float = 1.0,
    filters: int = 64,
) -> Architecture:
    """``conv4`` for images, ``mlp`` for features; ``scale`` where the settings have none."""
    if pool.is_images:
        return conv4(pool.sample_shape, filters)
    return mlp(pool.sample_shape[0], widths, float(settings.get("scale", scale)))


def train_and_test(
    name: str,
    settings: Mapping[str, Any],
    training: Sequence[TaskSet],
    *tests: TaskSet,
    seeds: Sequence[int],
    updates: int | None = None,
    batch_size: int = 4,
    scale: float = 1.0,
    episodes: int = 1,
) -> list[list[Evaluation]]:
    """A learner, trained on each set of tasks, side by side; all evaluated on each of the tests.

    Every task is seen once, unless it is said how many ``updates`` there are. A ``precision`` among
    the settings is that of training and of evaluation.
    """
    learner, config = learner_and_training(name, settings)
    once = TrainConfig.one_pass(len(training[0]), batch_size)
    trained = train_many(
        learner,
        network_for(training[0].pool, settings, scale=scale),
        training,
        replace(once, updates=updates or once.updates, **config),
        seeds=seeds,
        n_way=max(tasks.max_way for tasks in (*training, *tests)),
    )
    precision = config.get("precision", "float32")
    return [
        evaluate_many(learner, trained.state, t, episodes=episodes, precision=precision)
        for t in tests
    ]


def nearest_centroid(tasks: TaskSet, episodes: int) -> Evaluation:
    """Nearest class mean of the samples as they are: what learning has to beat."""
    flat = mlp(int(np.prod(tasks.pool.sample_shape)), ())
    state = ProtoNet().init(jax.random.key(0), flat, tasks.max_way)
    return evaluate(ProtoNet(), state, tasks, episodes=episodes)


@contextmanager
def without_advice() -> Iterator[None]:
    """Silence the warnings about health and outliers; studies keep the same facts in results."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HealthWarning)
        warnings.simplefilter("ignore", OutlierTasksWarning)
        yield


# -- pools --------------------------------------------------------------------------------------


def prepared_pool(
    pool: ClassPool,
    how: PrepareConfig | Preparation,
    *,
    unit_length: bool = False,
    rows_at_once: int = 8192,
) -> ClassPool:
    """The pool with prepared samples: as a model does, or learned on the training classes.

    How many rows are prepared at once decides the last bits of principal components.
    """
    if isinstance(how, PrepareConfig):
        how = learn_preparation(pool, pool.classes_in("train"), how)
    n, name = len(pool.samples), how.config.describe()
    parts = [
        how(pool.take(np.arange(start, min(start + rows_at_once, n))))
        for start in range(0, n, rows_at_once)
    ]
    x = np.concatenate(parts).astype(np.float32)
    if unit_length:
        x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.float32(1e-12))
        name = f"{name} → unit length"
    return replace(pool, name=f"{pool.name} ({name})", samples=x, class_digests=None)


def unit_length(pool: ClassPool, power: float | None = None, pca: int | None = None) -> ClassPool:
    """The pool with every feature vector scaled to length one.

    Before that, where asked for, a power of the features, and principal components of the training
    classes about their mean.
    """
    config = PrepareConfig(power=power, l2=True, centre=pca is not None, pca=pca)
    return prepared_pool(pool, config, unit_length=True, rows_at_once=len(pool.samples))


def hold_out(pool: ClassPool, n_groups: int) -> ClassPool:
    """The pool with some groups of its training classes as validation classes."""
    if pool.splits is None or pool.groups is None:
        raise DataError(
            f"validation classes are held out by group, of training classes; {pool!r} has no "
            f"{'splits' if pool.splits is None else 'groups'}."
        )
    train = sorted({g for g, s in zip(pool.groups, pool.splits, strict=True) if s == "train"})
    if n_groups >= len(train):
        raise DataError(
            f"validation takes {n_groups} groups of training classes and must leave some to train "
            f"on; {pool!r} has {len(train)}. Mark validation classes in the data."
        )
    held = set(np.random.default_rng(0).permutation(train)[:n_groups].tolist())
    splits = tuple(
        "val" if s == "train" and g in held else s
        for g, s in zip(pool.groups, pool.splits, strict=True)
    )
    return replace(pool, splits=splits)


def with_validation(pool: ClassPool, n_groups: int | None = 5) -> ClassPool:
    """The pool, with groups of training classes held out if it has no validation classes.

    ``n_groups=None`` holds out a sixth of them.
    """
    if "val" in (pool.splits or ()):
        return pool
    if n_groups is None:
        named = zip(pool.groups or (), pool.splits or (), strict=False)
        n_groups = max(1, len({g for g, s in named if s == "train"}) // 6)
    return hold_out(pool, n_groups)


# -- tasks --------------------------------------------------------------------------------------


def draw_tasks(
    pool: ClassPool,
    most: int,
    *,
    split: str | None = None,
    n_way: int,
    n_shot: int,
    seed: int,
    n_query: int = 0,
    sample: int | None = None,
    unique: bool = True,
) -> TaskSet:
    """All combinations of classes, or a sample (of ``most``) where there are more than ``most``."""
    samples: dict[str, Any] = {"n_way": n_way, "n_shot": n_shot, "n_query": n_query}
    if math.comb(len(pool.classes_in(split)), n_way) <= most:
        return enumerate_tasks(pool, split=split, seed=seed, **samples).collect()
    n = most if sample is None else sample
    return sample_tasks(pool, n, split=split, unique=unique, seed=seed, **samples)


def difficulty(
    pool: ClassPool, tasks: TaskSet, preparation: Preparation | None = None
) -> Float[np.ndarray, "tasks 2"]:
    """How much the classes of each task overlap: spread within over distance between them.

    On average over pairs of classes, and of the two nearest; from all samples of the classes, as
    they are or prepared. More is harder.
    """
    ids = tasks.class_ids
    rows = all_rows(pool, ids)
    owner = np.empty(len(pool.samples), dtype=np.int64)
    for c in ids:
        owner[pool.starts[c] : pool.starts[c] + pool.counts[c]] = c
    x = pool.samples[rows] if preparation is None else preparation(pool.take(rows))
    apart = feature_separation(class_moments(x, owner[rows], len(pool)), tasks)
    return 1 / np.maximum(np.stack([apart.mean, apart.smallest], axis=1), _LEAST_SEPARATION)
