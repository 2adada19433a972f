"""Advice after a fit: given where it is needed, and only there."""

import json
from itertools import combinations_with_replacement

import jax.numpy as jnp
import numpy as np
import pytest

from taskscape.model import Themes
from taskscape.themes.health import Health, check_health

K, L = 4, 2
EVEN = np.full(K, 1 / K)
UNEVEN = np.array([2.0, 1, 0.5, 0.5])


def themes(total: float = 8.0, L: int = L) -> Themes:
    """Task-themes that all differ, with equal totals."""
    alpha = np.stack([np.roll(UNEVEN, shift) for shift in range(L)]) * total / UNEVEN.sum()
    return themes_with(alpha)


def themes_with(alpha: np.ndarray) -> Themes:
    return Themes(
        mu=jnp.zeros((K, 3)),
        Sigma=jnp.stack([jnp.eye(3)] * K),
        alpha=jnp.asarray(alpha),
        delta=jnp.full(len(alpha), 0.5),
    )


def spread_lam(n: int = 200) -> np.ndarray:
    share = np.linspace(0, 1, n)[:, None]
    return (0.5 + 5 * np.hstack([share, 1 - share])).astype(np.float32)


def counted_lam(L: int = 4) -> np.ndarray:
    """λ of all tasks of five classes that belong to one task-theme each."""
    members = combinations_with_replacement(range(L), 5)
    return np.stack([0.5 + np.bincount(row, minlength=L) for row in members]).astype(np.float32)


