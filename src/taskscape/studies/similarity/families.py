"""Every notion of similarity, in families that are computed together."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from taskscape.compare import cdist, class_separation
from taskscape.embeddings import Embeddings
from taskscape.meta import TrainConfig
from taskscape.similarity import (
    OTDD,
    PrototypeDistance,
    Similarity,
    Task2Vec,
    Task2VecConfig,
    TaskHardness,
)
from taskscape.studies.similarity.distances import (
    CLOSED,
    combined_distances,
    summaries_of,
    summarise_distances,
)
from taskscape.studies.similarity.study import CONTROLS, SimilarityStudy
from taskscape.tasks import TaskSet
from taskscape.themes.estimator import HealthWarning, OutlierTasksWarning, TaskThemes

__all__ = ["ENSEMBLE", "FAMILIES", "Bench", "Family", "Variant", "embedded", "quiet_fit"]

ENSEMBLE = 3
"""Fits in an ensemble."""
_OWN = "the task alone"
_SAMPLES = 256
"""Points of each task for the Jensen-Shannon divergence."""
_EMD_SHARE = 5
"""The earth mover's distance is measured to a fifth of the few training tasks."""


class Variant(NamedTuple):
    """A notion of similarity; ``fits`` counts the members of an ensemble."""

    notion: str
    divergence: str = ""
    fits: int = 1


Found = Iterator[tuple[Variant, Mapping[str, Float[np.ndarray, "tasks"]]]]


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Fits of the model, with a study's tasks and the training tasks as they see them."""

    model: TaskThemes
    test: Embeddings
    train: Embeddings


class Bench:
    """A study with what its notions share: fits of the model, and difficulty."""

    def __init__(self, study: SimilarityStudy, difficulty: Float[np.ndarray, "tasks 4"]) -> None:
        self.study, self.difficulty = study, difficulty
        self._fits: dict[int, Ensemble] = {}

    def fit(self, seed: int) -> Ensemble:
        """The default model from several starts, with λ of the tasks and of the reference."""
        if seed not in self._fits:
            model = TaskThemes(
                prepare=None, random_state=seed, n_restarts=ENSEMBLE, ensemble=ENSEMBLE
            )
            model = quiet_fit(model, self.study, seed)
            test, train = (
                embedded(model, tasks) for tasks in (self.study.tasks, self.study.reference(seed))
            )
            self._fits = {seed: Ensemble(model, test, train)}
        return self._fits[seed]

    def few(self, seed: int) -> tuple[TaskSet, TaskSet]:
        """The tasks and the training tasks for notions that cost much per pair."""
        reference = self.study.reference(seed)[: self.study.sizes.few_reference]
        return self.study.tasks[self.study.few], reference


def quiet_fit(model: TaskThemes, study: SimilarityStudy, seed: int) -> TaskThemes:
    """Fit without the advice that a person would want."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HealthWarning)
        return model.fit(study.fit_tasks(seed))


def embedded(model: TaskThemes, tasks: TaskSet, *, keep_gamma: bool = False) -> Embeddings:
    """Tasks as each fit of a model sees them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutlierTasksWarning)
        return model.embed(tasks, keep_gamma=keep_gamma)


def _difficulty(bench: Bench, seed: int) -> Found:
    for i, name in enumerate(CONTROLS):
        yield Variant(name), {_OWN: bench.difficulty[:, i]}


def _themes(bench: Bench, seed: int) -> Found:
    fits = bench.fit(seed)
    for n in (1, ENSEMBLE):
        for kind in CLOSED:
            yield (
                Variant("task-themes", kind, n),
                summarise_distances(
                    combined_distances(fits.test.lam[:n], fits.train.lam[:n], kind)
                ),
            )


def _theme_difficulty(bench: Bench, seed: int) -> Found:
    gamma = embedded(bench.fit(seed).model, bench.study.tasks, keep_gamma=True).gamma
    assert gamma is not None
    yield Variant("separation of γ", "jeffreys"), {_OWN: -class_separation(gamma[0]).mean}


