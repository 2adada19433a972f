"""How well every similarity measure tells accuracy, into a ledger.

Measures come in families that are computed together: distances from tasks to training tasks, and
what is said of them (the mean, the nearest few), or something that the task alone tells.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.lab import Lab
from experiments.recipes import PREFERRED_SIZES
from experiments.similarity.study import (
    CONTROLS,
    AccuracyTarget,
    Measured,
    SimilarityStudy,
    association,
)
from taskscape.compare import DIVERGENCES, distances
from taskscape.embeddings import Embeddings
from taskscape.meta import TrainConfig
from taskscape.similarity import (
    OTDD,
    ModelSimilarity,
    PrototypeDistance,
    Similarity,
    Task2Vec,
    Task2VecConfig,
    TaskHardness,
    TaskMeans,
)
from taskscape.tasks import TaskSet
from taskscape.themes import CoClustering, TaskThemes
from taskscape.themes.embed import embed
from taskscape.themes.prepare import PreparedSamples
from taskscape.themes.task_model import without_advice

__all__ = [
    "FAMILIES",
    "Family",
    "Variant",
    "run_measures",
    "summarise_distances",
]

_OTHER = tuple(kind for kind in DIVERGENCES if kind != "kl")
ENSEMBLE = 3
"""Fits in an ensemble."""
_OWN = "the task alone"
_NEAREST = (1, 10, 100)


def run_measures(
    study: SimilarityStudy,
    lab: Lab,
    measure: Callable[[], Measured],
    *,
    learners: Sequence[str],
    seeds: Sequence[int],
    families: Sequence[str] | None = None,
) -> None:
    """Compute what the ledger does not have; ``measure`` is called when something is missing."""
    shared: Shared | None = None
    for seed in seeds:
        for name in FAMILIES if families is None else families:
            family = FAMILIES[name]
            if not family.is_for(study):
                continue
            cells = [
                _cell(study, family, variant, summary, learner, seed)
                for variant in family.variants
                for summary in family.summaries(study)
                for learner in learners
            ]
            if lab.missing(cells):
                shared = shared or Shared(study, measure())
                _run_family(shared, lab, name, seed, learners)


def _run_family(shared: "Shared", lab: Lab, name: str, seed: int, learners: Sequence[str]) -> None:
    family, began = FAMILIES[name], time.perf_counter()
    for variant, summaries in zip(family.variants, family.compute(shared, seed), strict=True):
        seconds = round(time.perf_counter() - began, 2)
        for summary, x in summaries.items():
            for learner in learners:
                cell = _cell(shared.study, family, variant, summary, learner, seed)
                if lab.get(cell) is None:
                    results = association(x, shared.target(learner, seed, family.few))
                    lab.add(cell, {**results, "seconds": seconds})
        began = time.perf_counter()


def _cell(
    study: SimilarityStudy,
    family: "Family",
    variant: "Variant",
    summary: str,
    learner: str,
    seed: int,
) -> dict[str, Any]:
    return {
        "what": "measure",
        **study.identity(),
        "learner": learner,
        "settings": study.settings(learner),
        **variant._asdict(),
        **family.size(study),
        "summary": summary,
        "reference": family.reference(study),
        "seed": seed,
    }


# -- distances ----------------------------------------------------------------------------------


def summaries_of(n_reference: int) -> tuple[str, ...]:
    """The mean, and the nearest k where they are at most a tenth of the training tasks."""
    return ("mean", *(f"nearest {k}" for k in _NEAREST if 10 * k <= n_reference))


def summarise_distances(
    distances: Float[np.ndarray, "tasks others"],
) -> dict[str, Float[np.ndarray, "tasks"]]:
    """Mean distance to all training tasks, and to the nearest k."""
    mean, *nearest = summaries_of(distances.shape[1])
    summaries = {mean: distances.mean(axis=1)}
    if nearest:
        most = _NEAREST[len(nearest) - 1]
        near = np.sort(np.partition(distances, most - 1, axis=1)[:, :most], axis=1)
        summaries |= {
            name: near[:, :k].mean(axis=1) for name, k in zip(nearest, _NEAREST, strict=False)
        }
    return summaries


# -- families -----------------------------------------------------------------------------------


class Variant(NamedTuple):
    """A similarity measure; ``fits`` counts the members of an ensemble."""

    measure: str
    divergence: str = ""
    fits: int = 1


Summaries = Iterator[Mapping[str, Float[np.ndarray, "tasks"]]]
"""Of each variant of a family, what is said of the distances of each task."""


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Fits of the model, with a study's tasks and the training tasks as they see them."""

    model: CoClustering
    test: Embeddings
    train: Embeddings


