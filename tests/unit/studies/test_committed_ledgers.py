"""The committed ledgers: their commands still ask for the cells that they hold."""

import json
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from taskscape.pools import ClassPool, load_pool
from taskscape.recipes import unit_length
from taskscape.studies import choosing, forecasting, similarity
from taskscape.studies.__main__ import STUDIES, main
from taskscape.studies.lab import Lab, read_ledger

RESULTS = Path(__file__).parents[3] / "docs" / "results"
LETTERS = (
    "auto-glyphs",
    "forecast-glyphs",
    "similarity-glyphs-test-cpu",
    "similarity-vary-glyphs-small",
)


def name(cell: Mapping[str, Any]) -> str:
    return json.dumps(cell, sort_keys=True)


def asked_by(command: str, ledger: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The cells that a command asks for, with nothing run."""
    words = shlex.split(command)
    # The letters were called glyphs when these ledgers were written.
    words = ["letters" if word == "glyphs" else word for word in words]
    study = words[2].removeprefix("taskscape.studies").strip(".") or words.pop(3)
    assert study in STUDIES
    asked: set[str] = set()

    def missing(lab: Lab, cells: Any) -> list[Any]:
        asked.update(map(name, cells))
        return []

    monkeypatch.setattr(Lab, "missing", missing)
    options = words[3:]
    options[options.index("--out") + 1] = str(ledger)
    main([study, *options])
    return asked


@cache
def letters() -> ClassPool:
    return load_pool("letters")


@cache
def features() -> ClassPool:
    return unit_length(letters(), pca=64)


@pytest.mark.slow
@pytest.mark.usefixtures("shared_cache")
@pytest.mark.parametrize("file", LETTERS)
def test_finished_cells_are_recognised(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (choosing, forecasting, similarity):
        monkeypatch.setattr(module, "load_pool", lambda name: {"letters": letters()}[name])
    for module in (choosing, forecasting):
        monkeypatch.setattr(module, "unit_length", lambda pool, pca: {64: features()}[pca])
    path = RESULTS / f"{file}.jsonl"
    before, entries = path.read_bytes(), read_ledger(path)
    for command in dict.fromkeys(e["command"] for e in entries):
        asked = asked_by(command, path, monkeypatch)
        own = [name(e["cell"]) for e in entries if e["command"] == command]
        assert [cell for cell in own if cell not in asked] == []
    assert path.read_bytes() == before
