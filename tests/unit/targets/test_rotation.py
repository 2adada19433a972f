"""Every group of a small pool as the target once, and what that tells ``advise``."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from target_cases import mixed_pool
from taskscape.errors import DataError
from taskscape.ledger import read_ledger
from taskscape.targets import AdvisorSettings
from taskscape.targets.rotation import experience_of, gains_by_size

SMALL = AdvisorSettings(
    candidates=30, n_way=3, n_shot=3, n_query=6, image_themes=2, task_themes=2, components=4,
    updates=4,
)  # fmt: skip


def test_experience_of_a_pools_own_groups_is_seen_once(own_cache: Path):
    pool = replace(mixed_pool(), splits=None)
    seen = experience_of(pool, n=5, settings=SMALL)
    groups = set(pool.groups or ())
    assert {s.target for s in seen} == groups
    assert {s.way for s in seen} == {"task_themes", "prototypes", "ranks", "half"}
    (ledger,) = (own_cache / "targets").glob("*.jsonl")
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
    (ledger,) = (own_cache / "targets").glob("*.jsonl")
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
        gains_by_size(few, [(2, 2)])
