import math

import numpy as np

from report_cases import bare_study
from taskscape.pools import ClassPool
from taskscape.progress import duration
from taskscape.report.content import flat_settings, split_rows
from taskscape.report.page import _percent as percent
from taskscape.themes.places import evenly_spaced


def test_settings_are_flattened_by_stage():
    settings = {"seed": 3, "fit": {"tol": 1e-3, "deep": {"on": True, "list": [1, 2]}, "no": None}}
    assert flat_settings(settings) == (
        ("general", (("seed", "3"),)),
        ("fit", (("tol", "0.001"), ("deep.on", "yes"), ("deep.list", "1, 2"), ("no", "none"))),
    )


def test_times_and_shares_in_words():
    times = (0.26, 42.4, 3599, 3660, math.nan)
    assert [duration(t) for t in times] == ["0.3 s", "42 s", "59 min 59 s", "1 h 1 min", "–"]
    assert (percent(0.123), percent(math.nan)) == ("12.3 %", "–")


def test_splits_come_in_order_with_their_groups():
    pool = ClassPool.from_classes(
        {name: np.zeros((2, 3)) for name in "abcd"},
        groups=["x", "y", "x", "x"],
        splits=["test", "train", "train", "train"],
    )
    train, test = split_rows(pool, np.arange(4))
    assert (train["split"], train["n_classes"], train["n_samples"]) == ("train", 3, 6)
    assert train["groups"] == [("y", 1, [1]), ("x", 2, [2, 3])]
    assert test["groups"] == [("x", 1, [0])]


def test_a_pool_without_splits_and_groups_is_one_of_each():
    (row,) = split_rows(bare_study().pool, np.arange(24))
    assert (row["split"], row["n_classes"]) == ("", 24)
    assert row["groups"] == [("", 24, evenly_spaced(np.arange(24), 18).tolist())]
