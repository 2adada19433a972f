"""Every network keeps the same contract."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskscape.errors import DataError
from taskscape.meta import NETWORKS, Architecture, architecture, network_for
from taskscape.pools import ClassPool

RNG = np.random.default_rng(0)
FEATURES, IMAGES = (
    ClassPool.from_arrays(RNG.random(shape).astype(np.float32), np.repeat(np.arange(4), 3))
    for shape in ((12, 7), (12, 16, 16))
)

pytestmark = pytest.mark.parametrize("name", NETWORKS)


def network(name: str) -> Architecture:
    pool = IMAGES if NETWORKS[name].images else FEATURES
    return network_for(pool, {}, name, widths=(5,), filters=3)


def test_it_embeds_samples_and_gives_outputs(name: str) -> None:
    built = network(name)
    x, mask = jnp.ones((6, *built.sample_shape)), jnp.arange(6) < 4
    for outputs in (None, 4):
        weights = built.build(jax.random.key(0), outputs)
        y = weights(x, mask)
        assert y.ndim == 2
        assert y.shape[1] == (outputs or y.shape[1])
        assert np.isfinite(y[:4]).all()
        assert all(hasattr(leaf, "shape") for leaf in jax.tree.leaves(weights))


def test_it_comes_back_from_json(name: str) -> None:
    built = network(name)
    again = architecture(json.loads(json.dumps(built.config())))
    assert (again, hash(again)) == (built, hash(built))


def test_it_is_refused_for_the_other_kind_of_samples(name: str) -> None:
    with pytest.raises(DataError, match=f"network='{name}' takes .* Use "):
        network_for(FEATURES if NETWORKS[name].images else IMAGES, {}, name)