def check(
    lam: np.ndarray,
    of: Themes | None = None,
    image: np.ndarray = EVEN,
    task: np.ndarray | None = None,
    **more: object,
) -> Health:
    even = np.full(lam.shape[1], 1 / lam.shape[1])
    return check_health(
        themes(L=lam.shape[1]) if of is None else of, image, even if task is None else task, lam,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_healthy_fit_needs_no_advice():
    health = check(spread_lam())
    assert health == Health(
        image_theme_usage=(0.25,) * 4,
        task_theme_usage=(0.5, 0.5),
        tested_on="tasks",
        n_tasks=200,
        distinct=51,
        rank=1,
        largest_share=0.5,
        duplicates=0,
        largest_alpha=8.0,
        agreement=None,
        advice=(),
    )
    assert health.ok
    assert health.summary() == (
        "image-themes explain 25%, 25%, 25%, 25% of the samples\n"
        "task-themes explain 50%, 50% of the classes\n"
        "200 tasks fall on 51 distinct points (rounded to 0.1), in 1 of 1 directions"
    )


def test_the_summary_says_which_tasks_were_evaluated_and_how_far_fits_agree():
    health = check(spread_lam(), tested_on="tasks of held-out classes", agreement=0.87654)
    assert health.ok
    assert health.agreement == 0.8765
    assert health.summary() == (
        "image-themes explain 25%, 25%, 25%, 25% of the samples\n"
        "task-themes explain 50%, 50% of the classes\n"
        "200 tasks of held-out classes fall on 51 distinct points (rounded to 0.1), in 1 of 1 "
        "directions\n"
        "the fits agree on distances with a rank correlation of 0.88"
    )


# -- themes -----------------------------------------------------------------------------------


def test_image_themes_that_died_are_named():
    health = check(spread_lam(), image=np.array([0.5, 0.004, 0.495, 0.001]))
    assert health.advice == (
        "2 of 4 image-themes are hardly used (1, 3): ask for fewer image_themes, or reduce "
        "the dimensions (prepare).",
    )
    assert not health.ok
    assert health.summary().endswith("\n! " + health.advice[0])


def test_a_rare_image_theme_is_not_dead():
    assert check(spread_lam(), image=np.array([0.5, 0.02, 0.47, 0.01])).ok


def test_a_task_theme_that_no_class_learned_from_uses_is_named():
    assert check(spread_lam(), task=np.array([0.995, 0.005])).advice == (
        "1 of 2 task-themes are hardly used (1): ask for fewer task_themes, or try more restarts.",
    )
    assert check(spread_lam(), task=np.array([0.98, 0.02])).ok  # however unseen tasks use it


def test_task_themes_that_are_the_same_are_told():
    alpha = np.array(themes(L=4).alpha)
    alpha[1], alpha[3] = 1.04 * alpha[0], alpha[2]
    health = check(counted_lam(), themes_with(alpha))
    assert health.duplicates == 2
    assert health.advice == (
        "2 pairs of task-themes are the same: ask for fewer task_themes, or try more restarts.",
    )
    alpha[1], alpha[3, 0] = 1.06 * alpha[0], 0.9 * alpha[2, 0]
    assert check(counted_lam(), themes_with(alpha)).ok


def test_concentrations_that_ran_away_are_told():
    health = check(spread_lam(), themes(1200.0))
    assert health.largest_alpha == 1200
    assert health.advice == (
        "a task-theme has a total concentration of 1200: its classes are all alike to the model; "
        "raise kappa, or use more image_themes.",
    )


# -- tasks ------------------------------------------------------------------------------------


def test_a_collapse_is_told_once_there_are_tasks_enough():
    lam = np.tile(np.array([[3.0, 3.01]], np.float32), (1000, 1))
    assert check(lam).advice == (
        "1,000 tasks fall on 1 points, so task-themes hardly tell them apart: prepare the features "
        "(power, unit length, principal components), or ask for more themes.",
    )
    assert check(lam[:99]).ok


@pytest.mark.parametrize(("distinct", "ok"), [(11, True), (10, False)])
def test_ten_points_are_a_collapse_where_there_could_be_many(distinct: int, ok: bool):
    lam = np.random.default_rng(0).permutation(counted_lam())[:distinct]
    assert check(np.repeat(lam, 50, axis=0)).ok == ok


def test_few_points_are_no_collapse_where_there_cannot_be_more():
    health = check(np.repeat(spread_lam(6), 50, axis=0))  # five classes, each in one of two themes
    assert (health.distinct, health.ok) == (6, True)
    alone = check(np.full((200, 1), 5.5, np.float32))
    assert (alone.rank, alone.largest_share, alone.ok) == (0, 1.0, True)


def test_unseen_classes_that_share_one_task_theme_are_told():
    share = np.linspace(0.85, 1, 200)[:, None]
    lam = (0.5 + 5 * np.hstack([share, 1 - share])).astype(np.float32)
    health = check(lam, tested_on="tasks of held-out classes")
    assert health.largest_share == pytest.approx(0.925, abs=1e-5)
    assert health.advice == (
        "92% of the classes in tasks of held-out classes belong to one task-theme, so such tasks "
        "are hardly told apart: ask for more image_themes and task_themes, or prepare the "
        "features otherwise.",
    )
    assert check(lam[:99]).ok
    less = (0.5 + 5 * np.hstack([share - 0.03, 1.03 - share])).astype(np.float32)
    assert check(less).ok


def test_tasks_that_vary_in_few_directions_are_told():
    low = spread_lam()
    lam = np.full((200, 6), 0.5, np.float32)
    lam[:, :2] = low
    health = check(lam, themes_with(np.random.default_rng(0).uniform(1, 2, (6, K))))
    assert health.rank == 1
    assert health.advice == (
        "tasks vary in only 1 of 5 directions: ask for fewer task_themes, or try more restarts.",
    )
    both = np.hstack([low, low[::-1] ** 2 / 6, np.full((200, 1), 0.5)]).astype(np.float32)
    half = check(both, themes_with(np.random.default_rng(0).uniform(1, 2, (5, K))))
    assert (half.rank, half.ok) == (2, True)  # of 4


def test_the_number_of_classes_of_a_task_is_no_direction():
    ways = np.repeat([2, 5, 10, 20], 50)[:, None]
    lam = ways * np.array([[0.6, 0.4]])  # the same kinds of classes throughout
    assert check(lam.astype(np.float32)).rank == 0


def test_a_class_in_a_hundred_is_a_direction_and_less_is_none():
    for step, rank in ((0.03, 1), (0.01, 0)):
        lam = np.tile([[3.0, 3.0]], (200, 1))
        lam[::2] += [step, -step]
        lam = lam - [step / 2, -step / 2]
        assert check(lam.astype(np.float32)).rank == rank


def test_fits_that_do_not_confirm_each_other_are_told():
    assert check(spread_lam(), agreement=0.4321).advice == (
        "the fits agree on distances with a rank correlation of 0.43 only: trust the ensemble "
        "rather than a single fit, and give it more members.",
    )
    assert check(spread_lam(), agreement=0.5).ok


# -- plain values -----------------------------------------------------------------------------


def test_health_is_plain_values():
    health = check(spread_lam(), agreement=np.float64(0.75).item())
    assert json.loads(json.dumps(health.to_dict())) == {
        "image_theme_usage": [0.25] * 4,
        "task_theme_usage": [0.5, 0.5],
        "tested_on": "tasks",
        "n_tasks": 200,
        "distinct": 51,
        "rank": 1,
        "largest_share": 0.5,
        "duplicates": 0,
        "largest_alpha": 8.0,
        "agreement": 0.75,
        "advice": [],
    }
