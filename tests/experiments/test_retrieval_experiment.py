"""Retrieval by several measures, at its smallest size, and the superclasses of mini-ImageNet."""

from pathlib import Path

import numpy as np
import pytest

from experiments import retrieval
from experiments.__main__ import main
from experiments.retrieval import with_superclasses
from taskscape.io.ledger import read_ledger
from taskscape.pools import ClassPool


def test_every_measure_and_seed_is_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    centres = np.repeat(3 * rng.normal(size=(6, 4)), 8, axis=0) + rng.normal(size=(48, 4))
    pool = ClassPool.from_arrays(
        np.repeat(centres, 8, axis=0) + 0.1 * rng.normal(size=(384, 4)),
        np.repeat(np.arange(48), 8), groups=[f"g{i // 8}" for i in range(48)],
    )  # fmt: skip
    monkeypatch.setattr(retrieval, "load_pool", lambda name: pool)
    words = ["retrieval", "--pool", "toy", "--measures", "task_means", "image_themes", "--seeds",
             "0", "1", "--n-way", "3", "--n-shot", "2", "--n-queries", "3", "--n-candidates", "5",
             "--out", str(tmp_path / "found.jsonl")]  # fmt: skip
    main(words)
    entries = read_ledger(tmp_path / "found.jsonl")
    assert [(e["cell"]["seed"], e["cell"]["measure"]) for e in entries] == [
        (0, "task_means"), (0, "image_themes"), (1, "task_means"), (1, "image_themes")
    ]  # fmt: skip
    assert all(e["precision"]["value"] > 0.5 for e in entries)  # by chance, 0.17
    main(words)
    assert len(read_ledger(tmp_path / "found.jsonl")) == 4


def test_superclasses_follow_from_wordnet_ids() -> None:
    names = ["n02110341", "n02114548", "n02129165", "n03775546"]  # dalmatian, wolf, lion, bowl
    pool = ClassPool.from_arrays(np.zeros((8, 2)), np.repeat(names, 2))
    assert with_superclasses(pool).groups == ("canids", "canids", "other animals", "things")
