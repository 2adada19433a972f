"""Kept accuracies of figure 2 against another distance, at toy size."""

from pathlib import Path

import numpy as np
import pytest

from experiments import explained
from experiments.__main__ import main
from experiments.lab import Lab, Store
from experiments.paper.fig2 import Fig2
from experiments.paper.plan import Fig2Plan
from taskscape.io.ledger import read_ledger
from taskscape.pools import ClassPool

PLAN = Fig2Plan("toy", "train", 30, 50, n_query=4, episodes=3, learner_tasks=16, seeds=(0,))


def test_kept_accuracies_are_compared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = np.repeat(rng.gamma(2.0, size=(20, 6)), 20, axis=0) + 0.3 * rng.random((400, 6))
    pool = ClassPool.from_arrays(
        X.astype(np.float32), np.repeat(np.arange(20), 20), name="toy",
        splits=["train"] * 13 + ["test"] * 7,
    )  # fmt: skip
    kept = tmp_path / "kept" / "results.jsonl"
    figure = Fig2("fig2-mini-imagenet", pool, PLAN, Store(Lab(kept), pool.fingerprint))
    figure.train(["protonet"])
    monkeypatch.setattr(explained, "load_pool", lambda name: pool)
    monkeypatch.setattr(explained, "fig2_plan", lambda figure, scale: PLAN)
    monkeypatch.setattr(explained, "KEPT", kept)
    words = ["explained", "--measures", "task_means", "--seeds", "0", "--n-train", "20",
             "--out", str(tmp_path / "found.jsonl")]  # fmt: skip
    main(words)
    (entry,) = read_ledger(tmp_path / "found.jsonl")
    assert set(entry["learners"]) == {"protonet"}
    assert {"spearman", "given_difficulty", "given_all"} <= set(entry["learners"]["protonet"])
    assert entry["cell"]["n_test"] == 21  # all combinations of 5 of the 7 test classes
    assert sum(n for *_, n in entry["learners"]["protonet"]["bins"]) == 21
    main(words)
    assert len(read_ledger(tmp_path / "found.jsonl")) == 1
