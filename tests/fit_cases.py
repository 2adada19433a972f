"""Small fits that many tests share: compiling takes longer than running them.

Imported by child processes too, so that they see the same data.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import jax
import numpy as np
import pytest

from taskscape import ClassPool, TaskSet, TaskThemes, sample_tasks
from taskscape.themes import CoClustering, start

D, N = 3, 12
SMALL = {
    "task_themes": 2,
    "image_themes": 4,
    "batch_size": 16,
    "max_passes": 3,
    "evaluate_every": 2,
    "patience": 50,
    "prepare": None,
}
"""Settings of a fit that takes a moment: 4 mini-batches a pass, 12 in all."""


def blobs(seed: int = 0, n_classes: int = 24, offset: float = 0.0) -> dict[str, np.ndarray]:
    """Classes that mix four blobs; even ones use the first two most, odd ones the others."""
    rng = np.random.default_rng(seed)
    centres = np.array([[4, 0, 0], [0, 4, 0], [-4, 0, 2], [0, -4, -2]], dtype=float) + offset
    classes = {}
    for c in range(n_classes):
        theta = rng.dirichlet([0.3, 0.3, 5, 3] if c % 2 else [5, 3, 0.3, 0.3])
        z = rng.choice(4, size=N, p=theta)
        classes[f"c{c}"] = (centres[z] + rng.normal(size=(N, D))).astype(np.float32)
    return classes


@cache
def small_pool() -> ClassPool:
    """16 classes to train on and 8 to test."""
    return ClassPool.from_classes(blobs(), name="blobs", splits=["train"] * 16 + ["test"] * 8)


def small_tasks(n_tasks: int = 72, seed: int = 0, split: str = "train") -> TaskSet:
    """Tasks of 2 to 4 classes with 6 samples each."""
    return sample_tasks(small_pool(), n_tasks, n_way=(2, 4), n_shot=6, split=split, seed=seed)


def small_model(**settings: object) -> CoClustering:
    """The paper's model, quick to fit."""
    return TaskThemes.paper(**{**SMALL, **settings})


@cache
def fitted_themes() -> TaskThemes:
    """A fitted model with all three factors, shared: do not change it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TaskThemes(prepare=None, co_clustering=small_model()).fit(small_tasks())


@cache
def fitted(**settings: object) -> CoClustering:
    """A fitted model of the paper, shared: do not change it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return small_model(**settings).fit(small_tasks())


@contextmanager
def quick_starts() -> Iterator[None]:
    """Fits begin at the better of two short starts: for tests that need a model of many samples,
    but not a good one.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"_TRIED": 2, "_FEW": 4, "_MANY": 8}.items():
            patch.setattr(start, name, value)
        yield


def arrays_of(model: CoClustering) -> list[np.ndarray]:
    """Everything that was learned, for comparison bit by bit."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(model.states_)]


def assert_same_model(a: CoClustering, b: CoClustering) -> None:
    """Two models agree in every bit."""
    for ours, theirs in zip(arrays_of(a), arrays_of(b), strict=True):
        np.testing.assert_array_equal(ours, theirs)
