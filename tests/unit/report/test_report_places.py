import numpy as np
import pytest

from taskscape.report.tasks import place_tasks

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("L", "kind"), [(1, "line"), (2, "line"), (3, "triangle"), (4, "projection"), (9, "projection")]
)
def test_pure_tasks_stand_at_the_corners(L, kind):
    mixture = np.concatenate([np.eye(L), RNG.dirichlet(np.ones(L), 50)])
    places = place_tasks(mixture, seed=0)
    assert places.kind == kind
    axes = 1 if kind == "line" else 2
    away = (places.flat[:L] - places.flat_corners)[:, :axes]
    assert np.abs(away).max() <= 0.03 or L == 1
    assert (places.solid is not None) == (L == 4)


def test_four_themes_make_a_tetrahedron_of_equal_edges():
    places = place_tasks(RNG.dirichlet(np.ones(4), 30), seed=0)
    corners = places.solid_corners
    edges = np.linalg.norm(corners[:, None] - corners[None], axis=-1)[~np.eye(4, dtype=bool)]
    np.testing.assert_allclose(edges, 1.0)
    assert places.solid.shape == (30, 3)


def test_the_same_seed_gives_the_same_map_and_equal_tasks_do_not_hide_each_other():
    mixture = np.repeat([[0.2, 0.3, 0.5]], 20, axis=0)
    first, again = (place_tasks(mixture, seed=3).flat for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(first, axis=0)) == 20


def test_tasks_that_are_all_alike_can_be_projected():
    places = place_tasks(np.full((5, 6), 1 / 6), seed=0)
    assert np.isfinite(places.flat).all()
    assert "0 %" in places.axes[0]
