import re
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import spearmanr

from taskscape.compare import (
    distances,
    mean_kl,
    member_agreement,
    member_scales,
    nearest,
    summarise,
)
from taskscape.errors import DataError

RNG = np.random.default_rng(0)
TEST, TRAIN = RNG.gamma(1, 2, (30, 4)) + 0.05, RNG.gamma(1, 2, (500, 4)) + 0.05


def test_mean_kl_is_the_mean_of_the_matrix():
    np.testing.assert_allclose(
        mean_kl(TEST, TRAIN), distances(TEST, TRAIN).mean(axis=1), rtol=1e-10
    )


def test_every_way_to_give_the_training_set_gives_the_same():
    whole = mean_kl(TEST, TRAIN)
    chunks = [TRAIN[:100], TRAIN[100:130], TRAIN[130:]]
    for train in (
        chunks,
        iter(chunks),
        (SimpleNamespace(lam=c) for c in chunks),
        SimpleNamespace(lam=TRAIN),
        TRAIN.tolist(),
        summarise(chunks),
    ):
        np.testing.assert_allclose(mean_kl(TEST, train), whole, rtol=1e-12)


def test_float32_is_summed_in_float64():
    train = np.tile(TRAIN, (200, 1))
    np.testing.assert_allclose(
        mean_kl(TEST, train.astype(np.float32)), mean_kl(TEST, TRAIN), rtol=1e-5
    )


def test_chunks_of_different_models_are_refused():
    message = (
        "train has chunks of 1 members and 4 task-themes, and of 1 and 3; embed all with the same "
        "model."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        mean_kl(TEST, [TRAIN, TRAIN[:, :3]])


def test_an_ensemble_has_a_mean_of_one():
    test, train = RNG.gamma(1, 2, (2, 3, 40, 4)) + 0.1
    distance = mean_kl(test, train)
    assert distance.mean() == pytest.approx(1)
    np.testing.assert_allclose(distance, distances(test, train).mean(axis=1))
    np.testing.assert_allclose(distance, mean_kl(test, train, scales=member_scales(test, train)))


def test_members_agree_as_the_ranks_of_their_distances_do():
    test, train = RNG.gamma(1, 2, (2, 3, 40, 4)) + 0.1
    every = [distances(a, b).mean(axis=1) for a, b in zip(test, train, strict=True)]
    expected = [spearmanr(every[i], every[j]).statistic for i, j in ((1, 0), (2, 0), (2, 1))]
    for known in (train, [train[:, :15], train[:, 15:]], summarise(train)):
        np.testing.assert_allclose(member_agreement(test, known), expected, atol=1e-12)
    test[1] = test[1, :1]  # all tasks on one point: it says nothing about them
    np.testing.assert_allclose(member_agreement(test, train), [0, expected[1], 0], atol=1e-12)
    assert member_agreement(TEST, TRAIN).shape == (0,)


def test_an_ensemble_cannot_be_streamed_once_without_scales():
    test, train = np.ones((2, 3, 4)), np.ones((2, 5, 4))
    with pytest.raises(DataError, match=r"^train can be read only once"):
        nearest(test, iter([train]), 1)
    nearest(test, iter([train]), 1, scales=[1.0, 1.0])
