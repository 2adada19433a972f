"""How well measures rank sources: the tables of ``docs/results-sources.md``.

python -m experiments.tables.sources

Accuracies after training on each source alone are those of the ledger of targets; distances, and a
second training of each, of the ledger of sources.
"""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from experiments.sources import TOP, by_chance, ndcg, regret, usefulness_elsewhere
from experiments.tables import DOCS, Blocks, ledger, markdown_table
from experiments.tables.targets import LEARNERS, SOURCE, entries_of
from taskscape.statistics import Interval, mean_interval

PAGE = DOCS / "results-sources.md"
JOINED = "sources-glyphs-omniglot"
BLIND, TRIED, AGAIN = "blind", "tried", "again"
WORDS = {
    BLIND: "**usefulness to other targets**",
    TRIED: "trying each on labelled samples",
    AGAIN: "a second training of each",
}
SHOWN = (1, 3)
"""The k of the regrets in the tables."""

Ranked = tuple[np.ndarray, np.ndarray]
"""Accuracies of the sources of a target, and what they are ranked by: the nearest first."""
Sources = Mapping[str, Mapping[str, float]]
"""By target and source."""


def alone(learner: str, joined: bool = False) -> dict[str, dict[str, dict[str, float]]]:
    """By target, accuracy after training on each source alone, and what labelled samples say."""
    if joined:
        return {
            e["cell"]["target"]: {"accuracy": e["accuracy"], "held_out": e["held_out"]}
            for e in ledger(JOINED)
            if e["cell"]["what"] == "sources alone" and e["cell"]["learner"] == learner
        }
    return {
        e["cell"]["target"]: {
            name: {
                w["way"].removeprefix(SOURCE): w[name][0]
                for w in e["ways"]
                if w["way"].startswith(SOURCE)
            }
            for name in ("accuracy", "held_out")
        }
        for e in entries_of("mlp", learner)
    }


@cache
def measured(joined: bool) -> dict[str, dict[str, dict[str, float]]]:
    """By measure and what of its tasks a source is as far as, target and source, the distance."""
    by: dict[str, dict[str, dict[str, float]]] = {}
    for e in ledger(JOINED if joined else "sources-glyphs"):
        for how in ("nearest", "mean"):
            for measure, own in e.get(how, {}).items():
                by.setdefault(f"`{measure}`, {how}", {})[e["cell"]["target"]] = own
    return dict(sorted(by.items(), key=lambda item: -item[0].endswith("nearest")))


def rankings(learner: str, joined: bool = False) -> dict[str, list[Ranked]]:
    """By what ranks the sources, every target; what does not rank all of them is left out."""
    every = alone(learner, joined)
    accuracy = {t: own["accuracy"] for t, own in every.items()}
    again = {
        e["cell"]["target"]: e["accuracy"]
        for e in ledger("sources-glyphs")
        if not joined and e["cell"].get("learner") == learner and e["cell"].get("trial") == 1
    }
    held_out = {t: own["held_out"] for t, own in every.items()}
    ranked: dict[str, list[Ranked]] = {}
    for target, by in accuracy.items():
        names = list(by)
        a = np.array([by[s] for s in names])

        def of(far: Sources, sign: float = 1.0, t: str = target, n: list[str] = names) -> Any:
            return sign * np.array([far[t][s] for s in n])

        blind = -usefulness_elsewhere(accuracy, target, names)
        far = {m: of(d) for m, d in measured(joined).items() if target in d}
        far[BLIND] = blind
        far[TRIED] = of(held_out, -1)
        if target in again:
            far[AGAIN] = of(again, -1)
        for name, d in far.items():
            ranked.setdefault(name, []).append((a, d))
    return {name: own for name, own in ranked.items() if len(own) == len(accuracy)}


def table(learners: Sequence[str], joined: bool = False) -> str:
    """Regret and NDCG by what ranks the sources, means over targets; columns for each learner."""
    by_learner = [rankings(learner, joined) for learner in learners]
    rows = []
    for name in _shown(by_learner[0]):
        row = [WORDS.get(name, name)]
        for ranked in by_learner:
            scores = [
                [*(regret(a, d, k) for k in TOP), ndcg(a, d)] for a, d in ranked.get(name, [])
            ]
            row += _cells(scores)
        rows.append(row)
    chance = ["by chance"]
    for ranked in by_learner:
        expected = [by_chance(a) for a, _ in ranked[BLIND]]
        chance += _cells([[*regrets, gain] for regrets, gain in expected])
    shown = [f"regret@{k}" for k in SHOWN] + ["NDCG"]
    columns = [f"{LEARNERS[learner]} {score}" for learner in learners for score in shown]
    return markdown_table(["sources ranked by", *columns], [*rows, chance])


def _shown(ranked: Mapping[str, Any]) -> list[str]:
    """Every measure by the nearest task, ``themes`` by the mean too, and what has words."""
    measures = [n for n in ranked if n.endswith("nearest") or n == "`themes`, mean"]
    return [*measures, *(n for n in WORDS if n in ranked)]


def _cells(scores: list[list[float]]) -> list[str]:
    """The means over targets of the regrets that are shown, and of NDCG."""
    if not scores:
        return [""] * (len(SHOWN) + 1)
    means = dict(zip((*TOP, "ndcg"), np.mean(scores, axis=0), strict=True))
    return [*(f"{100 * means[k]:.1f}" for k in SHOWN), f"{means['ndcg']:.2f}"]


def saved_at_3(learner: str) -> dict[str, Interval]:
    """By what ranks the sources, regret@3 of the blind ranking less its own, paired by target."""
    ranked = rankings(learner)
    return {
        name: mean_interval(
            np.array(
                [
                    regret(a, blind, 3) - regret(a, d, 3)
                    for (a, d), (_, blind) in zip(own, ranked[BLIND], strict=True)
                ]
            )
        )
        for name, own in ranked.items()
    }


TABLES = Blocks(
    "experiments/tables/sources.py",
    {"alone": partial(table, tuple(LEARNERS)), "joined": partial(table, ("protonet",), True)},
)

if __name__ == "__main__":
    TABLES.write(PAGE)
    for learner in LEARNERS:
        for name, saved in saved_at_3(learner).items():
            print(learner, "regret@3 saved by", name, saved.in_points())
