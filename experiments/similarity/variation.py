"""How sizes of the model, preparation and labelled samples change what mean KL tells.

Looked at on validation classes only, so that defaults can be chosen by it.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from experiments.lab import Lab
from experiments.similarity.study import (
    AccuracyTarget,
    Measured,
    SimilarityStudy,
    association,
)
from taskscape.compare import mean_distance
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet
from taskscape.themes import CoClustering, TaskThemes
from taskscape.themes.health import count_points
from taskscape.themes.prepare import PrepareConfig, prepared_pool
from taskscape.themes.task_model import without_advice

__all__ = ["PREPARATIONS", "VARIATIONS", "Variation", "run_variations"]

PREPARATIONS: Mapping[str, PrepareConfig | None] = {
    "auto": None,
    "PCA 16": PrepareConfig(pca=16),
    "PCA 32": PrepareConfig(pca=32),
    "PCA 64": PrepareConfig(pca=64),
    "power, unit length, PCA 16": PrepareConfig(power=0.5, l2=True, pca=16),
    "power, unit length, PCA 32": PrepareConfig(power=0.5, l2=True, pca=32),
    "power, unit length, PCA 64": PrepareConfig(power=0.5, l2=True, pca=64),
    "raw": PrepareConfig(centre=False, pca=None),
}


@dataclass(frozen=True)
class Variation:
    """Settings of the model and of the embedding."""

    image_themes: int = 8
    task_themes: int = 4
    prepare: str = "auto"
    covariance: Literal["full", "diag"] = "full"
    embed_shot: int | str = 16
    """Labelled samples per class of the tasks to be predicted."""
    reference_shot: int | str = 16
    """Labelled samples per class of the training tasks they are compared with."""

    def without_shots(self) -> "Variation":
        """What a fit depends on."""
        return replace(self, embed_shot=16, reference_shot=16)


def _variations() -> Iterator[Variation]:
    """The default, one thing changed at a time, then the rest of the grid, then what is slow."""
    yield Variation()
    for n in (1, 5, "all"):
        yield Variation(embed_shot=n)
        yield Variation(embed_shot=n, reference_shot=n)
    yield from (Variation(image_themes=K) for K in (4, 16, 32))
    yield from (Variation(task_themes=L) for L in (2, 8, 16))
    yield Variation(image_themes=16, task_themes=8)
    yield Variation(covariance="diag")
    yield from (Variation(prepare=p) for p in PREPARATIONS if p not in ("auto", "raw"))
    yield Variation(prepare="raw", covariance="diag")
    yield from (
        Variation(image_themes=K, task_themes=L) for K in (4, 8, 16, 32) for L in (2, 4, 8, 16)
    )
    yield Variation(prepare="raw")


VARIATIONS = tuple(dict.fromkeys(_variations()))


def run_variations(
    study: SimilarityStudy,
    lab: Lab,
    measure: Callable[[], Measured],
    *,
    learners: Sequence[str],
    seeds: Sequence[int],
    variations: Sequence[Variation] = VARIATIONS,
) -> None:
    """Mean KL under every variation, for each seed's fit and for their ensemble.

    The accuracy of a task is its mean over the learner's seeds, so that variations differ by the
    fit alone. ``measure`` is called when something is missing.
    """
    if study.split != "val":
        raise DataError(f"split={study.split!r}: defaults are chosen on validation classes, 'val'.")
    fits = _Fits(study)
    targets: dict[str, AccuracyTarget] = {}
    rows = [*([s] for s in seeds), *([list(seeds)] if len(seeds) > 1 else [])]
    for variation in variations:
        cells = [_cell(study, variation, row, learner) for row in rows for learner in learners]
        missing = lab.missing(cells)
        if missing and not targets:
            targets = _targets(study, measure(), seeds)
        looks = {s: fits.look(variation, s) for s in (seeds if missing else ())}
        for cell in missing:
            members = [looks[s] for s in cell["seeds"]]
            x = np.mean([look.distance / look.distance.mean() for look in members], axis=0)
            about = {
                "distinct": float(np.mean([look.distinct for look in members])),
                "fit_seconds": round(float(np.mean([look.seconds for look in members])), 2),
                "held_out": float(np.mean([look.held_out for look in members])),
            }
            lab.add(cell, {**association(x, targets[cell["learner"]]), **about})


def _targets(
    study: SimilarityStudy, measured: Measured, seeds: Sequence[int]
) -> dict[str, AccuracyTarget]:
    return {
        learner: AccuracyTarget.of(
            np.concatenate([of[s] for s in seeds], axis=1),
            measured.difficulty,
            study.tasks.classes,
        )
        for learner, of in measured.accuracies.items()
    }


@dataclass(frozen=True, eq=False)
class _Look:
    """What a fit sees of the tasks."""

    distance: Float[np.ndarray, "tasks"]
    distinct: int
    """Different λ, rounded to 0.1."""
    seconds: float
    held_out: float
    """The bound on held-out tasks, nats per sample."""


class _Fits:
    """Fits and the prepared pool of the last variation, for the next that needs the same."""

    def __init__(self, study: SimilarityStudy) -> None:
        self.study = study
        self._pool: tuple[str, ClassPool] | None = None
        self._fits: dict[tuple[Variation, int], tuple[CoClustering, float]] = {}

    def look(self, variation: Variation, seed: int) -> _Look:
        pool = self._prepared(variation.prepare)
        key = (variation.without_shots(), seed)
        if key not in self._fits:
            self._fits = {k: v for k, v in self._fits.items() if k[0] == key[0]}
            model = TaskThemes.paper(
                variation.task_themes, variation.image_themes, covariance=variation.covariance,
                prepare=None, random_state=seed,
            )  # fmt: skip
            began = time.perf_counter()
            with without_advice():
                model.fit(replace(self.study.fit_tasks(seed), pool=pool))
            self._fits[key] = (model, time.perf_counter() - began)
        model, seconds = self._fits[key]
        test = _lam(model, replace(self.study.tasks, pool=pool), variation.embed_shot)
        reference = replace(self.study.reference(seed), pool=pool)
        return _Look(
            mean_distance(test, _lam(model, reference, variation.reference_shot)),
            count_points(test),
            seconds,
            float(model.elbo_history_[:, 1].max()),
        )

    def _prepared(self, name: str) -> ClassPool:
        if self._pool is None or self._pool[0] != name:
            config = PREPARATIONS[name]
            study = self.study
            own = study.prepared if config is None else prepared_pool(study.pool, config)
            self._pool = (name, own)
        return self._pool[1]


def _lam(model: CoClustering, tasks: TaskSet, n_shot: int | str) -> Float[np.ndarray, "tasks L"]:
    with without_advice():
        return model.embed(tasks.with_samples(n_shot)).lam[0]


def _cell(
    study: SimilarityStudy, variation: Variation, seeds: Sequence[int], learner: str
) -> dict[str, Any]:
    identity = {k: v for k, v in study.identity().items() if k != "embed_shot"}
    return {
        "what": "variation",
        **identity,
        **asdict(variation),
        "learner": learner,
        "settings": study.settings(learner),
        "seeds": list(seeds),
    }
