"""Figure 2 by the default distance: a table of ``docs/results-paper.md``, and its figure.

python -m experiments.tables.explained
"""

from typing import Any

import matplotlib as mpl
import numpy as np

from experiments.paper.published import FIG2
from experiments.tables import DOCS, POOLS, Blocks, ledger, markdown_table
from taskscape.diagram.plot import COLOURS
from taskscape.meta import label_of

PAGE = DOCS / "results-paper.md"
IMAGE = DOCS / "images" / "explained.png"
FIGURES = {"fig2-mini-imagenet": "mini_imagenet", "fig2-omniglot": "omniglot"}


def entries_of(figure: str) -> dict[str, list[dict[str, Any]]]:
    """By measure, the seeds of a figure."""
    by: dict[str, list[dict[str, Any]]] = {}
    for e in ledger("explained"):
        if e["cell"]["figure"] == figure:
            by.setdefault(e["cell"]["measure"], []).append(e)
    return by


def table() -> str:
    """The least and the largest over learners; intervals, over classes, of ProtoNet."""
    rows = [
        [POOLS[pool], f"`{measure}`", *_row(seeds)]
        for figure, pool in FIGURES.items()
        for measure, seeds in entries_of(figure).items()
    ]
    columns = ["test tasks of", "mean distance by", "Spearman, five learners", "given separation",
               "given all difficulty", "ProtoNet's interval of the last"]  # fmt: skip
    return markdown_table(columns, rows)


def _row(seeds: list[dict[str, Any]]) -> list[str]:
    learners, row, last = seeds[0]["learners"], [], ""
    for what in ("spearman", "given_difficulty", "given_all"):
        if what not in learners["protonet"]:
            row.append("")
            continue
        means = [np.mean([e["learners"][name][what]["value"] for e in seeds]) for name in learners]
        row.append(f"{_number(min(means))} to {_number(max(means))}")
        last = what
    ends = [
        _number(np.mean([e["learners"]["protonet"][last][end] for e in seeds]))
        for end in ("low", "high")
    ]
    return [*row, f"[{ends[0]}, {ends[1]}]"]


def _number(x: float) -> str:
    return f"{x:z.2f}".replace("-", "−")


TABLES = Blocks("experiments/tables/explained.py", {"explained": table})


def draw() -> None:
    """The paper's curves beside those by the default distance, a row for each figure."""
    from matplotlib import pyplot as plt

    figures = {f: p for f, p in FIGURES.items() if entries_of(f)}
    grid, rows = plt.subplots(
        len(figures),
        2,
        figsize=(8, 3.4 * len(figures)),
        layout="constrained",
        squeeze=False,
        sharey="row",
    )
    for (figure, pool), (paper, ours) in zip(figures.items(), rows, strict=True):
        first = entries_of(figure)["themes"][0]
        for name, colour in zip(first["learners"], COLOURS, strict=False):
            x, y = np.array(FIG2[pool][name]).T
            paper.plot(x, 100 * y, "o-", ms=3, lw=1, color=colour, label=label_of(name))
            x, y, _ = np.array(first["learners"][name]["bins"]).T
            ours.plot(x, 100 * y, "o-", ms=3, lw=1, color=colour)
        paper.set_title(f"{POOLS[pool]}, as published", fontsize=10)
        ours.set_title(f"{POOLS[pool]}, by the default distance", fontsize=10)
        paper.set_xlabel("mean KL divergence of task-themes", fontsize=9)
        n = first["cell"]["n_train"]
        ours.set_xlabel(f"mean distance to {n:,} training tasks", fontsize=9)
        paper.set_ylabel("accuracy, %", fontsize=9)
        for axis in (paper, ours):
            axis.grid(alpha=0.3)
            axis.tick_params(labelsize=8)
    rows[0][0].legend(frameon=False, fontsize=8)
    grid.savefig(IMAGE, dpi=130, metadata={"Software": None})
    plt.close(grid)


if __name__ == "__main__":
    TABLES.write(PAGE)
    mpl.use("agg")
    draw()
