"""How well tasks of unknown sources are told from known ones: tables of ``docs/results-novel.md``.

python -m experiments.tables.novel
"""

from typing import Any

import numpy as np

from experiments.tables import DOCS, POOLS, Blocks, ledger
from taskscape.plain_text import markdown_table
from taskscape.statistics import mean_interval

PAGE = DOCS / "results-novel.md"
AGAINST = ("unknown groups against new classes", "unknown groups against seen classes",
           "gratings against new classes")  # fmt: skip
SCORES = {
    "bound": "the bound",
    **{
        f"{name}, nearest": f"distance to the nearest task by `{name}`"
        for name in ("themes", "position", "task_means", "prototypes")
    },
    "themes, mean": "mean distance to all by `themes`",
}
"""What the table has; mean distances by other measures are in the ledger."""


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
            for against in AGAINST:
                x = np.array([e[score].get(against, np.nan) for e in _of(pool, "auroc")])
                of = mean_interval(x).within(0.0, 1.0)
                row.append("" if np.isnan(of.value) else str(of))
        rows.append(row)
    columns = [f"{POOLS[p]}: {against}" for p in _pools() for against in AGAINST]
    return markdown_table(["", *columns], rows)


def fires() -> str:
    """In how many groups the warning fires: means over splits, least and largest."""
    kinds = list(_of(_pools()[0], "fires")[0])
    rows = []
    for pool in _pools():
        cells = []
        for kind in kinds:
            x = 100 * np.array([e[kind] for e in _of(pool, "fires") if kind in e])
            cells.append(f"{x.mean():.0f} % ({x.min():.0f} to {x.max():.0f})" if len(x) else "")
        rows.append([POOLS[pool], *cells])
    return markdown_table(["", *kinds], rows)


TABLES = Blocks("experiments/tables/novel.py", {"auroc": auroc, "fires": fires})

if __name__ == "__main__":
    TABLES.write(PAGE)
