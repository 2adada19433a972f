"""Advice after a fit: given where it is needed, and only there."""

import json
from itertools import combinations_with_replacement

import jax.numpy as jnp
import numpy as np
import pytest

from taskscape.health import Health, check_health
from taskscape.model import Themes

K, L = 4, 2


def themes(alpha: float = 2.0, L: int = L) -> Themes:
    return Themes(
        mu=jnp.zeros((K, 3)),
        Sigma=jnp.ones((K, 3)),
        alpha=jnp.full((L, K), alpha),
        delta=jnp.full(L, 0.5),
        covariance="diag",
    )


def spread_lam(n: int = 200) -> np.ndarray:
    share = np.linspace(0, 1, n)[:, None]
    return (0.5 + 5 * np.hstack([share, 1 - share])).astype(np.float32)


EVEN = np.full(K, 1 / K)


def test_a_healthy_fit_needs_no_advice():
    health = check_health(themes(), EVEN, spread_lam())
    assert health == Health((0.25,) * 4, (0.5, 0.5), 200, 51, 8.0, ())
    assert health.ok
    assert health.summary() == (
        "image-themes explain 25%, 25%, 25%, 25% of the samples\n"
        "task-themes explain 50%, 50% of the classes\n"
        "200 tasks fall on 51 distinct points (rounded to 0.1)"
    )


def test_image_themes_that_died_are_named():
    health = check_health(themes(), np.array([0.5, 0.004, 0.495, 0.001]), spread_lam())
    assert health.advice == (
        "2 of 4 image-themes are hardly used (1, 3): ask for fewer image_themes, reduce the "
        "dimensions (prepare), or try covariance='diag'.",
    )
    assert not health.ok
    assert health.summary().endswith("\n! " + health.advice[0])


def test_a_rare_image_theme_is_not_dead():
    assert check_health(themes(), np.array([0.5, 0.02, 0.47, 0.01]), spread_lam()).ok


def test_a_task_theme_that_nobody_uses_is_named():
    lam = spread_lam()
    lam[:, 0] += lam[:, 1] - 0.5
    lam[:, 1] = 0.5
    lam[:, 0] += np.linspace(0, 5, 200)
    assert check_health(themes(), EVEN, lam).advice == (
        "1 of 2 task-themes are hardly used (1): ask for fewer task_themes, or try more restarts.",
    )


def test_concentrations_that_ran_away_are_told():
    health = check_health(themes(300.0), EVEN, spread_lam())
    assert health.largest_alpha == 1200
    assert health.advice == (
        "a task-theme has a total concentration of 1200: its classes are all alike to the model; "
        "raise kappa, or use more image_themes.",
    )


def test_a_collapse_is_told_once_there_are_tasks_enough():
    lam = np.tile(np.array([[3.0, 3.01]], np.float32), (1000, 1))
    assert check_health(themes(), EVEN, lam).advice == (
        "1,000 tasks fall on 1 points, so distances mean little: prepare the features (power, "
        "unit length, principal components), or ask for more themes.",
    )
    assert check_health(themes(), EVEN, lam[:50]).ok


@pytest.mark.parametrize(("distinct", "ok"), [(11, True), (10, False)])
def test_ten_points_are_a_collapse_where_there_could_be_many(distinct: int, ok: bool):
    y = np.random.default_rng(0).permutation(list(combinations_with_replacement(range(4), 5)))
    lam = 0.5 + np.stack([np.bincount(row, minlength=4) for row in y[:distinct]])
    lam = np.repeat(lam.astype(np.float32), 50, axis=0)
    assert check_health(themes(L=4), EVEN, lam).ok == ok


def test_few_points_are_no_collapse_where_there_cannot_be_more():
    lam = np.repeat(spread_lam(6), 50, axis=0)  # five classes, each in one of two themes
    health = check_health(themes(), EVEN, lam)
    assert (health.distinct, health.ok) == (6, True)
    assert check_health(themes(L=1), EVEN, np.full((200, 1), 5.5, np.float32)).ok


def test_health_is_plain_values():
    health = check_health(themes(), EVEN, spread_lam())
    assert json.loads(json.dumps(health.to_json())) == {
        "image_theme_usage": [0.25] * 4,
        "task_theme_usage": [0.5, 0.5],
        "n_tasks": 200,
        "distinct": 51,
        "largest_alpha": 8.0,
        "advice": [],
    }
