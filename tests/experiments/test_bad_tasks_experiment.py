"""Bad candidate tasks on a small pool: how many there are, and what bad classes are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import bad_tasks
from experiments.__main__ import main
from experiments.bad_tasks import gratings, with_bad_classes
from target_cases import mixed_pool
from taskscape.io.ledger import read_ledger
from taskscape.pools import ClassPool


def test_every_share_and_target_is_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bad_tasks, "load_pool", lambda name: mixed_pool())
    words = ["bad_tasks", "--pool", "toy", "--kinds", "permuted labels", "--shares", "0", "0.5",
             "--budget", "5", "--folds", "2", "--only-folds", "0", "--candidates", "30", "--n-way",
             "3", "--n-shot", "3", "--n-query", "6", "--components", "4", "--updates", "4", "--out",
             str(tmp_path / "found.jsonl")]  # fmt: skip
    main(words)
    entries = read_ledger(tmp_path / "found.jsonl")
    assert [(e["cell"]["kind"], e["cell"]["share"]) for e in entries] == [
        ("none", 0), ("none", 0), ("permuted labels", 0.5), ("permuted labels", 0.5)
    ]  # fmt: skip
    for entry in entries:
        bad = {w["way"]: w["bad"] for w in entry["ways"]}
        assert set(bad) == {"random", "themes", "prototypes", "ranks", "all"}
        assert bad["all"] == entry["cell"]["share"]
        assert all(0 <= share <= 1 for share in bad.values())
    main(words)
    assert len(read_ledger(tmp_path / "found.jsonl")) == len(entries)
    main([*words, "--separable"])
    *_, left = read_ledger(tmp_path / "found.jsonl")
    assert left["cell"]["separable"]
    assert left["bad"] < entries[-1]["bad"]  # most of them have classes that nothing tells apart
    assert left["candidates"] - left["bad"] == entries[-1]["candidates"] - entries[-1]["bad"]


def test_permuted_labels_keep_the_samples_of_a_group() -> None:
    clean = replace(mixed_pool(), splits=None)
    pool = with_bad_classes(clean, "permuted labels", seed=0)
    assert [pool.splits.count(s) for s in ("train", "val")] == [24, 24]
    for group in set(clean.groups):
        good, bad = (
            np.concatenate([pool.samples_of(c) for c, g in enumerate(pool.groups) if g == name])
            for name in (group, f"bad {group}")
        )
        np.testing.assert_array_equal(np.sort(good, axis=0), np.sort(bad, axis=0))
        assert not np.array_equal(good, bad)


def test_gratings_are_a_source_of_their_own() -> None:
    images = gratings((2, 3, 4, 8, 8), seed=0)
    assert images.shape == (2, 3, 4, 8, 8)
    clean = ClassPool.from_arrays(images[0].reshape(-1, 8, 8), np.repeat(np.arange(3), 4),
                                  groups=["a", "a", "b"])  # fmt: skip
    pool = with_bad_classes(clean, "unrelated source", seed=0)
    assert pool.splits.count("train") == 3
    assert all(g.startswith("gratings") for g in pool.groups[3:])
