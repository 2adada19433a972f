"""What the committed ledgers say, as tables and figures of the docs.

    python -m experiments.tables.targets

writes those of one page; each module names its page and its tables.
"""

import sys
from functools import cache
from pathlib import Path
from typing import Any

from experiments.lab import packed
from taskscape.io.ledger import read_ledger

ROOT = Path(__file__).parents[2]
RESULTS, DOCS = ROOT / "experiments" / "results", ROOT / "docs"
sys.path.insert(0, str(DOCS))

from blocks import POOLS, Blocks, markdown_table  # type: ignore[import-not-found]  # noqa: E402

__all__ = ["DOCS", "POOLS", "RESULTS", "ROOT", "Blocks", "ledger", "markdown_table"]


@cache
def ledger(name: str) -> list[dict[str, Any]]:
    """The finished cells of a ledger of the results; none where there is none."""
    path = RESULTS / f"{name}.jsonl"
    return [entry for part in (packed(path), path) if part.exists() for entry in read_ledger(part)]
