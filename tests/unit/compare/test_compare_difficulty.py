import numpy as np
import pytest

from taskscape.compare import class_moments, feature_separation
from taskscape.errors import DataError

RNG = np.random.default_rng(0)


def test_separation_in_feature_space():
    centres = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 10.0]])
    y = np.repeat(np.arange(3), 4000)
    X = centres[y] + RNG.normal(size=(12000, 2))
    moments = class_moments(X, y)
    np.testing.assert_allclose(moments.means, centres, atol=0.1)
    np.testing.assert_allclose(moments.spread, 2, rtol=0.05)
    result = feature_separation(moments, np.array([[0, 1, -1], [0, 1, 2]]))
    np.testing.assert_allclose(result.mean, [9 / 2, (9 + 100 + 109) / 6], rtol=0.05)
    np.testing.assert_allclose(result.smallest, [9 / 2, 9 / 2], rtol=0.05)


def test_a_task_of_one_class_has_no_separation():
    moments = class_moments(RNG.normal(size=(4, 2)), np.array([0, 0, 1, 1]))
    with pytest.raises(DataError, match=r"^task 1 has fewer than 2 classes, so no separation\.$"):
        feature_separation(moments, np.array([[0, 1], [0, -1]]))
