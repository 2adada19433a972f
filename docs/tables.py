"""Writes the tables of the docs that list what a registry holds: ``make docs``."""

import json
import math
from pathlib import Path

from blocks import Blocks

from taskscape.compare import DIVERGENCES
from taskscape.meta import LEARNERS
from taskscape.plain_text import markdown_table
from taskscape.pools import POOLS
from taskscape.select import RULES
from taskscape.similarity import SIMILARITIES

DOCS = Path(__file__).parent


def learners() -> str:
    rows = [
        (f"`{e.name}`", f"`{e.label}`", e.meaning, ", ".join(f"`{s}`" for s in e.grid))
        for e in LEARNERS.values()
    ]
    return markdown_table(("name", "learner", "what it is", "settings to tune"), rows)


def learner_settings() -> str:
    meaning = {
        "scale": "factor on features of unit length",
        "learning_rate": "of the meta-training",
        "inner_rate": "of adaptation",
    }
    rows = [
        (
            f"`learners.settings.{e.name}.{setting}`",
            *3 * [json.dumps(value)],
            meaning.get(setting, ""),
        )
        for e in LEARNERS.values()
        for setting, value in e.settings.items()
    ]
    return markdown_table(("setting", "quick", "default", "paper", ""), rows)


def divergences() -> str:
    rows = []
    for d in DIVERGENCES.values():
        most = "" if math.isinf(d.most) else f"{d.most:.3g}"
        needs = "; needs `alpha`" if d.needs_alpha else ""
        needs += "; sampled, with a standard error" if d.has_stderr else ""
        rows.append((f"`{d.name}`", "yes" if d.symmetric else "no", most, d.meaning + needs))
    return markdown_table(("name", "symmetric", "at most", "what it is"), rows)


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


TABLES = Blocks(
    "docs/tables.py",
    {
        "learners": learners,
        "learner_settings": learner_settings,
        "divergences": divergences,
        "pools": pools,
        "rules": rules,
        "similarities": similarities,
    },
)


if __name__ == "__main__":
    for page in (DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))):
        TABLES.write(page)
