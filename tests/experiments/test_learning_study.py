"""The study of learners: tuned on validation classes, one line a cell, resumable."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from experiments import learning
from experiments.lab import Lab, OutOfTimeError
from experiments.learning import (
    LearningSettings,
    LearningSizes,
    LearningStudy,
    candidates,
    measure,
    spread,
)
from experiments.recipes import hold_out
from meta_cases import DIMS, toy_pool
from taskscape.errors import DataError
from taskscape.meta import BMAML, TrainConfig, mlp
from taskscape.similarity import Task2Vec, Task2VecConfig
from taskscape.tasks import sample_tasks
from taskscape.themes.prepare import unit_length

SIZES = LearningSizes(
    n_way=3, train_way=3, n_shot=2, n_query=4, train_tasks=24, tune_tasks=12, val_tasks=10
)


def study() -> LearningStudy:
    return LearningStudy(unit_length(toy_pool()), mlp(DIMS, (8,), scale=4.0), SIZES)


def settings(**changes: Any) -> LearningSettings:
    return LearningSettings("toy", learners=("protonet",), tune=True, **changes)


def go(path: Path) -> list[dict]:
    fixed = {"protonet": {"learning_rate": 0.01, "scale": 4.0}}
    measure(study(), settings(seeds=(0, 1), fixed=fixed), Lab(path, "test"))
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_study_writes_a_line_a_cell_and_continues_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "found.jsonl"
    with pytest.raises(OutOfTimeError):
        measure(study(), settings(), Lab(path, minutes=-1.0))
    assert not path.exists()
    lines = go(path)
    assert [line["cell"]["what"] for line in lines] == ["nearest_centroid", "tune", "test", "test"]
    assert lines[-1]["cell"]["seed"] == 1
    assert lines[-1]["cell"]["settings"] == {"learning_rate": 0.01, "scale": 4.0}
    assert lines[-1]["test_tasks"] == 56  # every 3 of 8 classes
    assert lines[-1]["interval"][0] < lines[-1]["accuracy"] < lines[-1]["interval"][1]
    assert {"command", "versions", "hardware"} <= set(lines[-1])
    assert go(path) == lines


def test_settings_can_be_chosen_by_likelihood(tmp_path: Path) -> None:
    path = tmp_path / "found.jsonl"
    fixed, grid = {"protonet": {"learning_rate": 0.01}}, {"protonet": {"scale": [4.0, 60.0]}}
    measure(study(), settings(fixed=fixed, grid=grid, tune_by="log_likelihood"), Lab(path))
    *tuned, test = [json.loads(line) for line in path.read_text().splitlines()][1:]
    best = max(tuned, key=lambda line: line["val_log_likelihood"])
    assert test["cell"]["settings"] == best["cell"]["settings"]
    assert "spread" not in test  # ProtoNet has none


def test_bayesian_learners_report_their_spread() -> None:
    tasks = study().testing()
    learner = BMAML(particles=2, inner_steps=1)
    state = learner.init(jax.random.key(0), study().network, 3)
    measured = spread(learner, state, tasks)["spread"]
    assert set(measured) == {
        "distance_before", "distance_after", "moved", "moves_apart", "disagreement",
    }  # fmt: skip


def test_what_is_tuned_for_the_probe_is_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "load_pool", lambda *_, **__: toy_pool())
    asked = LearningSettings("toy", learners=("maml",), probe=True, sizes=SIZES)
    learning.run(asked, lab := Lab(tmp_path / "found.jsonl"))
    (tested,) = [c["cell"] for c in lab.cells.values() if c["cell"]["what"] == "test"]
    measure = Task2Vec(config=Task2VecConfig(train=TrainConfig(updates=1)))
    train = sample_tasks(toy_pool(), 40, n_way=3, n_shot=2, split="train", seed=0)
    assert measure.fit(train).probe_ is not None
    probe = measure.probe_.network.config()
    scale = pytest.approx(probe.pop("scale"), rel=1e-3)
    assert tested["network"] == json.loads(json.dumps(probe)) | {"scale": scale}


def test_fixed_settings_are_not_tuned() -> None:
    tried = list(candidates("maml", {"inner_rate": 0.7}))
    assert {t["inner_rate"] for t in tried} == {0.7}
    assert len(tried) == len({json.dumps(t) for t in tried}) > 1


def test_held_out_groups_become_validation_classes() -> None:
    pool = toy_pool()
    groups = tuple(f"g{c // 2}" for c in range(24))
    pool = replace(pool, groups=groups, splits=("train",) * 16 + ("test",) * 8)
    held = hold_out(pool, 2)
    assert held.splits is not None
    assert (held.splits.count("train"), held.splits.count("val")) == (12, 4)
    assert held.splits[16:] == ("test",) * 8
    assert hold_out(pool, 2).splits == held.splits
    with pytest.raises(DataError, match="validation classes are held out by group"):
        hold_out(toy_pool(), 2)
    with pytest.raises(DataError) as error:
        hold_out(pool, 8)
    assert str(error.value) == (
        f"validation takes 8 groups of training classes and must leave some to train on; {pool!r} "
        "has 8. Mark validation classes in the data."
    )


def test_unit_length() -> None:
    positive = replace(toy_pool(), samples=np.abs(toy_pool().samples))
    for options in ({}, {"power": 0.5}, {"power": 0.5, "pca": 3}):
        pool = unit_length(positive, **options)
        np.testing.assert_allclose(np.linalg.norm(pool.samples, axis=1), 1, rtol=1e-5)
        assert pool.sample_shape == (options.get("pca", DIMS),)
