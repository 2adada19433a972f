"""The study of targets: every group once, on a small pool, and what its ledger tells ``advise``."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from target_cases import mixed_pool
from taskscape.errors import DataError
from taskscape.studies.lab import Lab, read_ledger
from taskscape.studies.targets import (
    TargetsSettings,
    check_own_targets,
    dealt_groups,
    experience_of,
    gains_by_size,
    gains_seen,
    run,
)
from taskscape.targets import AdvisorSettings

SMALL = AdvisorSettings(
    candidates=30, n_way=3, n_shot=3, n_query=6, image_themes=2, task_themes=2, components=4,
    updates=4,
)  # fmt: skip


def write_pool(path: Path) -> None:
    pool = mixed_pool()
    classes, groups = (np.repeat(x, pool.counts) for x in (np.arange(len(pool)), pool.groups))
    np.savez(path, X=pool.samples, y=classes, groups=groups)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("targets")
    write_pool(folder / "pool.npz")
    settings = TargetsSettings(
        pool=str(folder / "pool.npz"), learners=("protonet",), budgets=(5,), folds=2,
        only_folds=(0,), trials=2, random_trials=2, ways=("task_themes", "prototypes", "half"),
        with_sources=True, settings=SMALL,
    )  # fmt: skip
    run(settings, Lab(folder / "ledger.jsonl"))
    before = (folder / "ledger.jsonl").read_bytes()
    run(settings, Lab(folder / "ledger.jsonl"))  # nothing is left to do
    assert (folder / "ledger.jsonl").read_bytes() == before
    return folder / "ledger.jsonl"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"settings": replace(SMALL, n_way=7)},
            "no group of ClassPool('pool': 24 classes, 288 samples of 6 features) can be a target: "
            "that takes the 7 classes of a task. Give a pool with groups, or lower n_way.",
        ),
        (
            {"without_namesakes": True, "settings": replace(SMALL, n_way=7)},
            "no group of ClassPool('pool': 24 classes, 288 samples of 6 features) can be a target: "
            "that takes the 7 classes of a task and another group of its name. Give a pool with "
            "groups, or lower n_way.",
        ),
        ({"folds": 1}, "folds=1 must be at least 2."),
        ({"only_folds": (0, 2)}, "only_folds=2 must be at most 1."),
        ({"settings": replace(SMALL, n_query=4)}, "n_query=4 must be at least 5."),
        (
            {"settings": replace(SMALL, n_shot=8)},
            "n_shot=8 and 5 queries needs 13 samples per class; '0' has 12, '1' has 12, '2' "
            "has 12, '3' has 12, '4' has 12, and 19 more classes have too few. "
            "Lower the numbers or drop these classes.",
        ),
    ],
)
def test_what_cannot_be_studied_is_refused(changes: dict, said: str, tmp_path: Path):
    write_pool(tmp_path / "pool.npz")
    settings = TargetsSettings(pool=str(tmp_path / "pool.npz"), settings=SMALL, folds=2)
    with pytest.raises(DataError) as error:
        run(replace(settings, **changes), Lab(tmp_path / "ledger.jsonl"))
    assert str(error.value) == said


def test_counts_of_right_answers_are_kept_whole(ledger: Path):
    (file,) = (ledger.parent / "arrays").rglob("mlp-protonet-near-left.npz")
    arrays = np.load(file)
    assert {arrays[name].dtype.name for name in arrays if name != "classes"} == {"uint16"}


def test_every_group_of_a_fold_is_the_target_once(ledger: Path):
    entries = read_ledger(ledger)
    assert [e["cell"]["target"] for e in entries] == dealt_groups(mixed_pool(), 2, 3)[0]
    inside = {e["cell"]["target"] for e in entries}
    for entry in entries:
        assert not inside & set(entry["distances"]["task_themes"])
        tried = [w["way"] for w in entry["ways"]]
        assert tried[:4] == ["random", "task_themes", "prototypes", "half"]
        assert tried[4] == "all"
        assert len(tried) == 5 + len(entry["distances"]["task_themes"])


def test_gains_are_over_random_choice_with_the_same_budget(ledger: Path):
    for entry in read_ledger(ledger):
        mean = {w["way"]: np.mean(w["accuracy"]) for w in entry["ways"]}
        for way in entry["ways"]:
            assert way["gain"] == pytest.approx(mean[way["way"]] - mean["random"], abs=1e-6)


def test_the_ledger_tells_what_was_seen(ledger: Path):
    seen = gains_seen(read_ledger(ledger))
    assert {s.way for s in seen} == {"task_themes", "prototypes", "half"}
    assert len(seen) == 2 * 3


def test_experience_of_a_pools_own_groups_is_seen_once(own_cache: Path):
    pool = replace(mixed_pool(), splits=None)
    seen = experience_of(pool, n=5, settings=SMALL)
    groups = set(pool.groups or ())
    assert {s.target for s in seen} == groups
    assert {s.way for s in seen} == {"task_themes", "prototypes", "ranks", "half"}
    (ledger,) = (own_cache / "experience").glob("*.jsonl")
    before = ledger.read_bytes()
    assert experience_of(pool, n=5, settings=SMALL) == seen
    assert ledger.read_bytes() == before
    with pytest.raises(DataError) as error:
        experience_of(pool, n=5, settings=SMALL, but=min(groups))
    assert str(error.value) == (
        "ClassPool('mixed': 24 classes, 288 samples of 6 features) has 3 groups of 3 or more "
        "training classes besides the target; at least 4 are needed to see what choosing gains on "
        "it. Leave experience out, to go by gains on the embedded data."
    )


def test_sizes_are_compared_by_what_choosing_gains(own_cache: Path):
    pool = replace(mixed_pool(), splits=None)
    gains = gains_by_size(pool, [(2, 2), (3, 2)], n=5, settings=SMALL)
    assert [(g.image_themes, g.task_themes) for g in gains] == [(2, 2), (3, 2)]
    (ledger,) = (own_cache / "sizes").glob("*.jsonl")
    seen = [
        tried["gain"]
        for entry in read_ledger(ledger)
        for tried in entry["ways"]
        if tried["way"] == "task_themes 3×2"
    ]
    assert gains[1].n_targets == len(seen) == len(set(pool.groups or ()))
    assert gains[1].gain.value == pytest.approx(np.mean(seen))
    assert gains[1].worst == min(seen)
    assert gains[1].gain.low < gains[1].gain.value < gains[1].gain.high
    before = ledger.read_bytes()
    assert gains_by_size(pool, [(2, 2), (3, 2)], n=5, settings=SMALL) == gains
    assert ledger.read_bytes() == before


def test_groups_that_cannot_be_targets_are_refused_before_any_work():
    few = mixed_pool().subset(range(4))
    with pytest.raises(DataError, match=r"^no group of .* can be a target: that takes the 5 class"):
        check_own_targets(few)
