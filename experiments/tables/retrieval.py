"""Which measures find a task's own group, and agree: the tables of ``docs/similarity.md``.

python -m experiments.tables.retrieval
"""

from typing import Any

import numpy as np

from experiments.agreement import agreement
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


def agreement_table() -> str:
    """Least and largest correlation of two fits, and the mean correlations with accuracy."""
    fits = {p: own for p in POOLS if (own := [e for e in ledger("agreement") if _pool(e) == p])}
    explained = next(own for own in fits.values() if "correlation" in own[0])
    rows = []
    for measure in explained[0]["distances"]:
        pairs = [agreement(own, measure) for own in fits.values()]
        means = [
            f"{np.mean([e[what][measure]['value'] for e in explained]):z.2f}".replace("-", "−")
            for what in ("correlation", "given_difficulty")
        ]
        rows.append([f"`{measure}`", *(f"{min(p):.2f} to {max(p):.2f}" for p in pairs), *means])
    columns = ["measure", *(POOLS[p] for p in fits), "accuracy", "given difficulty"]
    return markdown_table(columns, rows)


def _pool(entry: dict[str, Any]) -> str:
    return str(entry["cell"]["pool"])


TABLES = Blocks(
    "experiments/tables/retrieval.py", {"retrieval": table, "agreement": agreement_table}
)

if __name__ == "__main__":
    TABLES.write(PAGE)
