import re

import numpy as np
import pytest

from fit_cases import fitted_themes, small_tasks
from posterior_cases import KINDS, PRODUCT, posteriors
from taskscape.compare import distances, mean_distance, nearest, normalise_ways
from taskscape.compare.posteriors import read_posterior
from taskscape.embeddings import Embeddings
from taskscape.errors import DataError


@pytest.mark.parametrize(
    ("lam", "message"),
    [
        (np.ones(3), "test is ndarray of shape (3,); expected embedded tasks (model.embed), or λ "
         "as an array (tasks, task-themes) with at least 2 task-themes."),
        (np.array([[1.0, 2.0], [1.0, -3.0]]), "test holds -3 at task 1, column 1 of task_themes; "
         "concentrations are positive and finite. Arrays are taken for λ; where there are other "
         "factors, pass embedded tasks (model.embed)."),
        (np.array([[1.0, np.nan]]), "test holds nan at task 0, column 1 of task_themes;"),
        ("words", "test is str of shape"),
    ],
)  # fmt: skip
def test_what_is_no_posterior_is_refused(lam, message):
    with pytest.raises(DataError, match=f"^{re.escape(message)}"):
        mean_distance(lam, np.ones((2, 2)))


def test_models_of_different_shape_are_refused():
    message = "test has 3 task-themes and train 2 task-themes; embed both with the same model."
    for compare in (mean_distance, distances, lambda a, b: nearest(a, b, 1)):
        with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
            compare(np.ones((2, 3)), np.ones((2, 2)))


def test_no_tasks_are_refused():
    for train in (np.ones((0, 2)), iter([])):
        with pytest.raises(DataError, match=r"^train has no tasks\.$"):
            mean_distance(np.ones((2, 2)), train)


def test_a_product_is_the_weighted_sum_of_its_factors():
    rng = np.random.default_rng(0)
    a, b = (posteriors(rng, n, PRODUCT) for n in (5, 7))
    themes, place = PRODUCT
    nu = distances(a.values[:, :6], b.values[:, :6])
    apart = ((a.values[:, None, 6:] - b.values[:, 6:]) ** 2).sum(-1) / 2
    expected = themes.share / themes.scale * nu + place.share / place.scale * apart
    np.testing.assert_allclose(distances(a, b), expected, rtol=1e-10)


def test_factors_that_weigh_nothing_are_left_out():
    embedded = fitted_themes().embed(small_tasks(5))
    assert [f.name for f in embedded.header.factors] == ["image_themes", "position", "task_themes"]
    read = read_posterior(embedded, "test")
    assert [f.name for f in read.factors] == ["image_themes", "position"]
    assert read.values.shape[1] == sum(f.size for f in read.factors)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_the_log_normaliser(kind):
    rng = np.random.default_rng(0)
    at = posteriors(rng, 3, KINDS[kind])
    step = 1e-6 * rng.normal(size=at.values.shape)
    ends = [at.of(at.values + sign * step, at.factors).log_normaliser for sign in (1, -1)]
    np.testing.assert_allclose((at.gradient * step).sum(1), (ends[0] - ends[1]) / 2, rtol=1e-4)


def of_lam(lam, delta=0.5):
    return Embeddings.of(small_tasks(len(lam)), lam, delta=delta)


def test_equal_proportions_are_equal_whatever_the_number_of_classes():
    delta, share = 0.5, np.array([0.2, 0.8, 0.0])
    lam = np.stack([delta + n * share for n in (5, 10, 20)])
    assert distances(lam[0], lam[1], paired=True) > 0.1
    even = normalise_ways(of_lam(lam)).values
    np.testing.assert_allclose(even, np.broadcast_to(delta + 5 * share, even.shape))
    np.testing.assert_allclose(distances(even, even), 0, atol=1e-12)


def test_normalising_keeps_tasks_that_have_that_many_classes():
    rng = np.random.default_rng(1)
    lam = 0.5 + 5 * rng.dirichlet(np.ones(4), 6)
    np.testing.assert_allclose(normalise_ways(of_lam(lam), n_way=5).values, lam, rtol=1e-6)


def test_embedded_tasks_are_normalised_by_the_prior_they_name():
    embedded = fitted_themes().embed(small_tasks(9))
    even = normalise_ways(embedded, n_way=3)
    assert [f.name for f in even.header.factors] == ["task_themes"]
    np.testing.assert_allclose(even.values.sum(axis=1), 2 * 0.5 + 3)


def test_normalising_with_the_wrong_prior_is_refused():
    for delta in (None, 1.0):
        message = f"delta={delta}, and λ goes down to 0.5; give Embeddings.of the delta that"
        with pytest.raises(DataError, match=f"^{re.escape(message)}"):
            normalise_ways(of_lam(np.array([[0.5, 5.5]]), delta))
