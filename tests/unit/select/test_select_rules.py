import re
from pathlib import Path

import numpy as np
import pytest

from taskscape.compare import distances, mean_distance
from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.select import RULES, Selection, rules, select
from taskscape.similarity import PosteriorSource
from taskscape.tasks import sample_tasks

DOCS = Path(__file__).parents[3] / "docs" / "compare.md"
RNG = np.random.default_rng(0)
TEST, TRAIN = RNG.gamma(1, 2, (12, 4)) + 0.1, RNG.gamma(1, 2, (300, 4)) + 0.1
CLASSES = np.array([RNG.choice(20, 5, replace=False) for _ in range(300)])


def test_nearest_takes_the_smallest_mean():
    chosen = select(TEST, TRAIN, 20, "nearest")
    means = distances(TEST, TRAIN).mean(axis=0)
    np.testing.assert_array_equal(chosen.indices, np.argsort(means)[:20])
    np.testing.assert_allclose(chosen.scores, np.sort(means)[:20])
    assert (chosen.for_test == -1).all()


def test_coverage_is_what_it_says():
    chosen = select(TEST, TRAIN, 30, "coverage", seed=5)
    matrix, used = distances(TEST, TRAIN), set()
    for test, task, score in zip(chosen.for_test, chosen.indices, chosen.scores, strict=True):
        left = [i for i in range(300) if i not in used]
        best = left[int(np.argmin(matrix[test, left]))]
        assert task == best
        assert score == pytest.approx(matrix[test, best], abs=1e-9)
        used.add(best)
    for round_of_turns in (chosen.for_test[:12], chosen.for_test[12:24]):
        assert sorted(round_of_turns) == list(range(12))


def test_coverage_of_many_turns_is_still_exact():
    # far more turns than are looked up together, all wanting the same tasks
    test = TEST[:1] * (1 + 1e-3 * RNG.random((400, 1)))
    chosen = select(test, TRAIN, 250, "coverage")
    matrix, used = distances(test, TRAIN), np.zeros(300, dtype=bool)
    for t, task in zip(chosen.for_test, chosen.indices, strict=True):
        assert task == np.argmin(np.where(used, np.inf, matrix[t]))
        used[task] = True


def test_facility_is_the_greedy_choice():
    chosen = select(TEST, TRAIN, 8, "facility")
    matrix = distances(TEST, TRAIN)
    best = matrix.max(axis=1)
    for task, score in zip(chosen.indices, chosen.scores, strict=True):
        gains = np.maximum(best[:, None] - matrix, 0).mean(axis=0)
        assert gains[task] == pytest.approx(gains.max())
        assert score == pytest.approx(gains.max())
        best = np.minimum(best, matrix[:, task])


def test_facility_reaches_its_guarantee():
    from itertools import combinations

    matrix = RNG.random((6, 9))
    start = matrix.max(axis=1)

    def value(chosen):
        return (start - matrix[:, list(chosen)].min(axis=1)).sum()

    best = max(value(c) for c in combinations(range(9), 3))
    chosen = select(None, None, 3, "facility", similarity=matrix)
    assert value(chosen.indices) >= (1 - 1 / np.e) * best


def test_facility_starts_again_when_all_are_served():
    chosen = select(TEST, TRAIN, 40, "facility")
    assert len(set(chosen.indices.tolist())) == 40
    nearest_of_each = set(np.argmin(distances(TEST, TRAIN), axis=1).tolist())
    assert nearest_of_each <= set(chosen.indices[: len(nearest_of_each) + 12].tolist())


def test_classes_are_used_more_evenly(monkeypatch):
    plain = select(TEST, TRAIN, 60, "coverage", train_classes=CLASSES)
    monkeypatch.setattr(rules, "_PENALTY", 3.0)
    even = select(TEST, TRAIN, 60, "classes", train_classes=CLASSES)
    spread = [np.bincount(CLASSES[s.indices].ravel(), minlength=20).std() for s in (plain, even)]
    assert spread[1] < spread[0] / 2
    monkeypatch.setattr(rules, "_PENALTY", 0.0)
    same = select(TEST, TRAIN, 60, "classes", train_classes=CLASSES)
    np.testing.assert_array_equal(same.indices, plain.indices)


