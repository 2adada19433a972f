"""What a study of similarity is about: a pool, the tasks of a split, and how hard they are."""

from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.compare import class_moments, feature_separation
from taskscape.pools import ClassPool
from taskscape.similarity import TaskHardness
from taskscape.tasks import TaskSet, enumerate_tasks, sample_tasks
from taskscape.themes.prepare import (
    Preparation,
    PrepareConfig,
    all_rows,
    choose_config,
    learn_preparation,
)

__all__ = ["CONTROLS", "SimilarityStudy", "Sizes", "prepared_pool"]

CONTROLS = ("separation", "smallest separation", "hardness", "nearest centroid")
"""Measures of a task's own difficulty, in the order in which they are controlled for."""
_MOST_TO_ENUMERATE = 20_000
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class Sizes:
    """How many tasks of each kind; ``few`` is for notions that cost much per pair of tasks."""

    tasks: int | None = None
    """Of the split; None: every combination of classes, or 5,000 if they are more than 20,000."""
    fit_tasks: int = 20_000
    reference: int = 10_000
    """Training tasks that distances are measured to."""
    few_tasks: int = 2_000
    few_reference: int = 500
    learner_tasks: int = 10_000
    episodes: int = 20
    probe_updates: int = 2_000

    @staticmethod
    def scaled(scale: float) -> "Sizes":
        """Smaller sizes, none of them below what still tells something."""

        def of(full: int, least: int) -> int:
            return min(full, max(least, round(scale * full)))

        whole = Sizes()
        return Sizes(
            tasks=None if scale >= 1 else of(10_000, 1_000),
            fit_tasks=of(whole.fit_tasks, 4_000),
            reference=of(whole.reference, 2_000),
            few_tasks=of(whole.few_tasks, 500),
            few_reference=of(whole.few_reference, 200),
            learner_tasks=of(whole.learner_tasks, 2_000),
            probe_updates=of(whole.probe_updates, 500),
        )


@dataclass(frozen=True)
class SimilarityStudy:
    """The tasks of one split of a pool, whose accuracy is to be predicted."""

    pool: ClassPool
    """The samples as they came."""
    split: str = "test"
    sizes: Sizes = Sizes()
    n_way: int = 5
    n_query: int = 15
    fit_way: tuple[int, int] = (5, 10)
    embed_shot: int = 16
    """Labelled samples per class that tasks are embedded from."""
    network: str = "mlp"
    """What learns: ``"mlp"`` on features or principal components, ``"conv4"`` on images."""

    def identity(self) -> dict[str, Any]:
        """What of the study enters the identity of its cells."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            **plain,
            "pool": {"name": self.pool.name, "fingerprint": self.pool.fingerprint},
            "sizes": asdict(self.sizes),
            "fit_way": list(self.fit_way),
        }

    @cached_property
    def tasks(self) -> TaskSet:
        """The tasks of the split, each a different set of classes, as they are embedded."""
        rest = {"n_way": self.n_way, "n_shot": self.embed_shot, "split": self.split, "seed": 2}
        pool, wanted = self.prepared, self.sizes.tasks
        every = enumerate_tasks(pool, **rest)  # type: ignore[arg-type]
        assert every.n_tasks is not None
        if every.n_tasks > _MOST_TO_ENUMERATE:
            return sample_tasks(pool, wanted or 5_000, unique=True, **rest)  # type: ignore[arg-type]
        if wanted is None or wanted >= every.n_tasks:
            return every.collect()
        chosen = np.random.default_rng(2).permutation(every.n_tasks)[:wanted]
        return every.collect()[np.sort(chosen)]

    @cached_property
    def few(self) -> Int[np.ndarray, "some"]:
        """The tasks that costly notions are computed for."""
        n = min(self.sizes.few_tasks, len(self.tasks))
        return np.sort(np.random.default_rng(3).permutation(len(self.tasks))[:n])

    @cached_property
    def prepared(self) -> ClassPool:
        """The pool with its samples prepared once, as the default preparation does."""
        return prepared_pool(self.pool, choose_config(self.pool, self.pool.classes_in("train")))

    def fit_tasks(self, seed: int) -> TaskSet:
        """Training tasks to fit a model on."""
        return sample_tasks(
            self.prepared, self.sizes.fit_tasks, n_way=self.fit_way, n_shot=self.embed_shot,
            split="train", seed=1000 + seed,
        )  # fmt: skip

    def reference(self, seed: int) -> TaskSet:
        """Training tasks to measure distances to, of as many classes as the tasks of the split."""
        return sample_tasks(
            self.prepared, self.sizes.reference, n_way=self.n_way, n_shot=self.embed_shot,
            split="train", seed=2000 + seed,
        )  # fmt: skip

    def difficulty(self) -> Float[np.ndarray, "tasks 3"]:
        """Separation, smallest separation and hardness: more is harder, in prepared features."""
        pool, ids = self.prepared, np.unique(self.tasks.classes)
        rows = all_rows(pool, ids)
        label = np.searchsorted(pool.starts, rows, side="right") - 1
        apart = feature_separation(class_moments(pool.samples[rows], label, len(pool)), self.tasks)
        hard = TaskHardness(prepare=None).fit(self.tasks).embed(self.tasks)[:, 0]
        return np.stack([-apart.mean, -apart.smallest, hard], axis=1)


def prepared_pool(pool: ClassPool, config: PrepareConfig, unit_length: bool = False) -> ClassPool:
    """The pool with prepared samples, the preparation learned on the training classes."""
    preparation: Preparation = learn_preparation(pool, pool.classes_in("train"), config)
    n = len(pool.samples)
    parts = [
        preparation(pool.take(np.arange(start, min(start + _ROWS_AT_ONCE, n))))
        for start in range(0, n, _ROWS_AT_ONCE)
    ]
    x = np.concatenate(parts).astype(np.float32)
    name = f"{pool.name} ({config.describe()})"
    if unit_length:
        x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        name = f"{pool.name} ({config.describe()} → unit length)"
    return replace(pool, name=name, samples=x, class_digests=None)