class Shared:
    """A study with what its measures share: fits of the model, measured accuracy and difficulty."""

    def __init__(self, study: SimilarityStudy, measured: Measured) -> None:
        self.study, self.measured = study, measured
        self._fits: dict[int, Ensemble] = {}
        self._targets: dict[tuple[str, int, bool], AccuracyTarget] = {}

    def fit(self, seed: int) -> Ensemble:
        """The default model from several starts, with λ of the tasks and of the reference."""
        if seed not in self._fits:
            self._fits = {seed: self.fit_of_size(seed, {})}
        return self._fits[seed]

    def fit_of_size(self, seed: int, size: Mapping[str, Any]) -> Ensemble:
        """The same of another size, which is not kept."""
        model = TaskThemes.paper(
            **size, prepare=None, random_state=seed, n_restarts=ENSEMBLE, ensemble=ENSEMBLE
        )
        with without_advice():
            model.fit(self.study.fit_tasks(seed))
            test = model.embed(self.study.tasks)
            train = model.embed(self.study.reference(seed))
        return Ensemble(model, test, train)

    def few(self, seed: int) -> tuple[TaskSet, TaskSet]:
        """The tasks and the training tasks for measures that cost much per pair."""
        reference = self.study.reference(seed)[: self.study.sizes.few_reference]
        return self.study.tasks[self.study.few], reference

    def target(self, learner: str, seed: int, few: bool) -> AccuracyTarget:
        """The accuracies that distances are compared with; a seed's fits meet its learners."""
        key = (learner, seed, few)
        if key not in self._targets:
            accuracies = self.measured.accuracies[learner][seed]
            rows = self.study.few if few else np.arange(len(accuracies))
            self._targets[key] = AccuracyTarget.of(
                accuracies[rows], self.measured.difficulty[rows], self.study.tasks.classes[rows]
            )
        return self._targets[key]


def _difficulty(shared: Shared, seed: int) -> Summaries:
    for measure in shared.measured.difficulty.T:
        yield {_OWN: measure}


def _themes(shared: Shared, seed: int) -> Summaries:
    yield from _between(shared.fit(seed), ("kl",))


def _other_divergences(shared: Shared, seed: int) -> Summaries:
    yield from _between(shared.fit(seed), _OTHER)


def _chosen_size(shared: Shared, seed: int) -> Summaries:
    yield from _between(shared.fit_of_size(seed, PREFERRED_SIZES[shared.study.pool.name]), ("kl",))


def _between(fits: Ensemble, kinds: Sequence[str]) -> Summaries:
    for factor in ("task_themes_1", "task_themes"):  # the best fit, and all of them
        for kind in kinds:
            pair = fits.test.factor(factor), fits.train.factor(factor)
            yield summarise_distances(distances(*pair, kind))


def _theme_difficulty(shared: Shared, seed: int) -> Summaries:
    model, tasks = shared.fit(seed).model, shared.study.tasks
    prepared = PreparedSamples(tasks.pool, model.preparation_, tasks.class_ids)
    gamma = embed(model.members_[:1], tasks, prepared, keep_gamma=True).gamma
    assert gamma is not None
    concentrations = gamma[0].astype(np.float64)
    # between all pairs of classes, of which those of a class with itself are zero
    apart = DIVERGENCES["jeffreys"].compute(concentrations[:, :, None], concentrations[:, None])
    way = concentrations.shape[1]
    yield {_OWN: -apart.sum(axis=(1, 2)) / (way * (way - 1))}


