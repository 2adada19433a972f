"""The complete Omniglot and mini-ImageNet, against the counts that are known of them."""

import os
from pathlib import Path

import numpy as np
import pytest

from taskscape.pools import POOLS, LookAlikeWarning, join_pools, load_pool

pytestmark = pytest.mark.real_data


def _need(name: str) -> None:
    if POOLS[name].locate() is None:
        at = os.environ.get("TASKSCAPE_DATA", "not set")
        pytest.skip(f"no {name}: put it in a folder and set TASKSCAPE_DATA to that (now: {at})")


def test_omniglot_has_its_known_counts(own_cache: Path) -> None:
    _need("omniglot")
    pool = load_pool("omniglot")
    train, test = pool.split("train"), pool.split("test")
    assert (len(train), len(test)) == (964, 659)
    assert train.groups is not None
    assert test.groups is not None
    assert (len(set(train.groups)), len(set(test.groups))) == (30, 20)
    assert not set(train.groups) & set(test.groups)
    assert set(pool.counts.tolist()) == {20}
    assert pool.sample_shape == (28, 28)
    assert pool.n_samples == 32_460

    # Ink is bright and rare, paper is zero.
    pixels = pool.take(np.arange(0, pool.n_samples, 100))
    assert 0.02 < pixels.mean() < 0.2
    assert np.median(pixels) == 0
    assert pixels.max() > 0.9
    assert len(list((own_cache / "pools").iterdir())) == 1


def test_mini_imagenet_has_its_known_counts() -> None:
    _need("mini_imagenet")
    pool = load_pool("mini_imagenet")
    assert [len(pool.split(s)) for s in ("train", "val", "test")] == [64, 16, 20]
    assert len(load_pool("mini_imagenet", split="train+val")) == 80
    assert set(pool.counts.tolist()) == {600}
    assert pool.sample_shape == (640,)
    assert all(name.startswith(("n0", "n1")) for name in pool.class_names)
    assert pool.take(np.array([0, 59_999])).dtype == np.float32


@pytest.mark.slow
@pytest.mark.usefixtures("shared_cache")
def test_scripts_that_letters_and_omniglot_share_are_named() -> None:
    _need("omniglot")
    with pytest.warns(LookAlikeWarning) as caught:
        pool = load_pool("letters+omniglot")
    assert len(pool) == 1311 + 1623
    (said,) = [str(warning.message) for warning in caught]
    for script in ("Greek", "Armenian", "Tifinagh", "Arabic", "Georgian", "N'Ko"):
        assert repr(script) in said
    joined = load_pool("letters"), load_pool("omniglot")
    names = dict(zip(("letters", "omniglot"), joined, strict=True))
    dropped = join_pools(names, look_alikes="drop")
    assert "omniglot/Greek" not in (dropped.groups or ())
    assert "letters/Greek" in (dropped.groups or ())
    assert len(dropped.classes_in("test")) == len(pool.classes_in("test"))
