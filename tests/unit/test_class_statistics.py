import itertools

import numpy as np
import pytest
from scipy.stats import kendalltau, linregress, spearmanr, ttest_1samp, ttest_ind
from scipy.stats import t as student

from taskscape.diagram import correlation_diagram
from taskscape.errors import DataError
from taskscape.statistics import (
    Interval,
    Variance,
    class_interval,
    gain_interval,
    jackknife,
    kendall,
    losing_share,
    make_resamples,
    mean_interval,
    noise_ceiling,
    partial_spearman,
    slope,
    spearman,
    t_interval,
    without_each_class,
)

RNG = np.random.default_rng(0)


def test_correlations_agree_with_scipy():
    x = RNG.normal(size=200)
    y = np.round(x + RNG.normal(size=200), 1)
    assert spearman(x, y) == pytest.approx(spearmanr(x, y).statistic)
    assert kendall(x, y) == pytest.approx(kendalltau(x, y).statistic)
    assert slope(x, y) == pytest.approx(linregress(x, y).slope)
    assert np.isnan(spearman(x, np.ones(200)))
    assert np.isnan(kendall(x, np.ones(200)))
    assert np.isnan(slope(np.ones(200), y))


def test_partial_correlation_takes_the_third_away():
    z = RNG.normal(size=5000)
    x, y = z + RNG.normal(size=5000), z + RNG.normal(size=5000)
    assert spearman(x, y) > 0.4
    assert abs(partial_spearman(x, y, z[:, None])) < 0.05
    xy, xz, yz = spearman(x, y), spearman(x, z), spearman(y, z)
    formula = (xy - xz * yz) / np.sqrt((1 - xz**2) * (1 - yz**2))
    assert partial_spearman(x, y, z[:, None]) == pytest.approx(formula)
    assert np.isnan(partial_spearman(z, y, z[:, None]))


@pytest.mark.parametrize("n", [2, 3, 5, 10, 20])
def test_the_ceiling_is_the_correlation_with_the_truth(n):
    truth = RNG.normal(size=20_000)
    seen = truth[:, None] + 2 * RNG.normal(size=(20_000, n))
    halves, ceiling = noise_ceiling(seen)
    assert ceiling == pytest.approx(spearman(truth, seen.mean(axis=1)), abs=0.02)
    assert halves < ceiling


def test_pure_noise_has_no_ceiling_to_speak_of():
    assert noise_ceiling(RNG.normal(size=(5000, 2)))[1] < 0.2


def test_leaving_out_a_class_leaves_out_its_tasks():
    classes = np.array(list(itertools.combinations(range(7), 2)))
    padded = np.concatenate([classes, np.full((21, 1), -1)], axis=1)
    for given in (classes, padded):
        resamples = make_resamples(given, 21)
        assert len(resamples.rows) == 7
        left_out = [set(range(7)) - set(classes[rows].ravel()) for rows in resamples.rows]
        assert sorted(c for (c,) in left_out) == list(range(7))
        assert resamples.words == "leaving out classes"


def test_unknown_classes_are_said_to_be_unknown():
    words = make_resamples(None, 200).words
    assert words == (
        "leaving out 50 groups of tasks (classes unknown: too narrow if tasks share classes)"
    )


def test_too_few_classes_give_no_interval():
    resamples = make_resamples(np.tile(np.arange(5), (30, 1)), 30)
    assert resamples.rows == ()
    assert resamples.words == "none: too few tasks remain when leaving out classes"
    classes = np.tile(np.arange(5), (30, 1))
    (curve,) = correlation_diagram(RNG.random(30), RNG.random(30), classes=classes).curves
    assert np.isnan(curve.spearman.low)


def test_intervals_over_classes_hold_the_truth_and_intervals_over_tasks_do_not():
    # 14 classes, all 3-way tasks; distance and accuracy are sums of independent class effects
    tasks = np.array(list(itertools.combinations(range(14), 3)))
    covered = {"classes": 0, "tasks": 0}
    rng = np.random.default_rng(1)
    runs = 40
    for _ in range(runs):
        a, b = rng.normal(size=(2, 14))
        x, y = a[tasks].sum(axis=1), b[tasks].sum(axis=1)  # true correlation: 0
        for by, classes in (("classes", tasks), ("tasks", None)):
            resamples = make_resamples(classes, len(x))
            interval = resamples.interval(
                lambda r, x=x, y=y: spearman(x[r], y[r]), correlation=True
            )
            covered[by] += interval.low <= 0 <= interval.high
    assert covered["classes"] >= 0.8 * runs
    assert covered["tasks"] <= 0.5 * runs


def test_classes_that_cannot_be_left_out_vary_as_the_others_do():
    resamples = make_resamples(np.array(list(itertools.combinations(range(10), 3))), 120)
    again = [0.4, 0.6] * 5
    values = iter([0.5, *again, 0.5, *again[:6], *[np.nan] * 4])
    all_known, some_known = (resamples.interval(lambda rows: next(values)) for _ in range(2))
    assert some_known.reach == pytest.approx(all_known.reach)


def test_partial_correlations_given_the_same_twice_or_a_constant():
    x, y, z = RNG.normal(size=(3, 300))
    x, y = x + z, y + z
    once = partial_spearman(x, y, z[:, None])
    for given in ([z, z], [np.ones(300), z], [z, z**3], [z, 2 * z, np.zeros(300)]):
        assert partial_spearman(x, y, np.stack(given, axis=1)) == pytest.approx(once)
    assert partial_spearman(x, y, np.ones((300, 1))) == pytest.approx(spearman(x, y))


