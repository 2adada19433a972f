"""What a release says of itself is the same everywhere."""

import re
import tomllib
from pathlib import Path

import taskscape

ROOT = Path(__file__).parent.parent
CITATION = (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_citation_has_the_version_of_the_package():
    assert re.findall(r"^version: (.+)$", CITATION, re.M) == [taskscape.__version__]


def test_the_citation_names_the_licence_and_the_paper():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"license: {project['license']}" in CITATION
    assert "preferred-citation:" in CITATION
    assert 'title: "Similarity of Classification Tasks"' in CITATION
