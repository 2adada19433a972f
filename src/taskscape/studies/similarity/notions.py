"""How well every notion of similarity tells accuracy, into a ledger."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from taskscape.studies.ledger import Ledger
from taskscape.studies.similarity.accuracies import settings_of
from taskscape.studies.similarity.association import Target, association
from taskscape.studies.similarity.families import FAMILIES, Bench, Family, Variant
from taskscape.studies.similarity.study import SimilarityStudy

__all__ = ["run_notions"]


def run_notions(
    study: SimilarityStudy,
    ledger: Ledger,
    accuracies: Mapping[str, Mapping[int, Float[np.ndarray, "tasks episodes"]]],
    difficulty: Float[np.ndarray, "tasks 4"],
    *,
    seeds: Sequence[int],
    families: Sequence[str] = tuple(FAMILIES),
    until: float = float("inf"),
) -> None:
    """Compute what the ledger does not have, until done or until ``until`` on the clock.

    ``accuracies`` are by learner and seed; a seed's fits meet the learners trained with that seed.
    """
    bench = Bench(study, difficulty)
    for seed in seeds:
        targets = {
            (learner, few): _target(bench, of[seed], few)
            for learner, of in accuracies.items()
            for few in (False, True)
        }
        for name in families:
            family = FAMILIES[name]
            wanted = [
                _cell(study, family, variant, summary, learner, seed)
                for variant in family.variants
                for summary in family.summaries(study)
                for learner in accuracies
            ]
            if all(ledger.get(cell) for cell in wanted):
                continue
            if time.monotonic() > until:
                return
            _run_family(bench, ledger, name, seed, targets)


def _run_family(
    bench: Bench, ledger: Ledger, name: str, seed: int, targets: Mapping[tuple[str, bool], Target]
) -> None:
    family, began = FAMILIES[name], time.perf_counter()
    learners = [learner for learner, few in targets if few]
    try:
        for variant, summaries in family.compute(bench, seed):
            seconds = round(time.perf_counter() - began, 2)
            for summary, x in summaries.items():
                for learner in learners:
                    cell = _cell(bench.study, family, variant, summary, learner, seed)
                    if ledger.get(cell) is None:
                        found = association(x, targets[learner, family.few])
                        ledger.add(cell, {**found, "seconds": seconds})
            began = time.perf_counter()
    except ImportError as error:  # the earth mover's distance needs POT
        print(f"{name}: left out, {error}", file=sys.stderr)


def _target(bench: Bench, accuracies: Float[np.ndarray, "tasks episodes"], few: bool) -> Target:
    rows = bench.study.few if few else np.arange(len(accuracies))
    classes = bench.study.tasks.classes[rows]
    return Target.of(accuracies[rows], bench.difficulty[rows], classes)


def _cell(
    study: SimilarityStudy, family: Family, variant: Variant, summary: str, learner: str, seed: int
) -> dict[str, Any]:
    return {
        "what": "notion",
        **study.identity(),
        "learner": learner,
        "settings": settings_of(study, learner),
        **variant._asdict(),
        "summary": summary,
        "reference": family.reference(study),
        "seed": seed,
    }