@pytest.mark.parametrize("rule", RULES)
def test_no_two_tasks_share_too_many_classes(rule):
    chosen = select(TEST, TRAIN, 12, rule, train_classes=CLASSES, max_shared=2)
    sets = [set(c) for c in CLASSES[chosen.indices]]
    assert max(len(a & b) for i, a in enumerate(sets) for b in sets[:i]) <= 2


def test_what_cannot_be_chosen_is_said():
    with pytest.raises(DataError, match=r"only \d+ of the 12 tasks .*max_shared=0\. Lower n"):
        select(TEST, TRAIN, 12, "coverage", train_classes=CLASSES, max_shared=0)


def test_ties_are_broken_by_seed():
    same = np.tile(TRAIN[:1], (50, 1))
    picks = {tuple(select(TEST, same, 5, "nearest", seed=s).indices) for s in range(4)}
    assert len(picks) == 4
    again = {tuple(select(TEST, same, 5, "nearest", seed=1).indices) for _ in range(3)}
    assert len(again) == 1


def test_random_is_random_even_if_all_tasks_are_equal():
    chosen = select(TEST, np.tile(TRAIN[:1], (1000, 1)), 100, "random")
    assert 350 < chosen.indices.mean() < 650


def test_a_selection_says_why_and_replaces_only_a_selection(tmp_path):
    chosen = select(TEST, TRAIN, 7, "coverage")
    assert chosen.settings["n"] == 7
    assert re.fullmatch(r"distance [\d.e-]+, for test task \d+", chosen.why[0])
    with pytest.raises(DataError, match="this is not a selection"):
        Selection.from_dict({})
    with pytest.raises(DataError, match=r"no such file: .*gone\.json"):
        Selection.load(tmp_path / "gone.json")
    (tmp_path / "own.json").write_text("[1]")
    with pytest.raises(DataError, match=r"is not a selection written by taskscape; it is left"):
        chosen.save(tmp_path / "own.json")


def test_a_source_serves_many_seeds():
    source = PosteriorSource(TEST, np.tile(TRAIN[:3], (40, 1)))
    for rule in ("nearest", "coverage"):
        picks = {
            tuple(select(None, None, 9, rule, similarity=source, seed=s).indices) for s in range(4)
        }
        assert len(picks) == 4


def test_scores_of_nearest_are_mean_distances_the_other_way_round():
    chosen = select(TEST, TRAIN, 300, "nearest")
    assert chosen.scores.mean() == pytest.approx(mean_distance(TEST, TRAIN).mean())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n=0 must lie between 1 and the 300 training tasks"),
        ({"n": 301}, "n=301 must lie between 1 and the 300 training tasks"),
        ({"rule": "best"}, "rule='best' is not known; use 'nearest'"),
        ({"rule": "classes"}, "rule='classes' needs train_classes"),
        ({"max_shared": 2}, "max_shared needs train_classes"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused(options, message):
    with pytest.raises(DataError, match=message):
        select(TEST, TRAIN, **{"n": 5} | options)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_described(rule):
    assert f"| `{rule}` | {RULES[rule].meaning} |" in DOCS.read_text(encoding="utf-8")


def test_task_sets_bring_their_classes():
    pool = ClassPool.from_arrays(RNG.normal(size=(200, 2)), np.repeat(np.arange(20), 10))
    test, train = (sample_tasks(pool, n, n_way=4, n_shot=3, seed=n) for n in (6, 40))
    chosen = select(test, train, 5, "classes", similarity="prototypes", max_shared=2)
    sets = [set(c) for c in train.classes[chosen.indices]]
    assert max(len(a & b) for i, a in enumerate(sets) for b in sets[:i]) <= 2
