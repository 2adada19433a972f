"""How well measures rank sources: the tables of ``docs/results-sources.md``.

python -m experiments.tables.sources

Accuracies after training on each source alone are those of the ledger of targets; distances, and a
second training of each, of the ledger of sources.
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np
from scipy.stats import rankdata

from experiments.sources import TOP, by_chance, ndcg, regret, usefulness_elsewhere
from experiments.tables import DOCS, Blocks, ledger
from experiments.tables.targets import LEARNERS, SOURCE, decided, entries_of
from taskscape.plain_text import markdown_table
from taskscape.statistics import mean_interval

PAGE = DOCS / "results-sources.md"
JOINED = "sources-glyphs-omniglot"
BLIND, BOTH, TRIED, AGAIN = "blind", "both", "tried", "again"
WORDS = {
    BLIND: "**usefulness to other targets**, blind to this one",
    BOTH: "mean rank of `themes`, nearest, and usefulness to other targets",
    TRIED: "training on each, tried on the labelled samples",
    AGAIN: "a second training on each, tried on the queries: what noise leaves",
}

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
        if (near := "`themes`, nearest") in far:
            far[BOTH] = rankdata(blind) + rankdata(far[near])
        far[TRIED] = of(held_out, -1)
        if target in again:
            far[AGAIN] = of(again, -1)
        for name, d in far.items():
            ranked.setdefault(name, []).append((a, d))
    return {name: own for name, own in ranked.items() if len(own) == len(accuracy)}


def table(learner: str, joined: bool = False) -> str:
    """Regret and NDCG by what ranks the sources, means over targets with their intervals.

    The last column is paired by target.
    """
    ranked = rankings(learner, joined)
    rows = []
    for name in [n for n in ranked if n not in WORDS] + [n for n in WORDS if n in ranked]:
        scores = [[100 * regret(a, d, k) for k in TOP] + [ndcg(a, d)] for a, d in ranked[name]]
        saved = [
            regret(a, blind, 3) - regret(a, d, 3)
            for (a, d), (_, blind) in zip(ranked[name], ranked[BLIND], strict=True)
        ]
        less = "" if name == BLIND else mean_interval(np.array(saved)).in_points()
        words = WORDS.get(name, name)
        rows.append([words, *_shown(np.array(scores)), less.replace("-", "−")])
    expected = [by_chance(a) for a, _ in ranked[BLIND]]
    chance = np.array([[*(100 * r for r in regrets), gain] for regrets, gain in expected])
    rows.append(["by chance", *_shown(chance), ""])
    columns = ["sources ranked by", *(f"regret@{k}, %" for k in TOP), "NDCG", "regret@3 saved"]
    return markdown_table(columns, rows)


def _shown(scores: np.ndarray) -> list[str]:
    """Means of regrets, and of NDCG with a decimal more, with their intervals."""
    cells = []
    for form, x in zip(["{:.1f}"] * len(TOP) + ["{:.2f}"], scores.T, strict=True):
        of = mean_interval(x)
        value, low, high = (form.format(max(v, 0)) for v in (of.value, of.low, of.high))
        cells.append(f"{value} [{low}, {high}]")
    return cells


def gains() -> str:
    """Points over 100 random tasks by training on the source that is ranked first."""
    columns = {}
    for learner in LEARNERS:
        entries = entries_of("mlp", learner)
        tried = [{(w["way"], w["budget"]): w for w in e["ways"]} for e in entries]
        random = np.array([np.mean(by["random", 100]["accuracy"]) for by in tried])
        ranked = rankings(learner)
        first = {n: np.array([a[np.argmin(d)] for a, d in own]) for n, own in ranked.items()}
        own = {WORDS.get(n, n): first[n] - random for n in ranked if n != AGAIN}
        best = np.array([a.max() for a, _ in ranked[BLIND]])
        own["the best of all, which nobody knows"] = best - random
        own["not one source: all 2,000 candidates"] = np.array(
            [by["all", 2000]["gain"] for by in tried]
        )
        own["not one source: 100 tasks by `auto`"] = np.array(
            [gain for *_, gain in decided(entries, 100)]
        )
        columns[learner] = own
    rows = [
        [
            name,
            *(mean_interval(own[name]).in_points().replace("-", "−") for own in columns.values()),
        ]
        for name in columns["protonet"]
    ]
    return markdown_table(["the source that is first by", *LEARNERS.values()], rows)


TABLES = Blocks(
    "experiments/tables/sources.py",
    {
        **{learner: partial(table, learner) for learner in LEARNERS},
        "gains": gains,
        "joined": partial(table, "protonet", joined=True),
    },
)

if __name__ == "__main__":
    TABLES.write(PAGE)
