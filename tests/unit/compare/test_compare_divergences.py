import re

import numpy as np
import pytest

from posterior_cases import PRODUCT, posteriors
from taskscape.compare import distances, divergence_with_error, theme_cost
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


def test_emd_needs_alpha():
    message = (
        "kind='emd' needs alpha, the concentrations of the task-themes (L, K), for the cost of "
        "moving between themes. Pass alpha=model.alpha_."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        distances(P, Q, "emd", paired=True)
    message = "alpha has shape (2, 5); expected positive concentrations (3, K), or (1, 3, K)"
    with pytest.raises(DataError, match=f"^{re.escape(message)}"):
        distances(P, Q, "emd", alpha=np.ones((2, 5)), paired=True)


def test_what_compares_dirichlets_alone_says_so():
    tasks = posteriors(np.random.default_rng(0), 3, PRODUCT)
    message = "kind='jensen_shannon' compares Dirichlets alone, and position is none; pass one"
    with pytest.raises(DataError, match=f"^{re.escape(message)}"):
        distances(tasks, tasks, "jensen_shannon")


def test_pairs_must_match():
    message = (
        "test has 2 tasks and train 3; pairs need as many of each, or one. For all against all "
        "leave paired=True out."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        distances(np.ones((2, 3)), np.ones((3, 3)), paired=True)


def test_theme_cost_is_a_metric():
    alpha = np.random.default_rng(0).gamma(1, 1, (5, 4)) + 0.1
    cost = theme_cost(alpha)
    np.testing.assert_allclose(cost, cost.T)
    assert (np.diag(cost) == 0).all()
    assert (cost[:, :, None] <= cost[:, None] + cost.T[None] + 1e-12).all()


def test_the_standard_error_of_jensen_shannon_shrinks_with_the_sample():
    rough = divergence_with_error(P, Q, "jensen_shannon", n_samples=500)
    fine = divergence_with_error(P, Q, "jensen_shannon", n_samples=50_000)
    assert fine.stderr < rough.stderr / 5
    assert abs(rough.value - fine.value) < 5 * rough.stderr
    assert divergence_with_error(P, Q, "kl").stderr == 0


def test_jensen_shannon_depends_on_the_seed_and_nothing_else():
    first = distances(P, Q, "jensen_shannon", seed=1, paired=True)
    assert distances(P, Q, "jensen_shannon", seed=1, paired=True) == first
    assert distances(P, Q, "jensen_shannon", seed=2, paired=True) != first
    np.testing.assert_allclose(
        distances(Q, P, "jensen_shannon", seed=1, paired=True), first, rtol=1e-12
    )


def test_jensen_shannon_survives_tiny_concentrations():
    tiny = np.array([1e-3, 1e-3, 5.0])
    value = distances(tiny, tiny[::-1].copy(), "jensen_shannon", paired=True)
    assert 0.68 < value <= np.log(2)


def test_matrices_agree_with_pairs():
    rng = np.random.default_rng(2)
    p, q = rng.gamma(2, 1, (4, 3)) + 0.1, rng.gamma(2, 1, (5, 3)) + 0.1
    for kind in ("kl", "hellinger", "jeffreys"):
        expected = [[distances(a, b, kind, paired=True) for b in q] for a in p]
        np.testing.assert_allclose(distances(p, q, kind), expected)
        assert (np.diag(distances(p, None, kind)) == 0).all()
