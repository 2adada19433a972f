"""Likeness by groups and by chance at its smallest size, and the kinds of mini-ImageNet."""

from pathlib import Path

import numpy as np
import pytest

from experiments import likeness
from experiments.__main__ import main
from experiments.likeness import with_kinds
from taskscape.io.ledger import read_ledger
from taskscape.pools import ClassPool


def test_new_groups_are_farther_than_classes_by_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    centres = np.repeat(4 * rng.normal(size=(10, 4)), 8, axis=0) + rng.normal(size=(80, 4))
    pool = ClassPool.from_arrays(
        np.repeat(centres, 8, axis=0) + 0.1 * rng.normal(size=(640, 4)),
        np.repeat(np.arange(80), 8), groups=[f"g{i // 8}" for i in range(80)],
    )  # fmt: skip
    monkeypatch.setattr(likeness, "load_pool", lambda name: pool)
    words = ["likeness", "--pool", "toy", "--measures", "task_means", "--seeds", "0",
             "--out", str(tmp_path / "found.jsonl")]  # fmt: skip
    main(words)
    by_group, by_class = read_ledger(tmp_path / "found.jsonl")
    assert by_group["test"]["percentile"] > 90
    assert by_group["test"]["gap"] > by_class["test"]["gap"]
    assert by_class["groups"] is None


def test_every_class_of_mini_imagenet_has_a_kind() -> None:
    names = ["n02110341", "n02129165", "n03775546"]  # dalmatian, lion, mixing bowl
    pool = ClassPool.from_arrays(np.zeros((6, 2)), np.repeat(names, 2))
    assert with_kinds(pool).groups == ("canids", "other mammals", "kitchen and food")
    assert sum(len(synsets.split()) for synsets in likeness._KINDS.values()) == 100
