"""``rule="auto"``: rules are tried for validation tasks, and chance is kept where none helps."""

import re

import numpy as np
import pytest

from taskscape.compare import distances
from taskscape.errors import DataError
from taskscape.select import Selection, TrialOptions, choose_rule, select

RNG = np.random.default_rng(0)
TEST, VAL = RNG.gamma(1, 2, (12, 4)) + 0.1, RNG.gamma(1, 2, (9, 4)) + 0.1
TRAIN = RNG.gamma(1, 2, (300, 4)) + 0.1
CLASSES = np.array([RNG.choice(20, 5, replace=False) for _ in range(300)])
TRIAL = TrialOptions(trials=6, n=10)


class NearIsGood:
    """A learner that does better the nearer its training tasks are to the validation tasks."""

    def __init__(self, strength: float, noise: float = 0.01) -> None:
        self.strength, self.noise = strength, noise
        self.asked: list[list[np.ndarray]] = []
        self.rng = np.random.default_rng(1)
        self.distance = distances(VAL, TRAIN).mean(axis=0)

    def __call__(self, chosen):
        self.asked.append(list(chosen))
        far = np.array([self.distance[rows].mean() for rows in chosen]) / self.distance.mean()
        return 0.7 - self.strength * far + self.noise * self.rng.normal(size=len(chosen))


def test_a_rule_that_helps_is_used_for_the_test_tasks():
    scorer = NearIsGood(0.2)
    chosen = select(TEST, TRAIN, 40, "auto", validation=VAL, scorer=scorer, trial=TRIAL)
    assert chosen.rule == "nearest"
    np.testing.assert_array_equal(chosen.indices, select(TEST, TRAIN, 40, "nearest").indices)
    output = chosen.settings["auto"]
    assert [t["rule"] for t in output["tried"]] == ["random", "nearest", "coverage", "facility"]
    assert output["n"] == 10
    assert output["n_validation"] == 9
    assert len(output["tried"][1]["scores"]) == 6
    assert re.match(
        r"nearest beat random choice .* by 0\.\d+, at least 0\.\d+ with 95 %", output["why"]
    )
    assert Selection.from_dict(chosen.to_dict()).settings["auto"]["why"] == output["why"]
    # tried for the validation tasks, at the small budget
    near = select(VAL, TRAIN, 10, "nearest", seed=3).indices
    np.testing.assert_array_equal(scorer.asked[1][3], near)
    assert all(len(rows) == 10 for call in scorer.asked for rows in call)


@pytest.mark.parametrize("strength", [0.0, -0.2])
def test_where_none_helps_it_is_chance(strength):
    chosen = select(
        TEST, TRAIN, 40, "auto", validation=VAL, scorer=NearIsGood(strength), trial=TRIAL
    )
    assert chosen.rule == "random"
    np.testing.assert_array_equal(chosen.indices, select(TEST, TRAIN, 40, "random").indices)
    assert chosen.settings["auto"]["why"].startswith("no rule beat random choice")


def test_luck_alone_seldom_wins():
    wins = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        rule, _ = choose_rule(
            lambda _rule, _seed: np.zeros(1, int), lambda lists, r=rng: r.normal(size=len(lists)),
            ["nearest", "coverage", "facility"], TrialOptions(),
        )  # fmt: skip
        wins += rule != "random"
    assert wins <= 20  # 5 % are allowed


def test_classes_are_tried_where_they_are_known():
    scorer = NearIsGood(0.0)
    chosen = select(
        TEST, TRAIN, 20, "auto", validation=VAL, scorer=scorer, trial=TRIAL, train_classes=CLASSES
    )
    assert "classes" in [t["rule"] for t in chosen.settings["auto"]["tried"]]
    assert len(scorer.asked) == 5


def test_any_source_of_distances_will_do():
    test, val = distances(TEST, TRAIN), distances(VAL, TRAIN)
    trial = TrialOptions(rules=("nearest",), trials=4, n=10)
    chosen = select(
        None, None, 20, "auto", similarity=test, validation=val, scorer=NearIsGood(0.3), trial=trial
    )
    assert chosen.rule == "nearest"


def test_the_budget_of_a_trial():
    assert TrialOptions().budget(100) == 100
    assert TrialOptions().budget(10_000) == 500
    with pytest.raises(DataError, match=r"trial\.n=30 must lie between 1 and n=20"):
        TrialOptions(n=30).budget(20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scorer": None}, "rule='auto' needs validation, .* and scorer"),
        ({"trial": TrialOptions(trials=2)}, "trials=2 must be at least 3"),
        ({"trial": TrialOptions(rules=("random",))}, r"rules=\['random'\]: give some of nearest"),
        ({"trial": TrialOptions(confidence=1.5)}, "confidence=1.5 must be .* below 1"),
    ],
)
def test_what_cannot_be_tried_is_refused(options, message):
    wishes = {"validation": VAL, "scorer": NearIsGood(0.1), "trial": TRIAL} | options
    with pytest.raises(DataError, match=message):
        select(TEST, TRAIN, 20, "auto", **wishes)


def test_a_scorer_must_score_every_trial():
    with pytest.raises(DataError, match=r"^scorer returned \[.*\] for 6 trials of rule 'random'"):
        select(TEST, TRAIN, 20, "auto", validation=VAL, scorer=lambda lists: [0.5], trial=TRIAL)
    with pytest.raises(DataError, match="distances to 7 training tasks, the test tasks to 300"):
        select(
            None, None, 5, "auto", similarity=distances(TEST, TRAIN), validation=np.ones((3, 7)),
            scorer=NearIsGood(0.1),
        )  # fmt: skip
