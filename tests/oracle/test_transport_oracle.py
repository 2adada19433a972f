"""Optimal transport against a closed form on a line, and against every plan there is."""

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from taskscape.similarity.transport import move_equal_weights

RNG = np.random.default_rng(0)


def on_a_line(n, m):
    """Places on a line and what it costs to go from the one to the other."""
    x, y = RNG.normal(size=n), RNG.normal(size=m)
    return x, y, np.abs(x[:, None] - y)


@pytest.mark.parametrize(("n", "m"), [(1, 3), (2, 3), (2, 6), (3, 4), (23, 24)])
def test_places_that_weigh_the_same(n, m):
    x, y, costs = on_a_line(n, m)  # 23 and 24 places are too many to copy
    assert move_equal_weights(costs) == pytest.approx(wasserstein_distance(x, y), rel=1e-6)


def test_every_plan_is_tried():
    costs = RNG.random((3, 6))  # each of three places is divided between two of the six
    plans = permutations(np.repeat(np.arange(3), 2))
    wanted = min(costs[list(plan), np.arange(6)].mean() for plan in plans)
    assert move_equal_weights(costs) == pytest.approx(wanted)
