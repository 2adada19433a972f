"""Every group of a small pool as the target once, and what that tells ``advise``."""

from dataclasses import replace
from pathlib import Path

import pytest

from target_cases import mixed_pool
from taskscape.errors import DataError
from taskscape.targets import AdvisorSettings
from taskscape.targets.rotation import experience_of

SMALL = AdvisorSettings(
    candidates=30, n_way=3, n_shot=3, n_query=6, components=4, updates=4
)  # fmt: skip


def test_experience_of_a_pools_own_groups_is_seen_once(own_cache: Path):
    pool = replace(mixed_pool(), splits=None)
    seen = experience_of(pool, n=5, settings=SMALL)
    groups = set(pool.groups or ())
    assert {s.target for s in seen} == groups
    assert {s.way for s in seen} == {"themes", "prototypes", "ranks", "half"}
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


def test_groups_that_cannot_be_targets_are_refused_before_any_work():
    few = mixed_pool().subset(range(4))
    with pytest.raises(DataError, match=r"^no group of .* can be a target: that takes the 5 class"):
        experience_of(few)
