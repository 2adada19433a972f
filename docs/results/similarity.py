"""What the ledgers of notions of similarity beside this file say: tables and a figure.

    python docs/results/similarity.py

Writes the tables of ``docs/results-similarity.md`` and ``docs/images/notions.png``.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from taskscape.plain_text import markdown_table
from taskscape.studies.lab import read_ledger

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from blocks import Blocks  # noqa: E402

POOLS = {
    "letters": "letters",
    "glyphs": "letters and symbols",
    "omniglot": "Omniglot",
    "mini_imagenet": "mini-ImageNet",
}
PAGE = HERE.parent / "results-similarity.md"
IMAGE = HERE.parent / "images" / "notions.png"
NOTIONS = {
    ("nearest centroid", "", 1): "nearest centroid",
    ("hardness", "", 1): "hardness",
    ("separation", "", 1): "separation of the classes",
    ("task-themes", "kl", 1): "task-themes, one fit",
    ("task-themes", "kl", 3): "task-themes, three fits",
    ("Task2Vec per unit", "", 1): "Task2Vec per unit",
    ("Task2Vec per layer", "", 1): "Task2Vec per layer",
    ("prototypes", "", 1): "class prototypes",
    ("OTDD", "", 1): "OTDD",
}
DIFFICULTY = ("nearest centroid", "hardness", "separation of the classes")
STATISTICS = ("spearman", "partial", "partial_all")


def ledger(pool: str) -> list[dict[str, Any]]:
    """The finished cells of a data set; none where it was not studied."""
    path = HERE / f"similarity-{pool}-test.jsonl"
    return read_ledger(path) if path.exists() else []


def values(
    entries: Sequence[dict[str, Any]], notion: tuple[str, str, int], statistic: str
) -> np.ndarray | None:
    """A number and the ends of its interval, averaged over seeds."""
    own = [
        e
        for e in entries
        if (e["cell"]["notion"], e["cell"]["divergence"], e["cell"]["fits"]) == notion
        and e["cell"]["summary"] in ("mean", "the task alone")
    ]
    # where a notion was computed for two numbers of training tasks, the more
    most = max((e["cell"]["reference"] or 0 for e in own), default=0)
    seen = [e[statistic] for e in own if (e["cell"]["reference"] or 0) == most]
    if not seen or seen[0][0] is None:
        return None
    return np.mean(seen, axis=0)


def table(statistic: str) -> str:
    """Notions against data sets."""
    pools = {name: entries for name in POOLS if (entries := ledger(name))}
    rows = []
    for notion, words in NOTIONS.items():
        cells = [values(entries, notion, statistic) for entries in pools.values()]
        if any(c is not None for c in cells):
            rows.append([words, *("" if c is None else _shown(c) for c in cells)])
    return markdown_table(["", *(POOLS[name] for name in pools)], rows)


def _shown(x: np.ndarray) -> str:
    value, low, high = (f"{v:z.2f}".replace("-", "−") for v in x)
    return f"{value} [{low}, {high}]"


def about() -> str:
    """Accuracies, ceilings and counts."""
    rows = []
    for name, words in POOLS.items():
        entries = ledger(name)
        if not entries:
            continue
        first = [e for e in entries if e["cell"]["notion"] == "nearest centroid"]
        accuracy = np.mean([e["mean_accuracy"] for e in first])
        ceiling = np.mean([e["ceiling"] for e in first])
        seeds = len({e["cell"]["seed"] for e in first})
        tasks, classes = first[0]["n_tasks"], first[0]["n_classes"]
        rows.append(
            [words, f"{tasks:,}", str(classes), str(seeds), f"{accuracy:.2f}", f"{ceiling:.2f}"]
        )
    columns = ["", "tasks", "classes", "seeds", "mean accuracy of ProtoNet", "ceiling"]
    return markdown_table(columns, rows)


TABLES = Blocks(
    "docs/results/similarity.py",
    {"about": about, **{name: (lambda name=name: table(name)) for name in STATISTICS}},
)


def draw() -> None:
    """Alone and given difficulty, a panel for each data set."""
    from matplotlib import pyplot as plt

    pools = {name: entries for name in POOLS if (entries := ledger(name))}
    width = 2.4 + 2.2 * len(pools)
    figure, axes = plt.subplots(
        1, len(pools), figsize=(width, 3.6), sharey=True, sharex=True, layout="constrained"
    )
    for axis, (name, entries) in zip(np.atleast_1d(axes), pools.items(), strict=True):
        for statistic, colour, shift, label in (
            ("spearman", "#4c72b0", -0.16, "alone"),
            ("partial_all", "#dd8452", 0.16, "given difficulty"),
        ):
            for i, notion in enumerate(NOTIONS):
                x = values(entries, notion, statistic)
                if x is not None:
                    ends = np.abs(x[1:] - x[0])[:, None]
                    axis.errorbar(
                        x[0], i + shift, xerr=ends, fmt="o", ms=4, lw=1, color=colour,
                        label=label if i == 3 else None,
                    )  # fmt: skip
        axis.axvline(0, color="0.4", lw=0.8)
        axis.axhline(len(DIFFICULTY) - 0.5, color="0.8", lw=0.8)
        axis.set_title(POOLS[name], fontsize=10)
        axis.grid(axis="x", alpha=0.3)
    first = np.atleast_1d(axes)[0]
    first.set_yticks(range(len(NOTIONS)), list(NOTIONS.values()), fontsize=8)
    first.invert_yaxis()
    first.set_xlim(-1, 1)
    handles, labels = np.atleast_1d(axes)[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=2, frameon=False, fontsize=8)
    figure.supxlabel(
        "rank correlation with accuracy (−1: foretells it, 0: says nothing), 95 % over classes",
        fontsize=8,
    )
    figure.savefig(IMAGE, dpi=130, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    TABLES.write(PAGE)
    mpl.use("agg")
    draw()
