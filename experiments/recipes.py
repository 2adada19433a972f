"""What several experiments are made from: settings of learners, features, splits."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from taskscape.errors import DataError
from taskscape.meta import (
    LEARNERS,
    Evaluation,
    ProtoNet,
    TrainConfig,
    evaluate,
    learner_and_training,
    mlp,
    network_for,
)
from taskscape.pools import ClassPool
from taskscape.select.trials import train_and_test as run_trials
from taskscape.tasks import TaskSet

__all__ = [
    "LEARNER_PRESETS",
    "PIXEL_COMPONENTS",
    "PREFERRED_SIZES",
    "hold_out",
    "nearest_centroid",
    "train_and_test",
    "with_validation",
]

PIXEL_COMPONENTS = 64
"""Principal components of images that learners on features take."""

PREFERRED_SIZES: Mapping[str, Mapping[str, int]] = {
    "letters": {"task_themes": 4, "image_themes": 32},
    "glyphs": {"task_themes": 4, "image_themes": 32},
    "omniglot": {"task_themes": 32, "image_themes": 32},
    "mini_imagenet": {"task_themes": 32, "image_themes": 16},
}
"""By data set, the smallest model whose bound on validation classes is within two standard errors
of the highest, of K in 8, 16, 32, 64 and L in 4, 8, 16, 32 (experiments/results/sizes.jsonl.xz,
one fit, mean over seeds); letters with symbols, which were not searched, take that of letters."""

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
    # 1-shot on network features, on principal components of images, and on images
    "similarity features": {
        "protonet": {"scale": 1.0, "learning_rate": 3e-4},
        "maml": {"scale": 8.0, "inner_rate": 0.2, "inner_steps": 20, "learning_rate": 3e-4},
    },
    "similarity components": {n: LEARNERS[n].start("components") for n in ("protonet", "maml")},
    "similarity images": {n: LEARNERS[n].start("images") for n in ("protonet", "maml")},
    # chosen on validation classes before
    "forecasting": {
        "protonet": {"scale": 2.0, "learning_rate": 3e-4},
        "maml": {"scale": 8.0, "learning_rate": 3e-4, "inner_rate": 0.1, "inner_steps": 20},
    },
}  # fmt: skip
"""By preset and learner, what differs from the defaults: settings of the learner, those of
:class:`taskscape.meta.TrainConfig`, and the ``scale`` of the features."""


def train_and_test(
    name: str,
    settings: Mapping[str, Any],
    training: Sequence[TaskSet],
    tests: TaskSet,
    *,
    seeds: Sequence[int],
    batch_size: int = 4,
    episodes: int = 1,
    scale: float = 8.0,
) -> list[Evaluation]:
    """A learner, trained once over each set of tasks, side by side, and evaluated on the tests."""
    learner, config = learner_and_training(name, settings)
    once = TrainConfig.one_pass(len(training[0]), batch_size, **config)
    network = network_for(training[0].pool, settings, scale=scale)
    (every,) = run_trials(learner, network, training, [tests], once, seeds=seeds, episodes=episodes)
    return every


def nearest_centroid(tasks: TaskSet, episodes: int) -> Evaluation:
    """Nearest class mean of the samples as they are: what learning has to beat."""
    flat = mlp(int(np.prod(tasks.pool.sample_shape)), ())
    state = ProtoNet().init(jax.random.key(0), flat, tasks.max_way)
    return evaluate(ProtoNet(), state, tasks, episodes=episodes)


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
