"""The state of a fit as named arrays and back."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskscape.errors import DataError
from taskscape.io.arrays import arrays_of
from taskscape.model import ConditionalPosterior, Themes
from taskscape.themes.steps import FitState, init, posterior_from_arrays, state_from_arrays

K, L, D = 3, 2, 4
WRONG = "the model is damaged, or of other settings or another version."


def a_state() -> FitState:
    rng = np.random.default_rng(0)
    themes = Themes(
        mu=jnp.asarray(rng.normal(size=(K, D)), jnp.float32),
        Sigma=jnp.asarray(rng.normal(size=(K, D, D)), jnp.float32),
        alpha=jnp.asarray(rng.gamma(1, 1, (L, K)), jnp.float32),
        delta=jnp.full(L, 0.5),
    )
    return init(themes, jnp.arange(D, dtype=jnp.float32), jnp.ones(D))


def test_a_state_comes_back_the_same():
    state = a_state()
    arrays = arrays_of(state, "fit0")
    assert {"fit0.themes.mu", "fit0.stats.S2", "fit0.best.alpha", "fit0.t"} <= set(arrays)
    back = state_from_arrays(arrays, "fit0")
    assert jax.tree.structure(back) == jax.tree.structure(state)
    for ours, theirs in zip(jax.tree.leaves(back), jax.tree.leaves(state), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_posteriors_come_back_if_there_are_any():
    posterior = ConditionalPosterior(jnp.ones((5, L)), jnp.ones((5, 2, L)), jnp.ones((5, 2, L, K)))
    back = posterior_from_arrays(arrays_of(posterior, "p"), "p")
    assert back is not None
    np.testing.assert_array_equal(back.eta, posterior.eta)
    assert posterior_from_arrays({}, "p") is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("f.themes.alpha", None, f"f.themes.alpha is missing: {WRONG}"),
        ("f.shift", None, f"f.shift is missing: {WRONG}"),
        ("f.best.mu", None, f"f.best.mu is missing: {WRONG}"),
        ("f.themes.alpha", np.ones(3, np.float32), "f.themes.alpha is float32[3], expected 2 "
         f"axes: {WRONG}"),
        ("f.stats.S1", np.ones((3, 5), np.float32), "f.stats.S1 is float32[3, 5], expected "
         f"float32[3, 4]: {WRONG}"),
        ("f.t", np.array(1.0, np.float32), f"f.t is float32[], expected int32[]: {WRONG}"),
    ],
)  # fmt: skip
def test_damage_is_named(name: str, value: np.ndarray | None, message: str):
    arrays = arrays_of(a_state(), "f")
    if value is None:
        del arrays[name]
    else:
        arrays[name] = value
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        state_from_arrays(arrays, "f")
