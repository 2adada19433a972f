"""The tables of the docs hold what the registries hold."""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

sys.path.insert(0, str(ROOT / "docs"))
TABLES = importlib.import_module("tables").TABLES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tables_are_those_of_the_registries(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert TABLES.filled(text) == text, "write the tables anew: make docs"


def test_every_table_stands_somewhere() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert set(TABLES.makers) == TABLES.names_in(text)
