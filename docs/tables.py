"""Writes the tables of the docs that list what a registry holds: ``make docs``.

A table stands between ``<!-- NAME: written by docs/tables.py -->`` and ``<!-- end -->``.
"""

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from taskscape.compare import DIVERGENCES
from taskscape.meta import LEARNERS
from taskscape.pools import POOLS
from taskscape.select import RULES
from taskscape.similarity import SIMILARITIES

DOCS = Path(__file__).parent
BLOCK = re.compile(r"(<!-- (\w+): written by docs/tables\.py -->\n).*?(<!-- end -->)", re.S)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def learners() -> str:
    rows = [
        (f"`{e.name}`", f"`{e.label}`", e.meaning, ", ".join(f"`{s}`" for s in e.grid))
        for e in LEARNERS.values()
    ]
    return table(("name", "learner", "what it is", "settings to tune"), rows)


def divergences() -> str:
    rows = []
    for d in DIVERGENCES.values():
        most = "" if math.isinf(d.most) else f"{d.most:.3g}"
        needs = "; needs `alpha`" if d.needs_alpha else ""
        needs += "; sampled, with a standard error" if d.has_stderr else ""
        rows.append((f"`{d.name}`", "yes" if d.symmetric else "no", most, d.meaning + needs))
    return table(("name", "symmetric", "at most", "what it is"), rows)


def pools() -> str:
    rows = [(f"`{p.name}`", p.description) for p in POOLS.values()]
    return table(("name", "what it is"), rows)


def rules() -> str:
    rows = [(f"`{name}`", rule.meaning) for name, rule in RULES.items()]
    by_trial = "by the one of these that helps a given learner on validation tasks, else by chance"
    return table(("rule", "chooses"), [*rows, ("`auto`", by_trial)])


def similarities() -> str:
    rows = [(f"`{name}`", known.meaning, known.needs) for name, known in SIMILARITIES.items()]
    return table(("name", "distance", "needs"), rows)


TABLES = {
    "learners": learners,
    "divergences": divergences,
    "pools": pools,
    "rules": rules,
    "similarities": similarities,
}


def filled(text: str) -> str:
    """The text of a page with its tables written anew."""
    return BLOCK.sub(lambda m: m[1] + TABLES[m[2]]() + m[3], text)


if __name__ == "__main__":
    for page in (DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))):
        before = page.read_text(encoding="utf-8")
        if filled(before) != before:
            page.write_text(filled(before), encoding="utf-8")
            print(f"written: {page.name}")
