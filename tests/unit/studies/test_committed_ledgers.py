"""The committed ledgers: their commands still ask for the cells that they hold."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from taskscape.studies.__main__ import STUDIES, main
from taskscape.studies.lab import Lab, read_ledger

RESULTS = Path(__file__).parents[3] / "docs" / "results"
GLYPHS = {
    "auto-glyphs": 8,
    "forecast-glyphs": 0,
    "representation": 0,
    "similarity-glyphs-test-cpu": 0,
    "similarity-vary-glyphs-small": 0,
}


def name(cell: Mapping[str, Any]) -> str:
    return json.dumps(cell, sort_keys=True)


def asked_by(command: str, ledger: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The cells that a command asks for, with nothing run."""
    words = shlex.split(command)
    study = words[2].removeprefix("taskscape.studies").strip(".") or words.pop(3)
    assert study in STUDIES
    asked: set[str] = set()

    def missing(lab: Lab, cells: Any) -> list[Any]:
        asked.update(map(name, cells))
        return []

    def results(lab: Lab, cell: dict[str, Any], measure: Any) -> dict[str, Any]:
        asked.add(name(cell))
        return lab.ledger.get(cell) or {"distances": [1.0, 2.0]}

    monkeypatch.setattr(Lab, "missing", missing)
    monkeypatch.setattr(Lab, "results", results)
    options = words[3:]
    options[options.index("--out") + 1] = str(ledger)
    main([study, *options])
    return asked


@pytest.mark.slow
@pytest.mark.parametrize(("file", "old"), GLYPHS.items())
def test_finished_cells_are_recognised(
    file: str, old: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = RESULTS / f"{file}.jsonl"
    before = path.read_bytes()
    entries = [e for e in read_ledger(path) if "glyphs" in json.dumps(e["cell"]["pool"])]
    unknown = []
    for command in dict.fromkeys(e["command"] for e in entries):
        asked = asked_by(command, path, monkeypatch)
        own = [name(e["cell"]) for e in entries if e["command"] == command]
        unknown += [cell for cell in own if cell not in asked]
    print(file, len(entries), len(unknown), unknown[:1])
    assert path.read_bytes() == before
    assert len(unknown) == old
