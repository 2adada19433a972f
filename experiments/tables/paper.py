"""The tables and figures of ``docs/results-paper.md``, from what ``make reproduce`` drew.

python -m experiments.tables.paper
"""

import re
import shutil
import textwrap
from functools import partial

from experiments.tables import DOCS, RESULTS, Blocks, markdown_table

PAGE = DOCS / "results-paper.md"
LEARNERS = ("protonet",)
"""Those in the tables of figure 2: the others have nearly the same numbers."""
GAINING = ("protonet", "maml", "maml-untuned")
"""Those in the table of figure 3: the other tuned ones gain from no choice either."""
CHOICES = (
    "random", "nearest (ours)", "coverage (sized)", "nearest (task2vec)", "nearest (literal)",
)  # fmt: skip
"""What the table of figure 3 has; those of ``make reproduce`` have everything."""


def parts_of(figure: str) -> tuple[str, list[list[str]]]:
    """What stands before the first table, with true minus signs, and the rows of that table."""
    text = (RESULTS / "paper" / f"{figure}.md").read_text(encoding="utf-8")
    first = re.match(r".*?(?:^\|[^\n]*\n)+", text, flags=re.DOTALL | re.MULTILINE)
    assert first is not None
    before, *lines = re.sub(r"(?<=[ \[(])-(?=\d)", "−", first[0]).split("\n|")
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return before, [rows[0], *rows[2:]]


def accuracies(figure: str) -> str:
    """Figure 2: the ends of every curve and its rank correlations."""
    _, (_, *rows) = parts_of(figure)
    kept = [
        [name, *(end.split(" ")[0] for end in ends), spearman, given]
        for name, _, *ends, spearman, given, _ in rows
        if name.startswith(LEARNERS)
    ]
    names = ["", "nearest tenth", "farthest tenth", "Spearman", "given difficulty"]
    return markdown_table(names, kept)


def by_learner(figure: str) -> str:
    """Figure 3: choices down, learners across."""
    before, (_, *rows) = parts_of(figure)
    gain = {(row[0], row[2]): row[3] for row in rows}
    table = [[choice, *(gain.get((n, choice), "") for n in GAINING)] for choice in CHOICES]
    return f"{wrapped(before)}\n{markdown_table(['', *GAINING], table)}"


def wrapped(text: str) -> str:
    """Paragraphs in lines of 100."""
    parts = [textwrap.fill(part, 100, break_on_hyphens=False) for part in text.split("\n\n")]
    return "\n\n".join(parts).rstrip() + "\n"


TABLES = Blocks(
    "experiments/tables/paper.py",
    {
        "fig2_mini_imagenet": partial(accuracies, "fig2-mini-imagenet"),
        "fig2_omniglot": partial(accuracies, "fig2-omniglot"),
        "fig3": partial(by_learner, "fig3"),
    },
)

if __name__ == "__main__":
    TABLES.write(PAGE)
    for drawn in (RESULTS / "paper").glob("*.png"):
        shutil.move(drawn, DOCS / "images" / f"paper-{drawn.name}")
