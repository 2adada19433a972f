import math

import numpy as np
from scipy import stats

from report_cases import bare_study
from taskscape.pools import ClassPool
from taskscape.progress import duration
from taskscape.report.tables import (
    SelectionRow,
    flat_settings,
    percent,
    selection_table,
    split_rows,
)
from taskscape.select.trials import Trial, outcomes


def trials(values, rule="random", budget=100):
    return [Trial("maml", rule, budget, i, v) for i, v in enumerate(values)]


def test_a_cell_is_the_mean_with_students_interval():
    values = [0.5, 0.6, 0.58, 0.55]
    table = selection_table(outcomes(trials(values)), "maml")
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert table.rows == (
        SelectionRow(100, "random", f"55.8 ± {100 * (high - low) / 2:.1f} %", None),
    )


def test_one_trial_has_no_interval_and_failed_ones_do_not_count():
    failed = [*trials([0.5, math.nan]), *trials([math.nan], "nearest")]
    table = selection_table(outcomes(failed), "maml")
    assert [(row.rule, row.accuracy) for row in table.rows] == [
        ("random", "50.0 %"),
        ("nearest", "–"),
    ]
    assert table.trials == "0 to 1"


def test_the_table_has_a_row_for_each_budget_and_rule_that_was_tried():
    tried = outcomes([*trials([0.5, 0.6]), *trials([0.7], "nearest", 50)])
    table = selection_table(tried, "maml")
    assert table.rules == ("random", "nearest")
    assert [(row.budget, row.rule) for row in table.rows] == [(50, "nearest"), (100, "random")]
    assert table.trials == "1 to 2"


def test_the_table_calls_clear_what_the_findings_do():
    tried = outcomes([
        *trials([0.50, 0.51, 0.52]),
        *trials([0.70, 0.71], "good"),
        *trials([0.30, 0.31], "bad"),
        *trials([0.505, 0.525], "same"),
    ])  # fmt: skip
    verdicts = {row.rule: row.verdict for row in selection_table(tried, "maml").rows}
    assert verdicts == {"random": "–", "good": "better", "bad": "worse", "same": "no"}


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
    train, test = split_rows(pool)
    assert (train.split, train.n_classes, train.n_samples) == ("train", 3, 6)
    assert train.groups == (("y", (1,)), ("x", (2, 3)))
    assert test.groups == (("x", (0,)),)


def test_a_pool_without_splits_and_groups_is_one_of_each():
    (row,) = split_rows(bare_study().pool)
    assert (row.split, row.n_classes) == ("", 24)
    assert row.groups == (("", tuple(range(24))),)
