import re

import numpy as np
import pytest
from scipy.stats import spearmanr

from posterior_cases import ENSEMBLE, KINDS, posteriors
from taskscape.compare import distances, mean_distance, member_agreement
from taskscape.embeddings import Sums
from taskscape.errors import DataError

RNG = np.random.default_rng(0)
TEST, TRAIN = RNG.gamma(1, 2, (30, 4)) + 0.05, RNG.gamma(1, 2, (500, 4)) + 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_distance_is_the_mean_of_the_matrix(kind):
    test, train = (posteriors(RNG, n, KINDS[kind]) for n in (20, 300))
    expected = distances(test, train).mean(axis=1)
    np.testing.assert_allclose(mean_distance(test, train), expected, rtol=1e-9)


def test_every_way_to_give_the_training_set_gives_the_same():
    whole = mean_distance(TEST, TRAIN)
    chunks = [TRAIN[:100], TRAIN[100:130], TRAIN[130:]]
    known = posteriors(RNG, 1, KINDS["task-themes"])
    sums = Sums.of(known.of(TRAIN, known.factors))
    for train in (chunks, iter(chunks), TRAIN.tolist(), sums):
        np.testing.assert_allclose(mean_distance(TEST, train), whole, rtol=1e-12)


def test_float32_is_summed_in_float64():
    train = np.tile(TRAIN, (200, 1))
    np.testing.assert_allclose(
        mean_distance(TEST, train.astype(np.float32)), mean_distance(TEST, TRAIN), rtol=1e-5
    )


def test_chunks_of_different_models_are_refused():
    message = (
        "a chunk of train has 3 task-themes and another 4 task-themes; embed both with the same "
        "model."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        mean_distance(TEST, [TRAIN, TRAIN[:, :3]])


def test_fits_agree_as_the_ranks_of_their_distances_do():
    test, train = (posteriors(RNG, n, ENSEMBLE) for n in (40, 60))
    alone = [distances(*(p.only([f]) for p in (test, train))).mean(axis=1) for f in ENSEMBLE]
    expected = [spearmanr(*alone).statistic]
    for known in (train, [train[:15], train[15:]], Sums.of(train)):
        np.testing.assert_allclose(member_agreement(test, known), expected, atol=1e-12)
    test.values[:, :4] = test.values[0, :4]  # all tasks on one point: it says nothing about them
    flat = test.of(test.values, ENSEMBLE)
    np.testing.assert_allclose(member_agreement(flat, train), [0], atol=1e-12)
    assert member_agreement(TEST, TRAIN).shape == (0,)
