"""Writes the tables of the docs that list what a registry or a benchmark holds: ``make docs``."""

import json
from pathlib import Path

from blocks import Blocks, markdown_table

from taskscape.compare import DIVERGENCES
from taskscape.meta import LEARNERS
from taskscape.pools import POOLS
from taskscape.select import RULES
from taskscape.similarity import SIMILARITIES

DOCS = Path(__file__).parent
FITS = ("first", "again", "beside a busy process")
PHASES = dict.fromkeys(("import", "open", "prepare", "start", "learn", "embed"), "again")
PHASES |= {"compile": "first"}
"""Of seconds to the first answer, and the fit that each is of."""
PEERS = ("GaussianMixture", "LatentDirichletAllocation")


def learners() -> str:
    rows = [
        (f"`{e.name}`", f"`{e.label}`", e.meaning, ", ".join(f"`{s}`" for s in e.grid))
        for e in LEARNERS.values()
    ]
    return markdown_table(("name", "learner", "what it is", "settings to tune"), rows)


def divergences() -> str:
    rows = [
        (f"`{d.name}`", "yes" if d.symmetric else "no", d.meaning) for d in DIVERGENCES.values()
    ]
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
    """Seconds of a fit in each state, of its phases, and of scikit-learn's models, by model."""
    kept = json.loads((DOCS.parent / "benchmarks/results/first_answer.json").read_text())
    figures = kept["figures"]
    rows = []
    for model in dict.fromkeys(name.partition(", ")[0] for name in figures if ", " in name):
        named = [f"{model}, {state}: fit" for state in FITS]
        named += [f"{model}, {state}: {phase}" for phase, state in PHASES.items()]
        named += [f"{model}: {peer}" for peer in PEERS]
        seconds = [f"{figures[name]:.1f}" if name in figures else "" for name in named]
        rows.append((model, *seconds))
    return markdown_table(("model", *FITS, *PHASES, *PEERS), rows)


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
