from types import SimpleNamespace

import numpy as np
import pytest

from taskscape.compare import class_moments, class_separation, distances, feature_separation
from taskscape.errors import DataError

RNG = np.random.default_rng(0)


def test_separation_of_class_posteriors_pair_by_pair():
    gamma = RNG.gamma(1, 3, (2, 3, 4)) + 0.1
    found = class_separation(gamma, kind="kl")
    for task in range(2):
        pairs = [
            distances(gamma[task, i], gamma[task, j], paired=True)
            for i in range(3)
            for j in range(3)
            if i != j
        ]
        assert found.mean[task] == pytest.approx(np.mean(pairs))
        assert found.smallest[task] == pytest.approx(np.min(pairs))


def test_padded_classes_play_no_part():
    gamma = RNG.gamma(1, 3, (5, 4, 6)) + 0.1
    eta = np.ones((5, 4, 2)) / 2
    eta[:, 3] = 0
    padded = class_separation(SimpleNamespace(gamma=gamma, eta=eta))
    plain = class_separation(gamma[:, :3])
    np.testing.assert_allclose(padded.mean, plain.mean)
    masked = class_separation(gamma, class_mask=eta.sum(-1) > 0)
    np.testing.assert_allclose(masked.smallest, plain.smallest)


def test_members_are_averaged_after_division_by_their_mean():
    gamma = RNG.gamma(1, 3, (2, 5, 3, 4)) + 0.1
    one = [class_separation(g).mean for g in gamma]
    np.testing.assert_allclose(
        class_separation(gamma).mean, np.mean([d / d.mean() for d in one], axis=0)
    )


def test_separation_in_feature_space():
    centres = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 10.0]])
    y = np.repeat(np.arange(3), 4000)
    X = centres[y] + RNG.normal(size=(12000, 2))
    moments = class_moments(X, y)
    np.testing.assert_allclose(moments.means, centres, atol=0.1)
    np.testing.assert_allclose(moments.spread, 2, rtol=0.05)
    found = feature_separation(moments, np.array([[0, 1, -1], [0, 1, 2]]))
    np.testing.assert_allclose(found.mean, [9 / 2, (9 + 100 + 109) / 6], rtol=0.05)
    np.testing.assert_allclose(found.smallest, [9 / 2, 9 / 2], rtol=0.05)


def test_a_task_of_one_class_has_no_separation():
    moments = class_moments(RNG.normal(size=(4, 2)), np.array([0, 0, 1, 1]))
    with pytest.raises(DataError, match=r"^task 1 has fewer than 2 classes, so no separation\.$"):
        feature_separation(moments, np.array([[0, 1], [0, -1]]))


def test_divergences_without_a_closed_form_are_refused():
    with pytest.raises(DataError, match=r"^kind='emd' compares no classes; use one of "):
        class_separation(np.ones((1, 2, 3)), kind="emd")
