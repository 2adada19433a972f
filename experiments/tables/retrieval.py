"""Which measures find a task's own group: the table of ``docs/similarity.md``.

python -m experiments.tables.retrieval
"""

import numpy as np

from experiments.tables import DOCS, POOLS, Blocks, ledger
from taskscape.plain_text import markdown_table

PAGE = DOCS / "similarity.md"


def table() -> str:
    """Precision at 1 in %, the mean over draws and the lowest and highest of them."""
    by: dict[tuple[str, str], list[float]] = {}
    chance: dict[str, float] = {}
    for entry in ledger("retrieval"):
        cell = entry["cell"]
        by.setdefault((cell["measure"], cell["pool"]), []).append(entry["precision"]["value"])
        chance[cell["pool"]] = entry["chance"]
    pools = [p for p in POOLS if p in chance]
    rows = [["chance", *(f"{100 * chance[p]:.0f}" for p in pools)]]
    for measure in dict.fromkeys(m for m, _ in by):
        draws = [100 * np.array(by[measure, p]) for p in pools]
        cells = [f"{d.mean():.0f} ({d.min():.0f} to {d.max():.0f})" for d in draws]
        rows.append([f"`{measure}`", *cells])
    return markdown_table(["measure", *(POOLS[p] for p in pools)], rows)


TABLES = Blocks("experiments/tables/retrieval.py", {"retrieval": table})

if __name__ == "__main__":
    TABLES.write(PAGE)
