"""Optimal transport against a closed form on a line, and against every plan there is."""

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from taskscape.compare.transport import move_equal_weights, move_weights

RNG = np.random.default_rng(0)


def on_a_line(n, m):
    """Places on a line and what it costs to go from the one to the other."""
    x, y = RNG.normal(size=n), RNG.normal(size=m)
    return x, y, np.abs(x[:, None] - y)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (4, 4), (5, 8), (16, 9)])
def test_weights_on_a_line_move_as_their_distributions_differ(n, m):
    x, y, costs = on_a_line(n, m)
    a, b = RNG.dirichlet(np.full(n, 0.5), 150), RNG.dirichlet(np.full(m, 0.5), 150)
    if n > 1:
        a[::3, 0] = 0.0  # some places are empty
        a /= a.sum(axis=1, keepdims=True)
    wanted = [wasserstein_distance(x, y, p, q) for p, q in zip(a, b, strict=True)]
    np.testing.assert_allclose(move_weights(costs[None], a, b), wanted, rtol=1e-6, atol=1e-9)


def test_tiny_weights_are_moved_as_exactly_as_large_ones():
    _, _, costs = on_a_line(4, 4)
    a, b = RNG.dirichlet(np.ones(4), 5), RNG.dirichlet(np.ones(4), 5)
    large = move_weights(costs[None], a, b)
    np.testing.assert_allclose(move_weights(costs[None], 1e-9 * a, 1e-9 * b), 1e-9 * large)
    nothing = np.zeros((5, 4))
    np.testing.assert_array_equal(move_weights(costs[None], nothing, nothing), 0.0)


@pytest.mark.parametrize(("n", "m"), [(1, 3), (2, 3), (2, 6), (3, 4), (23, 24)])
def test_places_that_weigh_the_same(n, m):
    x, y, costs = on_a_line(n, m)  # 23 and 24 places are too many to copy
    assert move_equal_weights(costs) == pytest.approx(wasserstein_distance(x, y), rel=1e-6)


def test_every_plan_is_tried():
    costs = RNG.random((3, 6))  # each of three places is divided between two of the six
    plans = permutations(np.repeat(np.arange(3), 2))
    wanted = min(costs[list(plan), np.arange(6)].mean() for plan in plans)
    assert move_equal_weights(costs) == pytest.approx(wanted)
