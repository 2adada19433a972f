"""How well tasks of unknown sources are told from known ones: tables of ``docs/results-novel.md``.

python -m experiments.tables.novel
"""

from typing import Any

import numpy as np

from experiments.tables import DOCS, POOLS, Blocks, ledger, markdown_table
from taskscape.statistics import mean_interval

PAGE = DOCS / "results-novel.md"
AGAINST = "unknown groups against new classes"
SCORES = {
    "bound": "the bound",
    **{
        f"{name}, nearest": f"nearest task by `{name}`"
        for name in ("themes", "position", "task_means", "prototypes")
    },
    "themes, mean": "mean of all by `themes`",
}
"""What the table has; other comparisons, and means by other measures, are in the ledger."""


def _of(pool: str, what: str) -> list[dict[str, Any]]:
    return [e[what] for e in ledger("novel") if e["cell"]["pool"] == pool]


def _pools() -> list[str]:
    return [p for p in POOLS if _of(p, "fires")]


def auroc() -> str:
    """By score, means over splits with their intervals."""
    rows = []
    for score, words in SCORES.items():
        row = [words]
        for pool in _pools():
            x = np.array([e[score][AGAINST] for e in _of(pool, "auroc")])
            row.append(str(mean_interval(x).within(0.0, 1.0)))
        rows.append(row)
    return markdown_table(["", *(POOLS[p] for p in _pools())], rows)


def fires() -> str:
    """In how many groups the warning fires: means over splits."""
    kinds = list(_of(_pools()[0], "fires")[0])
    rows = []
    for pool in _pools():
        cells = []
        for kind in kinds:
            x = 100 * np.array([e[kind] for e in _of(pool, "fires") if kind in e])
            cells.append(f"{x.mean():.0f} %" if len(x) else "")
        rows.append([POOLS[pool], *cells])
    return markdown_table(["", *kinds], rows)


TABLES = Blocks("experiments/tables/novel.py", {"auroc": auroc, "fires": fires})

if __name__ == "__main__":
    TABLES.write(PAGE)
