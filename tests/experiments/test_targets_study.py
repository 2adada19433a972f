"""The study of targets: every group once, on a small pool, and what its ledger tells ``advise``."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.lab import Lab
from experiments.tables import targets
from experiments.targets import TargetsSettings, run
from target_cases import mixed_pool
from taskscape.errors import DataError
from taskscape.io.ledger import read_ledger
from taskscape.targets import AdvisorSettings
from taskscape.targets.rotation import Rotation, gains_seen

SMALL = AdvisorSettings(
    candidates=30, n_way=3, n_shot=3, n_query=6, components=4,
    updates=4,
)  # fmt: skip

DEALT = Rotation(mixed_pool(), ("prototypes",), folds=2, settings=SMALL).dealt


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
        only_folds=(0,), trials=2, random_trials=2, ways=("themes", "prototypes", "half"),
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
    assert [e["cell"]["target"] for e in entries] == DEALT[0]
    inside = {e["cell"]["target"] for e in entries}
    for entry in entries:
        assert not inside & set(entry["distances"]["themes"])
        tried = [w["way"] for w in entry["ways"]]
        assert tried[:4] == ["random", "themes", "prototypes", "half"]
        assert tried[4] == "all"
        assert len(tried) == 5 + len(entry["distances"]["themes"])


def test_gains_are_over_random_choice_with_the_same_budget(ledger: Path):
    for entry in read_ledger(ledger):
        mean = {w["way"]: np.mean(w["accuracy"]) for w in entry["ways"]}
        for way in entry["ways"]:
            assert way["gain"] == pytest.approx(mean[way["way"]] - mean["random"], abs=1e-6)


def test_the_ledger_tells_what_was_seen(ledger: Path):
    seen = gains_seen(read_ledger(ledger))
    assert {s.way for s in seen} == {"themes", "prototypes", "half"}
    assert len(seen) == 2 * 3


def test_the_package_says_what_the_ledgers_say():
    for path, joined in targets.PACKAGED.items():
        assert path.read_text("utf-8") == targets.as_text(targets.experience(joined))