def _themes_few(bench: Bench, seed: int) -> Found:
    fits = bench.fit(seed)
    a, b = fits.test.lam[0][bench.study.few], fits.train.lam[0][: bench.study.sizes.few_reference]
    for kind in ("kl", "jensen_shannon"):
        found = cdist(a, b, kind, n_samples=_SAMPLES)
        yield Variant("task-themes", kind), summarise_distances(found)


def _earth_mover(bench: Bench, seed: int) -> Found:
    import ot  # noqa: F401  # before the fit: without it there is nothing to do

    fits = bench.fit(seed)
    a = fits.test.lam[0][bench.study.few]
    b = fits.train.lam[0][: bench.study.sizes.few_reference // _EMD_SHARE]
    found = cdist(a, b, "emd", alpha=fits.model.alpha_)
    yield Variant("task-themes", "emd"), summarise_distances(found)


def _task2vec(bench: Bench, seed: int) -> Found:
    config = Task2VecConfig(train=TrainConfig(updates=bench.study.sizes.probe_updates))
    notion = Task2Vec(per="unit", config=config, prepare=None, seed=seed)
    notion.fit(bench.study.fit_tasks(seed))
    tasks, reference = bench.few(seed)
    a, b = notion.embed(tasks), notion.embed(reference)
    yield Variant("Task2Vec per unit"), summarise_distances(notion.cdist(a, b))
    # the embedding per layer is the mean over the layer's units
    ends = np.cumsum(config.widths)[:-1]
    a, b = (np.stack([p.mean(1) for p in np.split(e, ends, axis=1)], axis=1) for e in (a, b))
    yield Variant("Task2Vec per layer"), summarise_distances(notion.cdist(a, b))


def _by(name: str, notion: Similarity, n_shot: int | str | None = None) -> Callable[..., Found]:
    def compute(bench: Bench, seed: int) -> Found:
        tasks, reference = bench.few(seed)
        if n_shot is not None:
            tasks, reference = tasks.with_samples(n_shot), reference.with_samples(n_shot)
        notion.fit(reference)
        yield Variant(name), summarise_distances(notion.cdist(tasks, reference))

    return compute


@dataclass(frozen=True)
class Family:
    """Variants that are computed together."""

    variants: tuple[Variant, ...]
    compute: Callable[[Bench, int], Found]
    few: bool = True
    own: bool = False
    """Whether it looks at the task alone and not at the training tasks."""
    share: int = 1
    """One in this many of the training tasks is used."""

    def reference(self, study: SimilarityStudy) -> int:
        """How many training tasks distances are measured to."""
        sizes = study.sizes
        return (sizes.few_reference if self.few else sizes.reference) // self.share

    def summaries(self, study: SimilarityStudy) -> tuple[str, ...]:
        """What is said of the distances."""
        return (_OWN,) if self.own else summaries_of(self.reference(study))


FAMILIES: Mapping[str, Family] = {
    "difficulty": Family(tuple(Variant(c) for c in CONTROLS), _difficulty, few=False, own=True),
    "themes": Family(
        tuple(Variant("task-themes", kind, n) for n in (1, ENSEMBLE) for kind in CLOSED),
        _themes,
        few=False,
    ),
    "theme difficulty": Family(
        (Variant("separation of γ", "jeffreys"),), _theme_difficulty, few=False, own=True
    ),
    "themes, few": Family(
        tuple(Variant("task-themes", kind) for kind in ("kl", "jensen_shannon")), _themes_few
    ),
    "earth mover": Family((Variant("task-themes", "emd"),), _earth_mover, share=_EMD_SHARE),
    "task2vec": Family((Variant("Task2Vec per unit"), Variant("Task2Vec per layer")), _task2vec),
    "prototypes": Family(
        (Variant("prototypes"),), _by("prototypes", PrototypeDistance(prepare=None))
    ),
    "otdd": Family((Variant("OTDD"),), _by("OTDD", OTDD(prepare=None), "all")),
    "otdd, diagonal": Family(
        (Variant("OTDD diagonal"),),
        _by("OTDD diagonal", OTDD(prepare=None, covariance="diagonal")),
    ),
    "hardness": Family(
        (Variant("difference in hardness"),),
        _by("difference in hardness", TaskHardness(prepare=None)),
    ),
}
