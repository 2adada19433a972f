"""Unknown sources on a small pool: how classes are dealt, and that distances tell them."""

from pathlib import Path

import numpy as np
import pytest

from experiments import novel
from experiments.__main__ import main
from experiments.novel import NEW, SEEN, UNKNOWN, deal
from taskscape.io.ledger import read_ledger
from taskscape.pools import ClassPool


@pytest.fixture
def pool() -> ClassPool:
    rng = np.random.default_rng(0)
    centres = np.repeat(6 * rng.normal(size=(8, 4)), 8, axis=0) + rng.normal(size=(64, 4))
    return ClassPool.from_arrays(
        np.repeat(centres, 8, axis=0) + 0.1 * rng.normal(size=(512, 4)),
        np.repeat(np.arange(64), 8), groups=[f"g{i // 8}" for i in range(64)],
    )  # fmt: skip


def test_known_groups_are_split_and_unknown_ones_are_not(pool: ClassPool) -> None:
    dealt = deal(pool, n_way=3, seed=0)
    assert set(dealt[SEEN]) == set(dealt[NEW])
    assert not set(dealt[SEEN]) & set(dealt[UNKNOWN])
    every = np.concatenate([own for by in dealt.values() for own in by.values()])
    assert sorted(every.tolist()) == list(range(64))


def test_unknown_groups_are_farther(
    pool: ClassPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(novel, "load_pool", lambda name: pool)
    words = ["novel", "--pool", "toy", "--seeds", "0", "--n-way", "3", "--n-shot", "2", "--n-tasks",
             "6", "--out", str(tmp_path / "found.jsonl")]  # fmt: skip
    main(words)
    (entry,) = read_ledger(tmp_path / "found.jsonl")
    assert entry["auroc"]["task_means, nearest"]["unknown groups against new classes"] > 0.8
    assert set(entry["fires"]) == {SEEN, NEW, UNKNOWN}  # no gratings among features
    main(words)
    assert len(read_ledger(tmp_path / "found.jsonl")) == 1