def _themes_few(shared: Shared, seed: int) -> Summaries:
    fits = shared.fit(seed)
    a, b = fits.test.lam[0][shared.study.few], fits.train.lam[0][: shared.study.sizes.few_reference]
    yield summarise_distances(distances(a, b))


def _task2vec(shared: Shared, seed: int) -> Summaries:
    config = Task2VecConfig(train=TrainConfig(updates=shared.study.sizes.probe_updates))
    measure = Task2Vec(per="unit", config=config, prepare=None, seed=seed)
    measure.fit(shared.study.fit_tasks(seed))
    tasks, reference = shared.few(seed)
    a, b = measure.embed(tasks), measure.embed(reference)
    yield summarise_distances(measure.cdist(a, b))
    # the embedding per layer is the mean over the layer's units
    ends = np.cumsum(config.widths)[:-1]
    a, b = (np.stack([p.mean(1) for p in np.split(e, ends, axis=1)], axis=1) for e in (a, b))
    yield summarise_distances(measure.cdist(a, b))


def _by(measure: Similarity, n_shot: int | str | None = None) -> Callable[..., Summaries]:
    def compute(shared: Shared, seed: int) -> Summaries:
        tasks, reference = shared.few(seed)
        if n_shot is not None:
            tasks, reference = tasks.with_samples(n_shot), reference.with_samples(n_shot)
        measure.fit(reference)
        yield summarise_distances(measure.cdist(tasks, reference))

    return compute


@dataclass(frozen=True)
class Family:
    """Variants that are computed together."""

    variants: tuple[Variant, ...]
    compute: Callable[[Shared, int], Summaries]
    few: bool = True
    own: bool = False
    """Whether it looks at the task alone and not at the training tasks."""
    chosen_size: bool = False
    """Whether its models have the size that validation classes of the data set prefer."""

    def is_for(self, study: SimilarityStudy) -> bool:
        """Whether it can be computed: no size was chosen for data sets of a user's own."""
        return not self.chosen_size or study.pool.name in PREFERRED_SIZES

    def size(self, study: SimilarityStudy) -> Mapping[str, int]:
        """What its cells say of the size of the models, where it is not the default."""
        return PREFERRED_SIZES[study.pool.name] if self.chosen_size else {}

    def reference(self, study: SimilarityStudy) -> int:
        """How many training tasks distances are measured to."""
        sizes = study.sizes
        return sizes.few_reference if self.few else sizes.reference

    def summaries(self, study: SimilarityStudy) -> tuple[str, ...]:
        """What is said of the distances."""
        return (_OWN,) if self.own else summaries_of(self.reference(study))


FAMILIES: Mapping[str, Family] = {
    "difficulty": Family(tuple(Variant(c) for c in CONTROLS), _difficulty, few=False, own=True),
    "themes": Family(
        tuple(Variant("task-themes", "kl", n) for n in (1, ENSEMBLE)), _themes, few=False
    ),
    "themes, other divergences": Family(
        tuple(Variant("task-themes", kind, n) for n in (1, ENSEMBLE) for kind in _OTHER),
        _other_divergences,
        few=False,
    ),
    "theme difficulty": Family(
        (Variant("separation of γ", "jeffreys"),), _theme_difficulty, few=False, own=True
    ),
    "themes, few": Family((Variant("task-themes", "kl"),), _themes_few),
    "themes, chosen size": Family(
        tuple(Variant("task-themes, chosen size", "kl", n) for n in (1, ENSEMBLE)),
        _chosen_size,
        few=False,
        chosen_size=True,
    ),
    "task2vec": Family((Variant("Task2Vec per unit"), Variant("Task2Vec per layer")), _task2vec),
    "image-themes": Family(
        (Variant("image-themes"),), _by(ModelSimilarity(TaskThemes(prepare=None)))
    ),
    "task means": Family((Variant("task means"),), _by(TaskMeans(prepare=None))),
    "prototypes": Family((Variant("prototypes"),), _by(PrototypeDistance(prepare=None))),
    "otdd": Family((Variant("OTDD"),), _by(OTDD(prepare=None), "all")),
    "hardness": Family((Variant("difference in hardness"),), _by(TaskHardness(prepare=None))),
}
