"""Rows on the host become the samples that a learner sees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meta_cases import toy_pool, toy_tasks
from taskscape.errors import DataError
from taskscape.meta import Shots
from taskscape.meta.episodes import EpisodeRows, TaskFeed, gather, rows_of
from taskscape.pools import ClassPool
from taskscape.tasks import make_tasks, sample_tasks


def one(rows: EpisodeRows, task: int) -> EpisodeRows:
    return jax.tree.map(lambda r: r[task], rows)


def test_gathered_on_the_device_as_on_the_host() -> None:
    pool = toy_pool()
    tasks = toy_tasks(pool, "train", 5, n_way=(2, 4))
    expected = next(tasks.episodes(5))
    for t in range(5):
        episode = gather(jnp.asarray(pool.samples), one(rows_of(tasks), t))
        np.testing.assert_array_equal(episode.support.class_mask, expected.class_mask[t])
        for result, x, mask in (
            (episode.support, expected.support[t], expected.support_mask[t]),
            (episode.query, expected.query[t], expected.query_mask[t]),
        ):
            np.testing.assert_array_equal(result.mask, mask.ravel())
            np.testing.assert_array_equal(result.x[result.mask], x[mask])
            np.testing.assert_array_equal(result.y.reshape(mask.shape)[:, 0], np.arange(len(mask)))


def test_pixels_run_from_0_to_1() -> None:
    pool = ClassPool.from_arrays(
        np.tile(np.arange(4, dtype=np.uint8)[:, None, None] * 85, (2, 3, 3)), np.repeat([0, 1], 4)
    )
    tasks = sample_tasks(pool, 1, n_way=2, n_shot=1, n_query=3)
    episode = gather(jnp.asarray(pool.samples), one(rows_of(tasks), 0))
    seen = np.concatenate([episode.support.x, episode.query.x]).ravel()
    np.testing.assert_allclose(np.unique(seen), [0, 1 / 3, 2 / 3, 1], rtol=1e-6)


def test_a_list_is_shown_once_an_epoch_in_another_order() -> None:
    tasks = toy_tasks(toy_pool(), "train", 6)
    feed, everything = TaskFeed(tasks, seed=3), rows_of(tasks).support
    shown = feed.rows(0, 15).support
    known = {row.tobytes(): t for t, row in enumerate(everything)}
    order = [known[row.tobytes()] for row in shown]
    assert sorted(order[:6]) == sorted(order[6:12]) == list(range(6))
    assert order[:6] != order[6:12]
    np.testing.assert_array_equal(feed.rows(4, 9).support, shown[4:9])  # whatever was asked before


def test_fresh_samples_keep_the_classes() -> None:
    tasks = toy_tasks(toy_pool(), "train", 1)
    feed = TaskFeed(tasks, seed=0, fresh_samples=True)
    first, second = feed.rows(0, 2).support
    assert (first != second).any()
    np.testing.assert_array_equal(first[:, 0] // 16, second[:, 0] // 16)  # 16 samples a class
    assert tasks.redrawn(0) is tasks


def test_errors_say_what_to_do() -> None:
    pool = toy_pool()
    with pytest.raises(DataError, match="n_query=15"):
        rows_of(sample_tasks(pool, 2, n_way=2, n_shot=1))
    listed = make_tasks(pool, [[0, 1]], support=np.zeros((1, 2, 1), int))
    with pytest.raises(DataError, match="cannot be drawn again"):
        listed.redrawn(1)
    with pytest.raises(DataError, match="label 2; n_way=2 allows 0 to 1"):
        Shots.of(np.zeros((2, 3)), [0, 2], n_way=2)
    with pytest.raises(DataError, match="one label >= 0 for each of the 2"):
        Shots.of(np.zeros((2, 3)), [0], n_way=2)
