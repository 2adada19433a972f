"""What choosing gains where candidate tasks are bad: the tables of ``docs/results-bad-tasks.md``.

python -m experiments.tables.bad_tasks
"""

from functools import partial
from typing import Any

import numpy as np

from experiments.bad_tasks import KINDS
from experiments.tables import DOCS, Blocks, ledger
from experiments.tables.targets import SHOWN, entries_of
from taskscape.plain_text import markdown_table
from taskscape.statistics import mean_interval
from taskscape.targets.gains import GainModel, decide
from taskscape.targets.rotation import gains_seen

PAGE = DOCS / "results-bad-tasks.md"
Entry = dict[str, Any]


def by_target(kind: str, share: float) -> dict[str, Entry]:
    """The finished targets of a kind of bad tasks and a share of them."""
    asked = ("none", 0.0) if share == 0 else (kind, share)
    return {
        e["cell"]["target"]: e
        for e in ledger("bad-tasks-glyphs")
        if (e["cell"]["kind"], e["cell"]["share"]) == asked
    }


def of_way(entry: Entry, way: str) -> dict[str, Any]:
    """What a way did on a target; ``auto`` is what it takes with the clean pool as experience."""
    if way == "auto":
        way = auto(entry)
    return next(w for w in entry["ways"] if w["way"] == way)


def auto(entry: Entry) -> str:
    """What the labelled samples speak for, weighed by gains on other targets of the clean pool."""
    cell = entry["cell"]
    seen = gains_seen(entries_of("mlp", cell["learner"]))
    model = GainModel.fit([s for s in seen if s.target != cell["target"]])
    tried = [w for w in entry["ways"] if w["way"] in SHOWN]
    return decide([model.expect(w["way"], w["evidence"]) for w in tried]).way


def table(kind: str) -> str:
    """Points over random choice from the same candidates, and how many of the chosen are bad."""
    shares = sorted({e["cell"]["share"] for e in ledger("bad-tasks-glyphs")})
    shares = [share for share in shares if by_target(kind, share)]
    rows = [["random choice, against no bad tasks", *(_lost(kind, s) for s in shares)]]
    words = {w: SHOWN[w] for w in ("themes", "prototypes", "ranks")}
    words |= {"auto": "**auto**", "all": "all candidates"}
    for way, name in words.items():
        rows.append([name, *(_gained(list(by_target(kind, s).values()), way) for s in shares)])
    return markdown_table(["", *(f"{100 * s:.0f} % bad" for s in shares)], rows)


def _gained(entries: list[Entry], way: str) -> str:
    tried = [of_way(e, way) for e in entries]
    gain = mean_interval(np.array([w["gain"] for w in tried])).in_points()
    return f"{gain}; {100 * np.mean([w['bad'] for w in tried]):.0f} %"


def _lost(kind: str, share: float) -> str:
    clean, bad = by_target(kind, 0.0), by_target(kind, share)
    if share == 0:
        accuracy = [np.mean(of_way(e, "random")["accuracy"]) for e in clean.values()]
        return f"accuracy {100 * np.mean(accuracy):.1f} %, {len(clean)} targets"
    lost = [
        np.mean(of_way(bad[t], "random")["accuracy"])
        - np.mean(of_way(clean[t], "random")["accuracy"])
        for t in clean
        if t in bad
    ]
    return mean_interval(np.array(lost)).in_points()


TABLES = Blocks(
    "experiments/tables/bad_tasks.py",
    {kind.replace(" ", "_"): partial(table, kind) for kind in KINDS},
)

if __name__ == "__main__":
    TABLES.write(PAGE)
