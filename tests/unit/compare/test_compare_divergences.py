import re

import numpy as np
import pytest

from taskscape.compare import distances
from taskscape.errors import DataError

P, Q = np.array([1.5, 2.0, 0.5]), np.array([0.7, 1.0, 3.0])


def test_single_tasks_give_a_number():
    assert np.ndim(distances(P, Q, paired=True)) == 0
    assert distances(P[None], Q[None], paired=True).shape == (1,)
    np.testing.assert_allclose(
        distances(P, np.stack([Q, Q, P]), paired=True), [distances(P, Q, paired=True)] * 2 + [0]
    )


def test_the_default_is_from_the_first_to_the_second():
    assert (
        distances(P, Q, paired=True)
        == distances(P, Q, "kl", paired=True)
        != distances(Q, P, paired=True)
    )
    np.testing.assert_allclose(
        distances(P, Q, "kl_reverse", paired=True), distances(Q, P, paired=True)
    )
    np.testing.assert_allclose(
        distances(P, Q, "jeffreys", paired=True),
        distances(P, Q, paired=True) + distances(Q, P, paired=True),
    )


def test_unknown_kinds_are_refused():
    message = "kind='cosine' is not known; use 'kl', "
    with pytest.raises(DataError, match=f"^{re.escape(message)}"):
        distances(P, Q, "cosine", paired=True)


def test_pairs_must_match():
    message = (
        "test has 2 tasks and train 3; pairs need as many of each, or one. For all against all "
        "leave paired=True out."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        distances(np.ones((2, 3)), np.ones((3, 3)), paired=True)


def test_matrices_agree_with_pairs():
    rng = np.random.default_rng(2)
    p, q = rng.gamma(2, 1, (4, 3)) + 0.1, rng.gamma(2, 1, (5, 3)) + 0.1
    for kind in ("kl", "hellinger", "jeffreys"):
        expected = [[distances(a, b, kind, paired=True) for b in q] for a in p]
        np.testing.assert_allclose(distances(p, q, kind), expected)
        assert (np.diag(distances(p, None, kind)) == 0).all()
