import numpy as np

from taskscape.report.tasks import place_tasks

RNG = np.random.default_rng(0)


def test_the_map_shows_the_plane_of_largest_variance():
    plane = RNG.normal(size=(50, 2)) * [5, 2]
    turned = np.linalg.qr(RNG.normal(size=(7, 7)))[0][:2]
    places = place_tasks(plane @ turned + 3)
    apart = np.linalg.norm(plane[:, None] - plane, axis=-1)
    shown = np.linalg.norm(places.at[:, None] - places.at, axis=-1)
    np.testing.assert_allclose(shown, apart, atol=1e-9)
    assert places.at[:, 0].std() > places.at[:, 1].std()
    share = 100 * places.at[:, 0].var() / places.at.var(axis=0).sum()
    assert places.axes[0] == f"first direction ({share:.0f} % of the variance)"


def test_the_same_tasks_give_the_same_map():
    positions = RNG.normal(size=(20, 5)).astype(np.float32)
    np.testing.assert_array_equal(place_tasks(positions).at, place_tasks(positions).at)


def test_tasks_that_are_all_alike_can_be_shown():
    places = place_tasks(np.full((5, 6), 1 / 6))
    assert np.isfinite(places.at).all()
    assert "0 %" in places.axes[0]
    assert place_tasks(np.ones((3, 1))).at.shape == (3, 2)
