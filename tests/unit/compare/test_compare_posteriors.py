import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from taskscape.compare import distances, mean_kl, member_scales, normalise_ways
from taskscape.compare.posteriors import combine_members, read_lam
from taskscape.errors import DataError


def test_one_fit_becomes_an_ensemble_of_one():
    lam = np.ones((3, 2))
    assert read_lam(lam, "test").shape == (1, 3, 2)
    assert read_lam(SimpleNamespace(lam=lam), "test").shape == (1, 3, 2)
    assert read_lam(np.ones((4, 3, 2)), "test").shape == (4, 3, 2)


@pytest.mark.parametrize(
    ("lam", "message"),
    [
        (np.ones(3), "test has shape (3,); expected λ of shape (tasks, task-themes) or "
         "(members, tasks, task-themes) with at least 1 member and 2 task-themes."),
        (np.array([[1.0, 2.0], [1.0, -3.0]]), "test holds λ = -3 at task 1, task-theme 1; "
         "concentrations are positive and finite. Pass the lam of embedded tasks."),
        (np.array([[1.0, np.nan]]), "test holds λ = nan at task 0, task-theme 1; "
         "concentrations are positive and finite. Pass the lam of embedded tasks."),
        ("words", "test is str; expected λ as an array (tasks, task-themes) or (members, tasks, "
         "task-themes), or embedded tasks that have one as .lam."),
    ],
)  # fmt: skip
def test_what_is_no_lam_is_refused(lam, message):
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        mean_kl(lam, np.ones((2, 2)))


def test_models_of_different_shape_are_refused():
    message = "test has 3 task-themes and train 2; embed both with the same model."
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        mean_kl(np.ones((2, 3)), np.ones((2, 2)))
    message = "test has 2 members and train 1; embed both with the same ensemble."
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        distances(np.ones((2, 2, 3)), np.ones((2, 3)))


def test_no_tasks_are_refused():
    with pytest.raises(DataError, match=r"^train has no tasks\.$"):
        mean_kl(np.ones((2, 2)), np.ones((0, 2)))
    with pytest.raises(DataError, match=r"^train has no tasks\.$"):
        mean_kl(np.ones((2, 2)), iter([]))


def test_an_ensemble_averages_relative_distances():
    rng = np.random.default_rng(0)
    p, q = rng.gamma(2, 1, (2, 3, 5, 4)) + 0.1
    members = [distances(p[e], q[e]) for e in range(3)]
    expected = np.mean([d / d.mean() for d in members], axis=0)
    np.testing.assert_allclose(distances(p, q), expected)
    scales = np.array([1.0, 2.0, 3.0])
    expected = np.mean([d / s for d, s in zip(members, scales, strict=True)], axis=0)
    np.testing.assert_allclose(distances(p, q, scales=scales), expected)


def test_a_member_that_sees_no_distance_does_no_harm():
    np.testing.assert_allclose(combine_members(np.array([[0.0, 0.0], [1.0, 3.0]])), [0.25, 0.75])


def test_the_roundings_of_a_collapsed_member_do_not_count_as_distances():
    """All its tasks fall on one point; its mean distance is not 0, but 1e-15."""
    rng = np.random.default_rng(0)
    lam = np.stack([0.5 + rng.gamma(1, 1, (60, 3)), np.full((60, 3), 1.7)])
    test, train = lam[:, :9], lam[:, 9:]
    alone = mean_kl(test[0], train[0])
    expected = alone / alone.mean() / 2
    np.testing.assert_allclose(mean_kl(test, train), expected, rtol=1e-9)
    given = mean_kl(test, train, scales=member_scales(test, train))
    np.testing.assert_allclose(given, expected, rtol=1e-9)


@pytest.mark.parametrize("scales", [[1.0], [1.0, 0.0], [1.0, 1e30], [1e-310, 1.0], [10**30, 1]])
def test_wrong_scales_are_refused(scales: list[float]):
    shown = np.array2string(np.array(scales, dtype=float))
    message = (
        f"scales={shown} must be 2 typical distances between 1e-09 and 1e+12, one for each "
        "member; member_scales(test, train) gives them."
    )
    lam = 1 + np.random.default_rng(0).random((2, 3, 4))
    for measure in (mean_kl, distances, partial(distances, paired=True)):
        with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
            measure(lam, lam, scales=scales)


def test_equal_proportions_are_equal_whatever_the_number_of_classes():
    delta, share = 0.5, np.array([0.2, 0.8, 0.0])
    lam = np.stack([delta + n * share for n in (5, 10, 20)])
    assert distances(lam[0], lam[1], paired=True) > 0.1
    even = normalise_ways(lam, delta=delta)
    np.testing.assert_allclose(even, np.broadcast_to(delta + 5 * share, even.shape))
    np.testing.assert_allclose(distances(even, even), 0, atol=1e-12)


def test_normalising_keeps_tasks_that_have_that_many_classes():
    rng = np.random.default_rng(1)
    lam = 0.5 + 5 * rng.dirichlet(np.ones(4), (2, 6))
    np.testing.assert_allclose(normalise_ways(lam, delta=0.5, n_way=5), lam)


def test_normalising_with_the_wrong_prior_is_refused():
    message = (
        "λ goes down to 0.5, below delta=[1.], which no posterior does; use the delta the model "
        "was fitted with."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        normalise_ways(np.array([[0.5, 5.5]]), delta=1.0)
