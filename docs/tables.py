"""Writes the tables of the docs that list what a registry or a benchmark holds: ``make docs``."""

import json
from pathlib import Path

from blocks import Blocks

from taskscape.compare import DIVERGENCES
from taskscape.meta import LEARNERS
from taskscape.plain_text import markdown_table
from taskscape.pools import POOLS
from taskscape.select import RULES
from taskscape.similarity import SIMILARITIES

DOCS = Path(__file__).parent
FIRST_ANSWER = ("import", "open", "prepare", "start", "learn", "compile", "fit", "embed", "all")
"""Columns of the table of seconds to the first answer."""


def learners() -> str:
    rows = [
        (f"`{e.name}`", f"`{e.label}`", e.meaning, ", ".join(f"`{s}`" for s in e.grid))
        for e in LEARNERS.values()
    ]
    return markdown_table(("name", "learner", "what it is", "settings to tune"), rows)


def divergences() -> str:
    rows = []
    for d in DIVERGENCES.values():
        needs = "; needs `alpha`" if d.needs_alpha else ""
        needs += "; sampled, with a standard error" if d.has_stderr else ""
        rows.append((f"`{d.name}`", "yes" if d.symmetric else "no", d.meaning + needs))
    return markdown_table(("name", "symmetric", "what it is"), rows)


def pools() -> str:
    rows = [(f"`{p.name}`", p.description) for p in POOLS.values()]
    return markdown_table(("name", "what it is"), rows)


def rules() -> str:
    rows = [(f"`{name}`", rule.meaning) for name, rule in RULES.items()]
    by_trial = "by the one of these that helps a given learner on validation tasks, else by chance"
    return markdown_table(("rule", "chooses"), [*rows, ("`auto`", by_trial)])


def similarities() -> str:
    rows = [(f"`{name}`", known.meaning, known.needs) for name, known in SIMILARITIES.items()]
    return markdown_table(("name", "distance", "needs"), rows)


def first_answer() -> str:
    kept = json.loads((DOCS.parent / "benchmarks/results/first_answer.json").read_text())
    figures, phases = kept["figures"], FIRST_ANSWER
    rows = []
    for case in dict.fromkeys(name.rpartition(": ")[0] for name in figures):
        if ", " in case:
            rows.append((case, *(f"{figures[f'{case}: {p}']:.1f}" for p in phases)))
    peers = [
        (f"{peer}, {size}", f"{seconds:.1f}")
        for name, seconds in figures.items()
        for size, _, peer in [name.partition(": ")]
        if ", " not in name
    ]
    about = kept["machine"]
    where = f"{about['cpu_cores']} cores, load average {about['load_average']:.1f}"
    return (
        markdown_table(("model", *phases), rows)
        + "\n"
        + markdown_table((f"scikit-learn ({where})", "fit"), peers)
    )


TABLES = Blocks(
    "docs/tables.py",
    {
        "learners": learners,
        "divergences": divergences,
        "pools": pools,
        "rules": rules,
        "similarities": similarities,
        "first_answer": first_answer,
    },
)


if __name__ == "__main__":
    for page in (DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))):
        TABLES.write(page)
