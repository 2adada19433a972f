"""The state of a fit as named arrays and back, so that storage needs to know nothing about it."""

from collections.abc import Mapping
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from taskscape.errors import DataError
from taskscape.model import ConditionalPosterior, Covariance, Themes
from taskscape.themes.steps import FitState, init

__all__ = ["posterior_from_arrays", "state_from_arrays", "to_arrays"]

T = TypeVar("T")


def to_arrays(tree: FitState | ConditionalPosterior, prefix: str) -> dict[str, np.ndarray]:
    """Every leaf under its path, such as ``member0.themes.mu``."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def state_from_arrays(
    arrays: Mapping[str, np.ndarray], prefix: str, covariance: Covariance
) -> FitState:
    """The state that :func:`to_arrays` took apart."""
    L, K = _shape(arrays, f"{prefix}.themes.alpha", 2)
    (D,) = _shape(arrays, f"{prefix}.shift", 1)
    shape = {"full": (K, D, D), "diag": (K, D), "tied": (D, D)}[covariance]
    themes = Themes(
        mu=jnp.zeros((K, D)),
        Sigma=jnp.zeros(shape),
        alpha=jnp.ones((L, K)),
        delta=jnp.ones(L),
        covariance=covariance,
    )
    return _fill(init(themes, jnp.zeros(D), jnp.zeros(D)), arrays, prefix)


def posterior_from_arrays(
    arrays: Mapping[str, np.ndarray], prefix: str
) -> ConditionalPosterior | None:
    """Posteriors of tasks, if there are any."""
    if f"{prefix}.lam" not in arrays:
        return None
    return ConditionalPosterior(
        **{name: jnp.asarray(_get(arrays, f"{prefix}.{name}")) for name in ("lam", "eta", "gamma")}
    )


def _fill(template: T, arrays: Mapping[str, np.ndarray], prefix: str) -> T:
    """The template with its leaves replaced; shapes must agree."""

    def leaf(path: tuple[object, ...], value: jax.Array) -> jax.Array:
        name = prefix + jax.tree_util.keystr(path)
        stored = _get(arrays, name)
        if stored.shape != value.shape or stored.dtype.kind != np.dtype(value.dtype).kind:
            raise DataError(
                f"{name} is {stored.dtype}{list(stored.shape)}, expected "
                f"{value.dtype}{list(value.shape)}: the model is damaged or of another version."
            )
        if stored.dtype.kind == "f" and np.isnan(stored).any():
            raise DataError(f"{name} holds NaN: the model is damaged.")
        return jnp.asarray(stored)

    return jax.tree_util.tree_map_with_path(leaf, template)


def _shape(arrays: Mapping[str, np.ndarray], name: str, axes: int) -> tuple[int, ...]:
    found = _get(arrays, name)
    if found.ndim != axes:
        raise DataError(
            f"{name} is {found.dtype}{list(found.shape)}, expected {axes} axes: the model is "
            "damaged or of another version."
        )
    return found.shape


def _get(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if name not in arrays:
        raise DataError(f"{name} is missing: the model is damaged or of another version.")
    return arrays[name]
