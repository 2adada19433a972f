"""What the ledgers of similarity measures say: tables and a figure.

    python -m experiments.tables.similarity

Writes the tables of ``docs/results-similarity.md`` and ``docs/images/measures.png``.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import matplotlib as mpl
import numpy as np

from experiments.recipes import PREFERRED_SIZES
from experiments.tables import DOCS, POOLS, Blocks, ledger, markdown_table

PAGE = DOCS / "results-similarity.md"
IMAGE = DOCS / "images" / "measures.png"
MEASURES = {
    ("nearest centroid", "", 1): "nearest centroid",
    ("hardness", "", 1): "hardness",
    ("separation", "", 1): "separation of the classes",
    ("task-themes", "kl", 3): "task-themes, three fits",
    ("task-themes, chosen size", "kl", 3): "task-themes of the chosen size, three fits",
    ("image-themes", "", 1): "image-themes and position",
    ("Task2Vec per unit", "", 1): "Task2Vec per unit",
    ("prototypes", "", 1): "class prototypes",
    ("OTDD", "", 1): "OTDD",
}
DIFFICULTY = ("nearest centroid", "hardness", "separation of the classes")
DRAWN = {
    "nearest centroid": "nearest centroid",
    "hardness": "hardness",
    "task-themes, three fits": "task-themes",
    "task-themes of the chosen size, three fits": "task-themes, chosen size",
    "image-themes and position": "image-themes",
    "Task2Vec per unit": "Task2Vec",
    "class prototypes": "prototypes",
    "OTDD": "OTDD",
}
"""What the figure has, in shorter words; the tables have all."""


@cache
def cells_of(pool: str) -> list[dict[str, Any]]:
    """The finished cells of a data set for ProtoNet; none where it was not studied."""
    return [
        {**e, "cell": {**e["cell"], "measure": _measure(e["cell"], pool)}}
        for e in ledger(f"similarity-{pool}-test")
        if e["cell"]["learner"] == "protonet"
    ]


def _measure(cell: Mapping[str, Any], pool: str) -> str:
    """What a cell is of; fits of the size that was chosen of nine, before all sixteen were tried,
    have a name of their own."""
    own = {name: cell[name] for name in ("task_themes", "image_themes") if name in cell}
    chosen = not own or own == PREFERRED_SIZES[pool]
    return cell["measure"] if chosen else "task-themes, smaller size"


def values(
    entries: Sequence[dict[str, Any]], measure: tuple[str, str, int], statistic: str
) -> np.ndarray | None:
    """A number and the ends of its interval, averaged over seeds."""
    own = [
        e
        for e in entries
        if (e["cell"]["measure"], e["cell"]["divergence"], e["cell"]["fits"]) == measure
        and e["cell"]["summary"] in ("mean", "the task alone")
    ]
    # where a measure was computed for two numbers of training tasks, the more
    most = max((e["cell"]["reference"] or 0 for e in own), default=0)
    seen = [e[statistic] for e in own if (e["cell"]["reference"] or 0) == most]
    if not seen or seen[0][0] is None:
        return None
    return np.mean(seen, axis=0)


def table() -> str:
    """Similarity measures against data sets: alone, and given difficulty with the interval."""
    pools = {name: entries for name in POOLS if (entries := cells_of(name))}
    rows = []
    for measure, words in MEASURES.items():
        cells = []
        for entries in pools.values():
            alone = values(entries, measure, "spearman")
            given = values(entries, measure, "partial_all")
            shown = [] if alone is None else [_number(alone[0])]
            if given is not None:
                shown.append("{} [{}, {}]".format(*map(_number, given)))
            cells.append("; ".join(shown))
        if any(cells):
            rows.append([words, *cells])
    return markdown_table(["", *(POOLS[name] for name in pools)], rows)


def _number(x: float) -> str:
    return f"{x:z.2f}".replace("-", "−")


TABLES = Blocks("experiments/tables/similarity.py", {"measures": table})


def draw() -> None:
    """A bar for each measure, alone and given difficulty, a panel for each data set."""
    from matplotlib import pyplot as plt

    pools = {name: entries for name in POOLS if (entries := cells_of(name))}
    of = {words: measure for measure, words in MEASURES.items()}
    drawn = [
        w for w in DRAWN if any(values(e, of[w], "spearman") is not None for e in pools.values())
    ]
    figure, axes = plt.subplots(
        1, len(pools), figsize=(2.2 + 2.2 * len(pools), 3.4), sharey=True, sharex=True,
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for axis, (name, entries) in zip(axes[0], pools.items(), strict=True):
        for row, words in enumerate(drawn):
            own = words in DIFFICULTY
            _bar(
                axis, row - (0 if own else 0.19), values(entries, of[words], "spearman"), "#4c72b0"
            )
            if not own:
                _bar(axis, row + 0.19, values(entries, of[words], "partial_all"), "#dd8452")
        own_rows = sum(words in DIFFICULTY for words in drawn)
        axis.axhspan(-0.5, own_rows - 0.5, color="0.93", zorder=0)
        axis.axvline(0, color="0.3", lw=0.8)
        ceiling = np.mean([e["ceiling"] for e in entries])
        axis.axvline(ceiling, color="0.3", lw=0.8, ls=":")
        axis.set_title(POOLS[name], fontsize=10)
        axis.tick_params(labelsize=8)
    axes[0, 0].set_yticks(range(len(drawn)), [DRAWN[words] for words in drawn], fontsize=9)
    axes[0, 0].set_ylim(len(drawn) - 0.5, -0.5)
    axes[0, 0].set_xlim(-0.6, 1.02)
    axes[0, 0].set_xticks([-0.5, 0, 0.5, 1])
    _explain(figure)
    figure.savefig(IMAGE, dpi=130, metadata={"Software": None})
    plt.close(figure)


def _bar(axis: Any, at: float, x: np.ndarray | None, colour: str) -> None:
    if x is not None:
        value, low, high = -x[0], -x[2], -x[1]  # more is harder or farther: what predicts is < 0
        axis.barh(at, value, height=0.36, color=colour)
        axis.plot([low, high], [at, at], color="0.25", lw=0.9)


def _explain(figure: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(color="#4c72b0"),
        Patch(color="#dd8452"),
        Patch(color="0.93"),
        Line2D([], [], color="0.3", lw=0.8, ls=":"),
    ]
    labels = [
        "alone",
        "what it adds to difficulty",
        "difficulty of the task itself; below, distances from the training tasks",
        "best possible",
    ]
    figure.legend(
        handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=8,
        columnspacing=1.2,
    )  # fmt: skip
    figure.supxlabel(
        "how well it predicts accuracy: rank correlation, 0 says nothing, below 0 misleads; "
        "lines are 95 % intervals over classes",
        fontsize=8,
    )


if __name__ == "__main__":
    TABLES.write(PAGE)
    mpl.use("agg")
    draw()
