"""Sources ranked on a small pool, and what a ranking is worth, by hand and by brute force."""

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from experiments import sources
from experiments.__main__ import main
from experiments.sources import TOP, by_chance, ndcg, regret, usefulness_elsewhere
from target_cases import mixed_pool
from taskscape.io.ledger import read_ledger

ACCURACY = np.array([0.5, 0.9, 0.7, 0.6, 0.8, 0.55])


def test_every_target_has_its_distances_and_trainings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "load_pool", lambda name: mixed_pool())
    words = ["sources", "--pool", "toy", "--measures", "themes", "task_means", "--learners",
             "protonet", "--trials", "0", "1", "--folds", "2", "--only-folds", "0", "--candidates",
             "30", "--n-way", "3", "--n-shot", "3", "--n-query", "6", "--components", "4",
             "--updates", "4", "--out", str(tmp_path / "found.jsonl")]  # fmt: skip
    main(words)
    entries = read_ledger(tmp_path / "found.jsonl")
    assert [(e["cell"]["what"], e["cell"].get("trial")) for e in entries] == 2 * [
        ("distances", None), ("sources alone", 0), ("sources alone", 1)
    ]  # fmt: skip
    for own in (entries[:3], entries[3:]):
        distances, *trained = own
        named = set(distances["mean"]["themes"])
        assert all(set(e["accuracy"]) == set(e["held_out"]) == named for e in trained)
        for how in ("mean", "nearest"):
            assert set(distances[how]) == {"themes", "task_means"}
        assert all(d <= distances["mean"]["task_means"][g]
                   for g, d in distances["nearest"]["task_means"].items())  # fmt: skip
    main(words)
    assert len(read_ledger(tmp_path / "found.jsonl")) == len(entries)


def test_regret_and_gain_of_a_ranking() -> None:
    assert regret(ACCURACY, -ACCURACY, 1) == 0
    assert regret(ACCURACY, ACCURACY, 1) == pytest.approx(4 / 9)
    assert regret(ACCURACY, ACCURACY, 3) == pytest.approx(3 / 9)
    assert ndcg(ACCURACY, -ACCURACY) == pytest.approx(1)
    assert ndcg(ACCURACY, ACCURACY) < ndcg(ACCURACY, np.arange(6.0)) < 1


def test_chance_is_the_mean_over_all_rankings() -> None:
    orders = np.array(list(permutations(range(6))), dtype=float)
    regrets, gain = by_chance(ACCURACY)
    for top, expected in zip(TOP, regrets, strict=True):
        every = [regret(ACCURACY, order, top) for order in orders]
        assert expected == pytest.approx(np.mean(every))
    assert gain == pytest.approx(np.mean([ndcg(ACCURACY, order) for order in orders]))


def test_usefulness_to_others_leaves_the_target_out() -> None:
    accuracy = {"a": {"x": 0.9, "y": 0.1}, "b": {"x": 0.2, "y": 0.4}, "c": {"y": 0.5, "z": 0.7}}
    useful = usefulness_elsewhere(accuracy, "a", ["x", "y", "w"])
    np.testing.assert_allclose(useful, [-0.1, (0.1 - 0.1) / 2, 0.0], atol=1e-12)
