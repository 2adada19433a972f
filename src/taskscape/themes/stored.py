"""The state of a fit from named arrays."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from taskscape.io.arrays import get_array, tree_from
from taskscape.model import ConditionalPosterior, Covariance, Themes, zero_statistics
from taskscape.themes.steps import FitState, init


def state_from_arrays(
    arrays: Mapping[str, np.ndarray], prefix: str, covariance: Covariance
) -> FitState:
    """The state of a fit that :func:`taskscape.io.arrays.arrays_of` took apart."""
    L, K = get_array(arrays, f"{prefix}.themes.alpha", axes=2).shape
    (D,) = get_array(arrays, f"{prefix}.shift", axes=1).shape
    themes = Themes(
        mu=jnp.zeros((K, D)),
        Sigma=zero_statistics(K, L, D, covariance).S2,
        alpha=jnp.ones((L, K)),
        delta=jnp.ones(L),
        covariance=covariance,
    )
    return tree_from(arrays, init(themes, jnp.zeros(D), jnp.zeros(D)), prefix)


def posterior_from_arrays(
    arrays: Mapping[str, np.ndarray], prefix: str
) -> ConditionalPosterior | None:
    """Posteriors of tasks, if there are any."""
    if f"{prefix}.lam" not in arrays:
        return None
    names = ("lam", "eta", "gamma")
    return ConditionalPosterior(
        **{name: jnp.asarray(get_array(arrays, f"{prefix}.{name}")) for name in names}
    )
