"""The tables and figures of ``docs/results-paper.md``, from what ``make reproduce`` drew.

python -m experiments.tables.paper
"""

import re
import shutil
from functools import partial

from experiments.tables import DOCS, RESULTS, Blocks

PAGE = DOCS / "results-paper.md"
FIGURES = {
    "fig2_mini_imagenet": "fig2-mini-imagenet",
    "fig2_omniglot": "fig2-omniglot",
    "fig3": "fig3",
    "fig4": "fig4",
    "fig4_omniglot": "fig4-omniglot",
}


def table_of(figure: str) -> str:
    """What stands up to the end of the first table, with true minus signs."""
    text = (RESULTS / "paper" / f"{figure}.md").read_text(encoding="utf-8")
    first = re.match(r".*?(?:^\|[^\n]*\n)+", text, flags=re.DOTALL | re.MULTILINE)
    assert first is not None
    return re.sub(r"(?<=[ \[(])-(?=\d)", "−", first[0])


TABLES = Blocks(
    "experiments/tables/paper.py",
    {name: partial(table_of, figure) for name, figure in FIGURES.items()},
)

if __name__ == "__main__":
    TABLES.write(PAGE)
    for drawn in (RESULTS / "paper").glob("*.png"):
        shutil.move(drawn, DOCS / "images" / f"paper-{drawn.name}")
