"""Which measures find a task's own group: a table and a figure of ``docs/similarity.md``.

python -m experiments.tables.retrieval
"""

from functools import cache

import matplotlib as mpl
import numpy as np

from experiments.tables import DOCS, POOLS, Blocks, ledger, markdown_table

PAGE = DOCS / "similarity.md"
IMAGE = DOCS / "images" / "retrieval.png"


@cache
def draws() -> dict[str, dict[str, np.ndarray]]:
    """By measure and data set, the precision at 1 of every draw in %; and what chance has."""
    by: dict[str, dict[str, list[float]]] = {"chance": {}}
    for entry in ledger("retrieval"):
        measure, pool = entry["cell"]["measure"], entry["cell"]["pool"]
        by.setdefault(measure, {}).setdefault(pool, []).append(entry["precision"]["value"])
        by["chance"].setdefault(pool, []).append(entry["chance"])
    return {m: {p: 100 * np.array(x) for p, x in own.items()} for m, own in by.items()}


def table() -> str:
    """The mean over draws; the figure has every draw."""
    pools = [p for p in POOLS if p in draws()["chance"]]
    rows = []
    for measure, own in draws().items():
        name = measure if measure == "chance" else f"`{measure}`"
        rows.append([name, *(f"{own[p].mean():.0f}" if p in own else "" for p in pools)])
    return markdown_table(["measure", *(POOLS[p] for p in pools)], rows)


def draw() -> None:
    """Every measure on every data set: draws as points, their mean as a bar."""
    from matplotlib import pyplot as plt

    pools = [p for p in POOLS if p in draws()["chance"]]
    measures = [m for m in draws() if m != "chance"]
    figure, axes = plt.subplots(
        1, len(pools), figsize=(1.6 + 2.1 * len(pools), 3.2), sharey=True, layout="constrained"
    )
    for axis, pool in zip(np.atleast_1d(axes), pools, strict=True):
        for row, measure in enumerate(measures):
            x = draws()[measure].get(pool, np.array([]))
            if len(x):
                colour = "#4c72b0" if measure == "themes" else "#b4c3dc"
                axis.barh(row, x.mean(), height=0.7, color=colour)
                axis.plot(x, np.full(len(x), row), "o", ms=2.5, color="0.25", lw=0)
        axis.axvline(draws()["chance"][pool].mean(), color="0.3", lw=0.8, ls=":")
        axis.set_xlim(0, 100)
        axis.set_title(POOLS[pool], fontsize=10)
        axis.tick_params(labelsize=8)
    axis = np.atleast_1d(axes)[0]
    axis.set_yticks(range(len(measures)), measures, fontsize=9)
    axis.invert_yaxis()
    figure.supxlabel(
        "tasks that find their own unseen group, %; points are draws, dotted is chance", fontsize=9
    )
    figure.savefig(IMAGE, dpi=130, metadata={"Software": None})
    plt.close(figure)


TABLES = Blocks("experiments/tables/retrieval.py", {"retrieval": table})

if __name__ == "__main__":
    TABLES.write(PAGE)
    mpl.use("agg")
    draw()
