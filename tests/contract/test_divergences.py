"""Every divergence keeps the same contract."""

import numpy as np
import pytest

from taskscape.compare import DIVERGENCES, distances, divergence_with_error

RNG = np.random.default_rng(0)
L, K = 4, 6
P, Q = RNG.gamma(1, 2, (5, L)) + 0.1, RNG.gamma(1, 2, (7, L)) + 0.1
ALPHA = RNG.gamma(1, 2, (L, K)) + 0.1

pytestmark = pytest.mark.parametrize("kind", DIVERGENCES)


def test_a_task_is_at_no_distance_from_itself(kind):
    np.testing.assert_allclose(distances(P, P, kind, alpha=ALPHA, paired=True), 0, atol=1e-7)
    np.testing.assert_allclose(np.diag(distances(P, P, kind, alpha=ALPHA)), 0, atol=1e-7)
    assert (np.diag(distances(P, None, kind, alpha=ALPHA)) == 0).all()


def test_distances_are_positive_and_bounded(kind):
    found = distances(P, Q, kind, alpha=ALPHA)
    assert found.shape == (5, 7)
    assert (found > 0).all()
    assert (found <= DIVERGENCES[kind].most).all()


def test_symmetry_is_as_announced(kind):
    there, back = (distances(a, b, kind, alpha=ALPHA) for a, b in ((P, Q), (Q, P)))
    assert np.allclose(there, back.T, rtol=1e-7) == DIVERGENCES[kind].symmetric


def test_pairs_are_entries_of_the_matrix(kind):
    options = {"alpha": ALPHA, "n_samples": 2000}
    matrix = distances(P, Q, kind, **options)
    np.testing.assert_allclose(
        distances(P, Q[:5], kind, **options, paired=True), np.diag(matrix[:, :5])
    )


def test_relabelling_themes_changes_nothing(kind):
    order = RNG.permutation(L)
    before = divergence_with_error(P, Q[:5], kind, alpha=ALPHA, n_samples=4000)
    after = divergence_with_error(
        P[:, order], Q[:5, order], kind, alpha=ALPHA[order], n_samples=4000
    )
    slack = 5 * (before.stderr + after.stderr) + 1e-9
    assert (np.abs(before.value - after.value) <= slack).all()


def test_a_standard_error_is_given_where_announced(kind):
    found = divergence_with_error(P, Q[:5], kind, alpha=ALPHA)
    assert (found.stderr > 0).all() == DIVERGENCES[kind].has_stderr


def test_ensembles_average_relative_distances(kind):
    p, q, alpha = np.stack([P, P[::-1]]), np.stack([Q, Q[::-1]]), np.stack([ALPHA, ALPHA + 1])
    members = [distances(p[e], q[e], kind, alpha=alpha[e]) for e in range(2)]
    expected = np.mean([d / d.mean() for d in members], axis=0)
    np.testing.assert_allclose(distances(p, q, kind, alpha=alpha), expected, rtol=1e-9)
