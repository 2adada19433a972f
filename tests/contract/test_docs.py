"""The tables of the docs hold what the registries hold."""

import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = (
    "bad_tasks", "explained", "forecasts", "novel", "paper", "retrieval", "similarity", "sources",
    "targets",
)  # fmt: skip
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

sys.path.insert(0, str(ROOT / "docs"))
TABLES = importlib.import_module("tables").TABLES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tables_are_those_of_the_registries(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert TABLES.filled(text) == text, "write the tables again: make docs"


def test_every_table_stands_somewhere() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert set(TABLES.makers) == TABLES.names_in(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_page_has_two_titles_or_an_empty_heading(page: Path) -> None:
    """An empty one is an empty entry of the site's contents."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    headings = re.findall(r"^(#+)[ \t]*(.*)$", text, flags=re.M)
    assert all(words for _, words in headings)
    assert sum(level == "#" for level, _ in headings) <= 1


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_tables_of_studies_are_those_of_their_ledgers(script: str) -> None:
    study = importlib.import_module(f"experiments.tables.{script}")
    page = study.PAGE.read_text(encoding="utf-8")
    assert study.TABLES.names_in(page) == set(study.TABLES.makers)
    assert study.TABLES.filled(page) == page, f"run python -m experiments.tables.{script}"
