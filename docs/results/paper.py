"""The tables of ``docs/results-paper.md``, from what ``taskscape reproduce --only draw`` wrote.

python docs/results/paper.py
"""

import re
import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from blocks import Blocks  # noqa: E402

PAGE = HERE.parent / "results-paper.md"
FIGURES = {
    "fig2_mini_imagenet": "fig2-mini-imagenet",
    "fig2_omniglot": "fig2-omniglot",
    "fig3": "fig3",
    "fig4": "fig4",
    "fig4_omniglot": "fig4-omniglot",
}


def table_of(figure: str) -> str:
    """What stands up to the end of the first table, with true minus signs."""
    text = (HERE / "paper" / f"{figure}.md").read_text(encoding="utf-8")
    first = re.match(r".*?(?:^\|[^\n]*\n)+", text, flags=re.DOTALL | re.MULTILINE)
    assert first is not None
    return re.sub(r"(?<=[ \[(])-(?=\d)", "−", first[0])


TABLES = Blocks(
    "docs/results/paper.py",
    {name: partial(table_of, figure) for name, figure in FIGURES.items()},
)

if __name__ == "__main__":
    TABLES.write(PAGE)
