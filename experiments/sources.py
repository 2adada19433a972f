"""Which measure ranks the sources of a target best? Every group of a pool is the target once.

    python -m experiments sources --pool glyphs --learners protonet --trials 1 --out found.jsonl

A cell is a target with its distance to every source by each measure, on average over the tasks of
the source and to the nearest of them; or a target, a learner and a training: accuracy after
training on each source alone. Trial 0 has the weights that the study of targets began with.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import comb
from typing import Any

import numpy as np
from jaxtyping import Float

from experiments.lab import Lab, option
from taskscape.pools import load_pool
from taskscape.similarity import SIMILARITIES
from taskscape.targets.advisor import Outlook, Sources, source_way
from taskscape.targets.known import AdvisorSettings
from taskscape.targets.rotation import Rotation

__all__ = ["TOP", "SourcesSettings", "by_chance", "ndcg", "regret", "run"]

TOP = (1, 3, 5)
"""Of how many sources the best counts."""


@dataclass(frozen=True)
class SourcesSettings:
    """What to rank, and by what."""

    pool: str = option("a known data set or a path, with groups")
    measures: tuple[str, ...] = option(
        "similarity measures", tuple(SIMILARITIES), choices=tuple(SIMILARITIES), nargs="*"
    )
    learners: tuple[str, ...] = option("that are trained on each source alone", (), commas=True)
    trials: tuple[int, ...] = option("which trainings", (0,))
    folds: int = 7
    only_folds: tuple[int, ...] = option("not all of them", ())
    settings: AdvisorSettings = field(default_factory=AdvisorSettings)


def run(settings: SourcesSettings, lab: Lab) -> None:
    """Measure what the settings ask for and the ledger does not hold."""
    pool = load_pool(settings.pool)
    rotation = Rotation(pool, settings.measures, settings.folds, settings=settings.settings)
    about = {"pool": pool.name, "data": pool.fingerprint, "folds": settings.folds,
             **asdict(settings.settings)}  # fmt: skip
    for number, fold in enumerate(rotation.dealt):
        if settings.only_folds and number not in settings.only_folds:
            continue
        sources: Sources | None = None
        for name in fold:
            cells = list(_cells(settings, {**about, "target": name, "fold": number}))
            outlook: Outlook | None = None
            for cell in lab.missing(cells):
                lab.check_time()
                sources = sources or rotation.sources_without(fold)
                outlook = outlook or sources.look_at(rotation.target(name))
                began = time.perf_counter()
                results = _measured(outlook, cell)
                lab.add(cell, {**results, "seconds": round(time.perf_counter() - began, 2)})
                print(number, name, cell["what"], flush=True)


def _cells(settings: SourcesSettings, about: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if settings.measures:
        yield {"what": "distances", "measures": list(settings.measures), **about}
    for learner in settings.learners:
        for trial in settings.trials:
            yield {"what": "sources alone", "learner": learner, "trial": trial, **about}


def _measured(outlook: Outlook, cell: Mapping[str, Any]) -> dict[str, Any]:
    groups, of = outlook.sources.groups, np.asarray(outlook.sources.group_of)
    if cell["what"] == "distances":
        return {
            how: {
                measure: {g: float(f"{over(d[:, of == g], axis=1).mean():.5g}") for g in groups}
                for measure, d in outlook.distances.items()
            }
            for how, over in (("mean", np.mean), ("nearest", np.min))
        }
    asked = [(source_way(g), len(of), 1) for g in groups]
    alone = outlook.try_ways(cell["learner"], asked, cell["seed"] + cell["trial"])
    results: dict[str, Any] = {"accuracy": {}, "held_out": {}}
    for group, tried in zip(groups, alone, strict=True):
        assert tried.accuracy is not None
        assert tried.held_out is not None
        results["accuracy"][group] = round(float(tried.accuracy.mean()), 5)
        results["held_out"][group] = round(float(tried.held_out.mean()), 5)
    return results


# -- how good a ranking is ----------------------------------------------------------------------


def regret(
    accuracy: Float[np.ndarray, "sources"], far: Float[np.ndarray, "sources"], top: int
) -> float:
    r"""What the best of the nearest sources lacks to the best of all, as a share of that.

    .. math:: (\max_s a_s - \max_{s \in \text{top } k} a_s) / \max_s a_s

    Renggli et al. 2022, "Which model to transfer?".
    """
    nearest = np.argsort(far, kind="stable")[:top]
    return float(1 - accuracy[nearest].max() / accuracy.max())


def ndcg(accuracy: Float[np.ndarray, "sources"], far: Float[np.ndarray, "sources"]) -> float:
    r"""Discounted cumulative gain of a ranking, as a share of that of the best one.

    .. math:: \sum_i r_{s_i} / \log_2(i + 1)

    with the accuracy :math:`r` of the source at place i, from 0 for the worst to 1 for the best.
    """
    relevance = _from_worst_to_best(accuracy)
    discount = 1 / np.log2(np.arange(2, len(accuracy) + 2))
    ranked = relevance[np.argsort(far, kind="stable")]
    return float(ranked @ discount / (np.sort(relevance)[::-1] @ discount))


def by_chance(accuracy: Float[np.ndarray, "sources"]) -> tuple[list[float], float]:
    """The expected regret at each of :data:`TOP`, and NDCG, of a ranking by chance."""
    ordered, n = np.sort(accuracy), len(accuracy)
    expected = []
    for top in TOP:
        ways = np.array([comb(i, top - 1) for i in range(n)]) / comb(n, top)
        expected.append(float(1 - ordered @ ways / ordered[-1]))
    relevance = _from_worst_to_best(accuracy)
    discount = 1 / np.log2(np.arange(2, n + 2))
    return expected, float(
        relevance.mean() * discount.sum() / (np.sort(relevance)[::-1] @ discount)
    )


def _from_worst_to_best(accuracy: Float[np.ndarray, "_"]) -> Float[np.ndarray, "_"]:
    return (accuracy - accuracy.min()) / max(float(np.ptp(accuracy)), 1e-12)


def usefulness_elsewhere(
    accuracy: Mapping[str, Mapping[str, float]], target: str, sources: Sequence[str]
) -> Float[np.ndarray, "sources"]:
    """How useful each source is to the *other* targets: its accuracy over the mean of theirs.

    It knows nothing of the target: what a measure of similarity has to beat. A source that no other
    target tried is as useful as the mean.
    """
    over: dict[str, list[float]] = {s: [] for s in sources}
    for other, by in accuracy.items():
        if other != target:
            mean = float(np.mean(list(by.values())))
            for s in set(by) & set(sources):
                over[s].append(by[s] - mean)
    return np.array([np.mean(over[s]) if over[s] else 0.0 for s in sources])
