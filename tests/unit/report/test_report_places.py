import numpy as np

from taskscape.report.tasks import place_tasks

RNG = np.random.default_rng(0)


def test_the_map_shows_the_plane_of_largest_variance():
    plane = RNG.normal(size=(50, 2)) * [5, 2]
    turned = np.linalg.qr(RNG.normal(size=(7, 7)))[0][:2]
    at, axes = place_tasks(plane @ turned + 3)
    apart = np.linalg.norm(plane[:, None] - plane, axis=-1)
    shown = np.linalg.norm(at[:, None] - at, axis=-1)
    np.testing.assert_allclose(shown, apart, atol=1e-9)
    assert at[:, 0].std() > at[:, 1].std()
    share = 100 * at[:, 0].var() / at.var(axis=0).sum()
    assert axes[0] == f"first direction ({share:.0f} % of the variance)"


def test_the_same_tasks_give_the_same_map():
    positions = RNG.normal(size=(20, 5)).astype(np.float32)
    np.testing.assert_array_equal(place_tasks(positions)[0], place_tasks(positions)[0])


def test_tasks_that_are_all_alike_can_be_shown():
    at, axes = place_tasks(np.full((5, 6), 1 / 6))
    assert np.isfinite(at).all()
    assert "0 %" in axes[0]
    assert place_tasks(np.ones((3, 1)))[0].shape == (3, 2)
