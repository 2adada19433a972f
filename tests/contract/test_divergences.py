"""Every divergence keeps the same contract."""

import numpy as np
import pytest

from posterior_cases import PRODUCT, posteriors
from taskscape.compare import (
    DIVERGENCES,
    distances,
    mean_distance,
    nearest,
)
from taskscape.embeddings import Factor, Posterior
from taskscape.select import select
from taskscape.similarity import distances_between

RNG = np.random.default_rng(0)
L = 4
P, Q = RNG.gamma(1, 2, (5, L)) + 0.1, RNG.gamma(1, 2, (7, L)) + 0.1

pytestmark = pytest.mark.parametrize("kind", DIVERGENCES)


def test_a_task_is_at_no_distance_from_itself(kind):
    np.testing.assert_allclose(distances(P, P, kind, paired=True), 0, atol=1e-7)
    np.testing.assert_allclose(np.diag(distances(P, P, kind)), 0, atol=1e-7)
    assert (np.diag(distances(P, None, kind)) == 0).all()


def test_distances_are_positive_and_bounded(kind):
    computed = distances(P, Q, kind)
    assert computed.shape == (5, 7)
    assert (computed > 0).all()
    assert (computed <= DIVERGENCES[kind].most).all()


def test_symmetry_is_as_announced(kind):
    there, back = (distances(a, b, kind) for a, b in ((P, Q), (Q, P)))
    assert np.allclose(there, back.T, rtol=1e-7) == DIVERGENCES[kind].symmetric


def test_pairs_are_entries_of_the_matrix(kind):
    matrix = distances(P, Q, kind)
    np.testing.assert_allclose(distances(P, Q[:5], kind, paired=True), np.diag(matrix[:, :5]))


def test_relabelling_themes_changes_nothing(kind):
    order = RNG.permutation(L)
    after = distances(P[:, order], Q[:, order], kind)
    np.testing.assert_allclose(distances(P, Q, kind), after, atol=1e-9)


def test_factors_are_summed_by_weight(kind):
    members = [distances(P, Q, kind), distances(P[::-1], Q[::-1], kind)]
    factors = tuple(
        Factor(f"task_themes_{i}", "dirichlet", L, 0.5, scale) for i, scale in ((1, 2.0), (2, 0.5))
    )
    p, q = (Posterior.of(np.concatenate([x, x[::-1]], axis=1), factors) for x in (P, Q))
    computed = distances(p, q, kind)
    if kind == "hellinger":  # made of the sum, not summed
        members = [-np.log1p(-(d**2)) for d in members]
        computed = -np.log1p(-(computed**2))
    np.testing.assert_allclose(computed, members[0] / 4 + members[1], rtol=1e-9)


def test_positions_are_told_apart(kind):
    rng = np.random.default_rng(1)
    a, b = (posteriors(rng, n, PRODUCT) for n in (4, 6))
    computed = distances(a, b, kind)
    assert ((computed > 0) & (computed <= DIVERGENCES[kind].most)).all()
    pairs = [[distances(a[[i]], b[[j]], kind, paired=True)[0] for j in range(6)] for i in range(4)]
    np.testing.assert_allclose(computed, pairs, rtol=1e-9)
    there, back = distances(a, b, kind), distances(b, a, kind).T
    assert np.allclose(there, back) == DIVERGENCES[kind].symmetric


def test_whatever_takes_a_similarity_measure_takes_the_divergence(kind):
    similarity = f"task_themes:{kind}"
    matrix, source = distances(P, Q, kind), distances_between(P, Q, similarity)
    np.testing.assert_allclose(source.matrix(), matrix)
    np.testing.assert_allclose(source.means(), matrix.mean(axis=0))
    for computed in (source.mean_distance(), mean_distance(P, [Q[:3], Q[3:]], kind=kind)):
        np.testing.assert_allclose(computed, matrix.mean(axis=1))
    for near in (source.nearest(np.arange(5), 3), nearest(P, [Q[:3], Q[3:]], 3, kind=kind)):
        np.testing.assert_allclose(near.distances, np.sort(matrix, axis=1)[:, :3])
    assert select(P[:1], Q, 1, "nearest", similarity=similarity).indices == matrix[0].argmin()