def test_intervals_of_trials_are_those_of_scipy():
    ours, theirs = RNG.normal(0.6, 0.02, size=5), RNG.normal(0.5, 0.01, size=9)
    expected = ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.9)
    interval = gain_interval(ours, theirs, confidence=0.9)
    np.testing.assert_allclose((interval.low, interval.high), (expected.low, expected.high))
    assert interval.value == pytest.approx(ours.mean() - theirs.mean())
    expected = ttest_1samp(ours, 0).confidence_interval(0.95)
    interval = mean_interval(ours)
    np.testing.assert_allclose((interval.low, interval.high), (expected.low, expected.high))
    assert np.isnan(mean_interval(ours[:1]).low)


def test_a_single_trial_varies_as_the_others_do():
    one, many = np.array([0.6]), RNG.normal(0.5, 0.02, size=6)
    reach = student.ppf(0.975, 5) * many.std(ddof=1) * np.sqrt(1 + 1 / 6)
    assert gain_interval(one, many).reach == pytest.approx(reach)
    assert gain_interval(many, one).reach == pytest.approx(reach)
    assert np.isnan(gain_interval(one, one).low)


def test_trials_without_noise_have_an_interval_without_width():
    interval = gain_interval(np.full(3, 0.6), np.full(4, 0.5))
    assert interval.low == interval.value == interval.high
    assert interval.sign(3) == 1


def test_an_interval_is_clear_where_it_leaves_out_zero():
    assert Interval(1.0, 0.5, 1.5).sign(3) == 1
    assert Interval(-1.0, -1.5, -0.5).sign(3) == -1
    assert Interval(1.0, -0.5, 2.5).sign(3) == 0
    assert Interval(1.0).sign(3) == 0
    assert Interval(0.9, 0.7, 1.1).within(0.0, 1.0) == Interval(0.9, 0.7, 1.0)


def test_parts_of_an_error_add_up():
    both = t_interval(0.0, [Variance(9.0, 4), Variance(16.0, 12)])
    freedom = 25**2 / (9**2 / 4 + 16**2 / 12)
    assert both.high == pytest.approx(5 * student.ppf(0.975, freedom))
    assert np.isnan(t_interval(0.0, [Variance(9.0, 4), Variance(0.0, 0)]).low)


def test_the_interval_of_a_mean_leaves_out_classes():
    rng = np.random.default_rng(0)
    skill, classes = rng.normal(size=12), np.array([rng.permutation(12)[:3] for _ in range(4000)])
    values = skill[classes].mean(1)
    interval = class_interval(values, classes)
    # the mean over tasks is nearly the mean of the classes, whose standard error is known
    expected = student.ppf(0.975, 11) * skill.std(ddof=1) / np.sqrt(12)
    np.testing.assert_allclose(interval.reach, expected, rtol=0.1)
    assert interval.value == values.mean()
    same = make_resamples(classes, len(classes)).interval(lambda r: float(values[r].mean()))
    np.testing.assert_allclose((same.low, same.high), (interval.low, interval.high))
    with pytest.raises(DataError) as error:
        class_interval(values[:1], classes[:1])
    assert str(error.value) == (
        "leaving out a class leaves no task; evaluate more tasks, over more classes."
    )


@pytest.mark.parametrize("n_classes", [6, 12, 20])
def test_the_interval_of_a_mean_holds_what_it_says(n_classes):
    rng = np.random.default_rng(n_classes)
    held, runs = 0, 400
    for _ in range(runs):
        tasks = np.argsort(rng.random((100, n_classes)), axis=1)[:, :5]
        interval = class_interval(rng.normal(size=n_classes)[tasks].mean(axis=1), tasks)
        held += interval.low <= 0 <= interval.high
    assert 0.92 <= held / runs <= 0.985


def test_a_gain_varies_over_trials_and_over_classes():
    # every trial has its own shift, every class its own gain: neither alone holds the truth
    rng = np.random.default_rng(0)
    tasks = np.array(list(itertools.combinations(range(10), 3)))
    held, runs = {"both": 0, "trials": 0}, 300
    for _ in range(runs):
        by_class = 0.03 * rng.normal(size=10)[tasks].mean(axis=1)
        base = rng.normal(size=10)[tasks].mean(axis=1)  # cancels
        ours = base + by_class + 0.01 * rng.normal(size=(5, 1))
        theirs = base + 0.01 * rng.normal(size=(8, 1))
        without = tuple(without_each_class(a.mean(axis=0), tasks) for a in (ours, theirs))
        for name, known in (("both", without), ("trials", None)):
            interval = gain_interval(ours.mean(axis=1), theirs.mean(axis=1), known)
            held[name] += interval.low <= 0 <= interval.high
    assert 0.92 <= held["both"] / runs <= 0.99
    assert held["trials"] / runs < 0.9


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = RNG.normal(size=30)
    without = (values.sum() - values) / 29
    result = jackknife(without)
    assert result.value == pytest.approx(values.var(ddof=1) / 30)
    assert result.freedom == 29


def test_how_often_ours_loses():
    assert losing_share([0.5, 0.6], [0.55, 0.6]) == 0.625
    assert losing_share([0.7], [0.55, 0.6]) == 0.0
