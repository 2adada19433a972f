"""The state of a fit as named arrays and back."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from taskscape.errors import DataError
from taskscape.model import ConditionalPosterior, Themes
from taskscape.themes.arrays import posterior_from_arrays, state_from_arrays, to_arrays
from taskscape.themes.steps import FitState, init

K, L, D = 3, 2, 4


def a_state(covariance: str = "full") -> FitState:
    shape = {"full": (K, D, D), "diag": (K, D), "tied": (D, D)}[covariance]
    rng = np.random.default_rng(0)
    themes = Themes(
        mu=jnp.asarray(rng.normal(size=(K, D)), jnp.float32),
        Sigma=jnp.asarray(rng.normal(size=shape), jnp.float32),
        alpha=jnp.asarray(rng.gamma(1, 1, (L, K)), jnp.float32),
        delta=jnp.full(L, 0.5),
        covariance=covariance,
    )
    return init(themes, jnp.arange(D, dtype=jnp.float32), jnp.ones(D))


@pytest.mark.parametrize("covariance", ["full", "diag", "tied"])
def test_a_state_comes_back_the_same(covariance: str):
    state = a_state(covariance)
    arrays = to_arrays(state, "fit0")
    assert {"fit0.themes.mu", "fit0.stats.S2", "fit0.best.alpha", "fit0.t"} <= set(arrays)
    back = state_from_arrays(arrays, "fit0", covariance)
    assert jax.tree.structure(back) == jax.tree.structure(state)
    for ours, theirs in zip(jax.tree.leaves(back), jax.tree.leaves(state), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_posteriors_come_back_if_there_are_any():
    posterior = ConditionalPosterior(jnp.ones((5, L)), jnp.ones((5, 2, L)), jnp.ones((5, 2, L, K)))
    back = posterior_from_arrays(to_arrays(posterior, "p"), "p")
    assert back is not None
    np.testing.assert_array_equal(back.eta, posterior.eta)
    assert posterior_from_arrays({}, "p") is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("f.themes.alpha", None, "f.themes.alpha is missing: the model is damaged or of another "
         "version."),
        ("f.shift", None, "f.shift is missing: the model is damaged or of another version."),
        ("f.best.mu", None, "f.best.mu is missing: the model is damaged or of another version."),
        ("f.themes.alpha", np.ones(3, np.float32), "f.themes.alpha is float32[3], expected 2 "
         "axes: the model is damaged or of another version."),
        ("f.stats.S1", np.ones((3, 5), np.float32), "f.stats.S1 is float32[3, 5], expected "
         "float32[3, 4]: the model is damaged or of another version."),
        ("f.t", np.array(1.0, np.float32), "f.t is float32[], expected int32[]: the model is "
         "damaged or of another version."),
        ("f.Psi0", np.full(D, np.nan, np.float32), "f.Psi0 holds NaN: the model is damaged."),
    ],
)  # fmt: skip
def test_damage_is_named(name: str, value: np.ndarray | None, message: str):
    arrays = to_arrays(a_state(), "f")
    if value is None:
        del arrays[name]
    else:
        arrays[name] = value
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        state_from_arrays(arrays, "f", "full")
