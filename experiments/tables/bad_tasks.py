"""What choosing gains where tasks are bad: tables and a figure of ``docs/results-bad-tasks.md``.

python -m experiments.tables.bad_tasks
"""

from functools import partial
from typing import Any

import matplotlib as mpl
import numpy as np

from experiments.bad_tasks import KINDS
from experiments.tables import DOCS, Blocks, ledger
from experiments.tables.targets import SHOWN, entries_of
from taskscape.plain_text import markdown_table
from taskscape.statistics import mean_interval
from taskscape.targets.gains import GainModel, decide
from taskscape.targets.rotation import gains_seen

PAGE = DOCS / "results-bad-tasks.md"
IMAGE = DOCS / "images" / "bad-tasks.png"
DRAWN = {
    "random": ("100 random", "0.5"),
    "all": ("all 2,000 candidates", "#000000"),
    "themes": ("100 nearest by themes", "#0072B2"),
    "prototypes": ("100 nearest by prototypes", "#D55E00"),
    "auto": ("100 by auto", "#009E73"),
}
Entry = dict[str, Any]


def by_target(kind: str, share: float, separable: bool = False) -> dict[str, Entry]:
    """The finished targets of a kind of bad tasks and a share of them."""
    asked = ("none", 0.0) if share == 0 else (kind, share)
    return {
        e["cell"]["target"]: e
        for e in ledger("bad-tasks-glyphs")
        if (e["cell"]["kind"], e["cell"]["share"]) == asked
        and e["cell"].get("separable", False) == separable
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
        rows.append([name, *(_gained(by_target(kind, s), by_target(kind, s), way) for s in shares)])
    filtered = {share: by_target(kind, share, separable=True) for share in shares}
    if all(filtered.values()):
        for way, name in {"random": "random choice", **words}.items():
            cells = [_gained(filtered[s], by_target(kind, s), way) for s in shares]
            rows.append([f"{name}, separable only", *cells])
    return markdown_table(["", *(f"{100 * s:.0f} % bad" for s in shares)], rows)


def _gained(tried: dict[str, Entry], clean: dict[str, Entry], way: str) -> str:
    """Points over random choice among all candidates, and the part of the chosen that is bad."""
    both = [t for t in tried if t in clean]
    own = [of_way(tried[t], way) for t in both]
    gap = [
        _accuracy(w) - _accuracy(of_way(clean[t], "random")) for w, t in zip(own, both, strict=True)
    ]
    gain = mean_interval(np.array(gap)).in_points().replace("-", "−")
    return f"{gain}; {100 * np.mean([w['bad'] for w in own]):.0f} %"


def _accuracy(way: dict[str, Any]) -> float:
    return float(np.mean(way["accuracy"]))


def _lost(kind: str, share: float) -> str:
    clean, bad = by_target(kind, 0.0), by_target(kind, share)
    both = [t for t in clean if t in bad]
    if share == 0:
        mean = np.mean([_accuracy(of_way(clean[t], "random")) for t in both])
        return f"accuracy {100 * mean:.1f} %, {len(both)} targets"
    lost = [
        _accuracy(of_way(bad[t], "random")) - _accuracy(of_way(clean[t], "random")) for t in both
    ]
    return mean_interval(np.array(lost)).in_points().replace("-", "−")


TABLES = Blocks(
    "experiments/tables/bad_tasks.py",
    {kind.replace(" ", "_"): partial(table, kind) for kind in KINDS},
)


def draw() -> None:
    """Mean accuracy by the share of bad tasks, a panel for each kind."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), sharey=True, layout="constrained")
    for axis, kind in zip(axes, reversed(KINDS), strict=True):
        for way, (label, colour) in DRAWN.items():
            _line(axis, kind, way, label, "-", colour)
        _line(axis, kind, "auto", "100 by auto, of the separable", ":", DRAWN["auto"][1], True)
        axis.set_title(f"bad: {kind}", fontsize=10)
        axis.set_xlabel("share of the candidate tasks that is bad, %", fontsize=9)
        axis.grid(alpha=0.3)
        axis.tick_params(labelsize=8)
    axes[0].set_ylabel("accuracy on the target, %", fontsize=9)
    axes[0].legend(handles=axes[1].get_lines(), frameon=False, fontsize=8, loc="lower left")
    figure.savefig(IMAGE, dpi=130, metadata={"Software": None})
    plt.close(figure)


def _line(
    axis: Any, kind: str, way: str, label: str, line: str, colour: str, separable: bool = False
) -> None:
    by = {s: list(by_target(kind, s, separable).values()) for s in (0.0, 0.2, 0.4, 0.6)}
    if all(by.values()) and (kind == "permuted labels" or not separable):
        means = [100 * np.mean([_accuracy(of_way(e, way)) for e in own]) for own in by.values()]
        axis.plot([100 * s for s in by], means, line, marker="o", ms=3, color=colour, label=label)


if __name__ == "__main__":
    TABLES.write(PAGE)
    mpl.use("agg")
    draw()
