"""The committed ledgers: their commands still ask for the cells that they hold."""

import json
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from experiments import similarity
from experiments.__main__ import EXPERIMENTS, main
from experiments.lab import Lab, packed
from taskscape.io.ledger import read_ledger
from taskscape.pools import ClassPool, load_pool

RESULTS = Path(__file__).parents[2] / "experiments" / "results"
LETTERS = ("similarity-glyphs-test-cpu",)
"""Those of forecasts and of automatic choice are of before the default distance was `themes`."""
GONE = frozenset({"jensen_shannon", "otdd, diagonal", "OTDD diagonal"})
"""Measures that are no more; their lines stay as they were measured."""


def name(cell: Mapping[str, Any]) -> str:
    return json.dumps(cell, sort_keys=True)


def asked_by(command: str, ledger: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The cells that a command asks for, with nothing run."""
    words = [word for word in shlex.split(command) if word not in GONE]
    assert words[:3] == ["python", "-m", "experiments"]
    assert words[3] in EXPERIMENTS
    asked: set[str] = set()

    def missing(lab: Lab, cells: Any) -> list[Any]:
        asked.update(map(name, cells))
        return []

    monkeypatch.setattr(Lab, "missing", missing)
    words[words.index("--out") + 1] = str(ledger)
    main(words[3:])
    return asked


@cache
def letters() -> ClassPool:
    return load_pool("letters")


@pytest.mark.slow
@pytest.mark.usefixtures("shared_cache")
@pytest.mark.parametrize("file", LETTERS)
def test_finished_cells_are_recognised(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "load_pool", lambda name: {"letters": letters()}[name])
    path = RESULTS / f"{file}.jsonl"
    entries = read_ledger(packed(path))
    for command in dict.fromkeys(e["command"] for e in entries):
        asked = asked_by(command, path, monkeypatch)
        cells = [e["cell"] for e in entries if e["command"] == command]
        own = [name(cell) for cell in cells if GONE.isdisjoint(map(str, cell.values()))]
        assert [cell for cell in own if cell not in asked] == []
    assert not path.exists()
