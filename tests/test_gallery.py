"""Every notebook of the gallery runs, and shows what stands on the site."""

import importlib
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="pip install 'taskscape[docs]' to run notebooks")
pytest.importorskip("nbclient", reason="pip install 'taskscape[docs]' to run notebooks")
DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS))
notebooks = importlib.import_module("notebooks")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # of Jupyter's own
]
GALLERY = sorted((DOCS / "gallery").glob("*.ipynb"))


def kinds_of_outputs(notebook: Any) -> list[list[object]]:
    """What each cell shows: text, tables, pictures, but not which, nor what a machine remarks."""
    return [
        [
            sorted(output.get("data", [output.get("name")]))
            for output in cell.outputs
            if output.get("name") != "stderr"
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.usefixtures("shared_cache")
@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_on_the_site(path: Path):
    notebook = nbformat.read(path, as_version=4)
    if missing := notebooks.missing_packages(notebook):
        extra = "PyTorch, by `make torch`" if "torch" in missing else "'taskscape[examples]'"
        pytest.skip(f"{', '.join(missing)} not installed; it comes with {extra}")
    assert '"stderr"' not in path.read_text(encoding="utf-8")
    again = notebooks.run_notebook(deepcopy(notebook))
    assert kinds_of_outputs(again) == kinds_of_outputs(notebook)


def test_every_notebook_is_in_the_gallery():
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert len(GALLERY) >= 5
    assert all(f"(gallery/{path.name})" in page for path in GALLERY)
