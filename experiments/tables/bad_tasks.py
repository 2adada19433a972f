"""What choosing gains where tasks are bad: tables and a figure of ``docs/results-bad-tasks.md``.

python -m experiments.tables.bad_tasks
"""

from typing import Any

import matplotlib as mpl
import numpy as np

from experiments.bad_tasks import KINDS
from experiments.tables import DOCS, Blocks, ledger, markdown_table
from experiments.tables.targets import SHOWN, entries_of
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
COLUMNS = {"permuted labels": (0.2, 0.6), "unrelated source": (0.2, 0.6)}
"""What the table has; the figure and the ledger have more."""
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


def table() -> str:
    """Points over random choice from the same candidates, and how many of the chosen are bad."""
    words = {"themes": SHOWN["themes"], "prototypes": SHOWN["prototypes"]}
    words |= {"auto": "**auto**", "all": "all candidates"}
    asked = [(kind, share) for kind, shares in COLUMNS.items() for share in shares]
    rows = [["random choice, against no bad tasks", *(_lost(*of) for of in asked)]]
    for way, name in words.items():
        rows.append([name, *(_gained(by_target(*of), by_target(*of), way) for of in asked)])
    filtered = {w: {"random": "random choice", **words}[w] for w in ("random", "auto", "all")}
    for way, name in filtered.items():
        cells = [_gained(by_target(*of, separable=True), by_target(*of), way) for of in asked]
        rows.append([f"{name}, separable only", *cells])
    return markdown_table(["", *(f"{100 * s:.0f} % {kind}" for kind, s in asked)], rows)


def _gained(tried: dict[str, Entry], clean: dict[str, Entry], way: str) -> str:
    """Points over random choice among all candidates, and the part of the chosen that is bad."""
    both = [t for t in tried if t in clean]
    if not both:
        return ""
    own = [of_way(tried[t], way) for t in both]
    gap = [
        _accuracy(w) - _accuracy(of_way(clean[t], "random")) for w, t in zip(own, both, strict=True)
    ]
    return f"{_points(gap)}; {100 * np.mean([w['bad'] for w in own]):.0f} %"


def _points(gaps: list[float]) -> str:
    return f"{100 * np.mean(gaps):+z.1f}".replace("-", "−")


def _accuracy(way: dict[str, Any]) -> float:
    return float(np.mean(way["accuracy"]))


def _lost(kind: str, share: float) -> str:
    clean, bad = by_target(kind, 0.0), by_target(kind, share)
    both = [t for t in clean if t in bad]
    return _points(
        [_accuracy(of_way(bad[t], "random")) - _accuracy(of_way(clean[t], "random")) for t in both]
    )


TABLES = Blocks("experiments/tables/bad_tasks.py", {"bad": table})


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
