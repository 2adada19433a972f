"""How sizes of the model, preparation and labelled samples change what mean KL tells.

Looked at on validation classes only, so that defaults can be chosen by it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from taskscape.compare import mean_kl
from taskscape.compare.posteriors import combine_members
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.studies.ledger import Ledger
from taskscape.studies.similarity.accuracies import settings_of
from taskscape.studies.similarity.association import Target, association
from taskscape.studies.similarity.families import embedded, quiet_fit
from taskscape.studies.similarity.study import SimilarityStudy, prepared_pool
from taskscape.tasks import TaskSet
from taskscape.themes.estimator import TaskThemes
from taskscape.themes.prepare import PrepareConfig, choose_config

__all__ = ["CHOICES", "PREPARATIONS", "Choice", "run_variations"]

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
class Choice:
    """Settings of the model and of the embedding."""

    image_themes: int = 8
    task_themes: int = 4
    prepare: str = "auto"
    covariance: Literal["full", "diag"] = "full"
    embed_shot: int | str = 16
    """Labelled samples per class of the tasks to be predicted."""
    reference_shot: int | str = 16
    """Labelled samples per class of the training tasks they are compared with."""

    def without_shots(self) -> "Choice":
        """What a fit depends on."""
        return replace(self, embed_shot=16, reference_shot=16)


def _choices() -> Iterator[Choice]:
    """The default, one thing changed at a time, then the rest of the grid, then what is slow."""
    yield Choice()
    for n in (1, 5, "all"):
        yield Choice(embed_shot=n)
        yield Choice(embed_shot=n, reference_shot=n)
    yield from (Choice(image_themes=K) for K in (4, 16, 32))
    yield from (Choice(task_themes=L) for L in (2, 8, 16))
    yield Choice(image_themes=16, task_themes=8)
    yield Choice(covariance="diag")
    yield from (Choice(prepare=p) for p in PREPARATIONS if p not in ("auto", "raw"))
    yield Choice(prepare="raw", covariance="diag")
    yield from (
        Choice(image_themes=K, task_themes=L) for K in (4, 8, 16, 32) for L in (2, 4, 8, 16)
    )
    yield Choice(prepare="raw")


CHOICES = tuple(dict.fromkeys(_choices()))


def run_variations(
    study: SimilarityStudy,
    ledger: Ledger,
    accuracies: Mapping[str, Mapping[int, Float[np.ndarray, "tasks episodes"]]],
    difficulty: Float[np.ndarray, "tasks 4"],
    *,
    seeds: Sequence[int],
    choices: Sequence[Choice] = CHOICES,
    until: float = float("inf"),
) -> None:
    """Mean KL under every choice, for each seed's fit and for their ensemble.

    The accuracy of a task is its mean over the learner's seeds, so that choices differ by the fit
    alone.
    """
    if study.split != "val":
        raise DataError(f"split={study.split!r}: defaults are chosen on validation classes, 'val'.")
    targets = {
        learner: Target.of(
            np.concatenate([of[s] for s in seeds], axis=1), difficulty, study.tasks.classes
        )
        for learner, of in accuracies.items()
    }
    fitted = _Fitted(study)
    for choice in choices:
        rows = [*([s] for s in seeds), *([list(seeds)] if len(seeds) > 1 else [])]
        cells = {
            (tuple(row), learner): _cell(study, choice, row, learner)
            for row in rows
            for learner in targets
        }
        if all(ledger.get(cell) for cell in cells.values()):
            continue
        if time.monotonic() > until:
            return
        looks = [fitted.look(choice, s) for s in seeds]
        for (row, learner), cell in cells.items():
            some = [looks[list(seeds).index(s)] for s in row]
            x = combine_members(np.stack([look.distance for look in some]))
            about = {
                "distinct": float(np.mean([look.distinct for look in some])),
                "fit_seconds": round(float(np.mean([look.seconds for look in some])), 2),
                "held_out": float(np.mean([look.held_out for look in some])),
            }
            if ledger.get(cell) is None:
                ledger.add(cell, {**association(x, targets[learner]), **about})


@dataclass(frozen=True, eq=False)
class _Look:
    """What a fit sees of the tasks."""

    distance: Float[np.ndarray, "tasks"]
    distinct: int
    """Different λ, rounded to 0.1."""
    seconds: float
    held_out: float
    """The bound on held-out tasks, nats per sample."""


class _Fitted:
    """Fits and prepared pools of the last choice, for the next that needs the same."""

    def __init__(self, study: SimilarityStudy) -> None:
        self.study = study
        self._pool: tuple[str, ClassPool] = ("auto", study.prepared)
        self._fits: dict[tuple[Choice, int], tuple[TaskThemes, float]] = {}

    def look(self, choice: Choice, seed: int) -> _Look:
        pool = self._prepared(choice.prepare)
        on_pool = replace(self.study)
        on_pool.__dict__["prepared"] = pool
        key = (choice.without_shots(), seed)
        if key not in self._fits:
            self._fits = {k: v for k, v in self._fits.items() if k[0] == key[0]}
            model = TaskThemes(
                choice.task_themes, choice.image_themes, covariance=choice.covariance,
                prepare=None, random_state=seed,
            )  # fmt: skip
            began = time.perf_counter()
            self._fits[key] = (quiet_fit(model, on_pool, seed), time.perf_counter() - began)
        model, seconds = self._fits[key]
        test = _lam(model, replace(self.study.tasks, pool=pool), choice.embed_shot)
        train = _lam(model, on_pool.reference(seed), choice.reference_shot)
        return _Look(
            mean_kl(test, train),
            len(np.unique(test.round(1), axis=0)),
            seconds,
            float(model.elbo_history_[:, 1].max()),
        )

    def _prepared(self, name: str) -> ClassPool:
        if self._pool[0] != name:
            raw, config = self.study.pool, PREPARATIONS[name]
            config = config or choose_config(raw, raw.classes_in("train"))
            self._pool = (name, prepared_pool(raw, config))
        return self._pool[1]


def _lam(model: TaskThemes, tasks: TaskSet, n_shot: int | str) -> Float[np.ndarray, "tasks L"]:
    return embedded(model, tasks.with_samples(n_shot))[0].lam


def _cell(
    study: SimilarityStudy, choice: Choice, seeds: Sequence[int], learner: str
) -> dict[str, Any]:
    identity = {k: v for k, v in study.identity().items() if k != "embed_shot"}
    return {
        "what": "variation",
        **identity,
        **asdict(choice),
        "learner": learner,
        "settings": settings_of(study, learner),
        "seeds": list(seeds),
    }
