import itertools

import numpy as np
import pytest
from scipy.stats import kendalltau, linregress, spearmanr

from taskscape.diagram import correlation_diagram, noise_ceiling, partial_spearman
from taskscape.diagram.resampling import make_resamples
from taskscape.statistics import kendall, slope, spearman

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


def test_resampled_classes_weigh_tasks_by_the_product():
    classes = np.array(list(itertools.combinations(range(12), 2)))
    resamples = make_resamples(classes, len(classes), method="bootstrap", n_resamples=400)
    counts = np.array([np.bincount(r, minlength=len(classes)) for r in resamples.rows])
    # E[m_i m_j] = n (n - 1) / n² for two different classes
    assert counts.mean() == pytest.approx(11 / 12, abs=0.05)
    assert (counts.max(axis=0) >= 4).any()


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


@pytest.mark.parametrize("method", ["jackknife", "bootstrap"])
def test_intervals_over_classes_hold_the_truth_and_intervals_over_tasks_do_not(method):
    # 14 classes, all 3-way tasks; distance and accuracy are sums of independent class effects
    tasks = np.array(list(itertools.combinations(range(14), 3)))
    covered = {"classes": 0, "tasks": 0}
    rng = np.random.default_rng(1)
    runs = 40
    for _ in range(runs):
        a, b = rng.normal(size=(2, 14))
        x, y = a[tasks].sum(axis=1), b[tasks].sum(axis=1)  # true correlation: 0
        for by, classes in (("classes", tasks), ("tasks", None)):
            resamples = make_resamples(classes, len(x), method=method, n_resamples=80)
            found = resamples.interval(
                lambda r, x=x, y=y: spearman(x[r], y[r]), np.arange(len(x)), correlation=True
            )
            covered[by] += found.low <= 0 <= found.high
    assert covered["classes"] >= 0.8 * runs
    assert covered["tasks"] <= 0.5 * runs
