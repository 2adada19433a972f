"""What a release says of itself is the same everywhere."""

import re
import tomllib
from pathlib import Path

import pytest

import taskscape

ROOT = Path(__file__).parent.parent
CITATION = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_citation_has_the_version_of_the_package():
    assert re.findall(r"^version: (.+)$", CITATION, re.M) == [taskscape.__version__]


def test_the_notes_begin_with_the_version_of_the_package():
    notes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.findall(r"^## (.+)$", notes, re.M)[0].split()[0]
    assert first in (taskscape.__version__, "Unreleased")
    assert (first == "Unreleased") == taskscape.__version__.endswith(".dev0")


def test_the_citation_names_the_licence_and_the_paper():
    assert f"license: {PROJECT['license']}" in CITATION
    assert "preferred-citation:" in CITATION
    assert 'title: "Similarity of Classification Tasks"' in CITATION


def test_extras_that_are_named_exist():
    """In messages and docs; what one needs is told by ``taskscape[extra]``."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]
    texts = [path.read_text(encoding="utf-8") for path in (*pages, *(ROOT / "src").rglob("*.py"))]
    named = {extra for text in texts for extra in re.findall(r"taskscape\[(\w+)\]", text)}
    assert {"ray", "examples"} <= named <= set(PROJECT["optional-dependencies"])


def test_the_workflow_and_the_templates_can_be_read():
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with 'taskscape[docs]'")
    steps = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["test"]
    assert {"run": "make test"} in steps["steps"]
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        template = yaml.safe_load(path.read_text())
        assert path.stem == "config" or {"name", "description", "body"} <= set(template)
