"""Every rule, with every source of distances, keeps the same contract."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskscape.compare import distances
from taskscape.select import RULES, Selection, select
from taskscape.similarity import DistanceSource, MatrixSource, PosteriorSource

RNG = np.random.default_rng(0)
N_TEST, N_TRAIN = 9, 120
# few distinct tasks, as hard assignments of classes to themes give
KINDS = RNG.gamma(1, 2, (25, 4)) + 0.1
TEST = KINDS[RNG.integers(25, size=N_TEST)] + 0.01
TRAIN = KINDS[RNG.integers(25, size=N_TRAIN)]
CLASSES = np.array([RNG.choice(12, 4, replace=False) for _ in range(N_TRAIN)])
SOURCES = {
    "posterior": PosteriorSource,
    "matrix": lambda test, train: MatrixSource(distances(test, train)),
}


def select_by(source, n, rule, **options):
    return select(None, None, n, rule, similarity=source, **options)


every_rule = pytest.mark.parametrize("rule", RULES)
every_source = pytest.mark.parametrize("source", SOURCES)


@every_source
def test_sources_agree_on_their_protocol(source):
    built = SOURCES[source](TEST, TRAIN)
    assert isinstance(built, DistanceSource)
    tests, trains = np.arange(N_TEST), np.arange(N_TRAIN)
    block = built.block(tests, trains)
    np.testing.assert_allclose(built.matrix(), block)
    np.testing.assert_allclose(built.mean_distance(), block.mean(axis=1), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(built.means(), block.mean(axis=0), rtol=1e-9, atol=1e-9)
    unused = RNG.random(N_TRAIN) < 0.5
    keys = RNG.permutation(N_TRAIN).astype(np.uint64)
    neighbours = built.nearest(tests, 30, unused, keys)
    assert unused[neighbours.indices].all()
    expected = np.sort(np.where(unused, block, np.inf), axis=1)[:, :30]
    np.testing.assert_allclose(neighbours.distances, expected, atol=1e-9)
    same = TRAIN[neighbours.indices[:, 1:]] == TRAIN[neighbours.indices[:, :-1]]
    in_key_order = keys[neighbours.indices[:, 1:]] > keys[neighbours.indices[:, :-1]]
    assert in_key_order[same.all(axis=-1)].all()
    other = built.nearest(tests, N_TRAIN, unused, keys[::-1].copy())
    same = TRAIN[other.indices[:, 1:]] == TRAIN[other.indices[:, :-1]]
    in_key_order = keys[::-1][other.indices[:, 1:]] > keys[::-1][other.indices[:, :-1]]
    assert in_key_order[same.all(axis=-1)].all()
    plain = built.nearest(tests, 30)
    np.testing.assert_allclose(plain.distances, np.sort(block, axis=1)[:, :30], atol=1e-9)


@every_rule
@every_source
def test_indices_are_distinct_and_real(rule, source):
    for n in (1, 10, 60, N_TRAIN):
        chosen = select_by(SOURCES[source](TEST, TRAIN), n, rule, train_classes=CLASSES)
        assert len(chosen) == n
        assert len(set(chosen.indices.tolist())) == n
        assert chosen.indices.min() >= 0
        assert chosen.indices.max() < N_TRAIN
        assert np.isfinite(chosen.scores).all()
        assert len(chosen.why) == n


@every_rule
def test_the_same_seed_gives_the_same(rule):
    first, again, other = (
        select_by(PosteriorSource(TEST, TRAIN), 30, rule, seed=seed, train_classes=CLASSES)
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first.indices, again.indices)
    assert not np.array_equal(first.indices, other.indices)


@every_rule
@every_source
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 40), known=st.booleans())
def test_the_order_of_the_input_plays_no_part(rule, source, seed, n, known):
    rng = np.random.default_rng(seed)
    a, b = rng.permutation(N_TEST), rng.permutation(N_TRAIN)
    known = known or RULES[rule].needs_classes

    def content(test, train, classes):
        chosen = select_by(SOURCES[source](test, train), n, rule, seed=seed, train_classes=classes)
        parts = [np.round(train[chosen.indices], 9)]
        if classes is not None:
            parts.append(np.sort(classes[chosen.indices], axis=1))
        return sorted(map(tuple, np.concatenate(parts, axis=1).tolist()))

    before = content(TEST, TRAIN, CLASSES if known else None)
    assert content(TEST[a], TRAIN[b], CLASSES[b] if known else None) == before


@every_rule
def test_it_is_written_and_read(rule, tmp_path):
    chosen = select_by(PosteriorSource(TEST, TRAIN), 10, rule, train_classes=CLASSES)
    chosen.save(tmp_path / "selection.json")
    back = Selection.load(tmp_path / "selection.json")
    assert back.to_dict() == chosen.to_dict()
    assert repr(back) == f"Selection(10 tasks, rule={rule!r})"
    np.testing.assert_array_equal(back.indices, chosen.indices)
    np.testing.assert_array_equal(back.scores, chosen.scores)
    assert back.rule == rule
    assert rule in back.summary()
