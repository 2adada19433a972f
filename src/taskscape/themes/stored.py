"""A fit and a fitted model as named arrays and a header of plain values, and back."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from taskscape.model import ConditionalPosterior, Covariance, Themes
from taskscape.storage import arrays_of, get_array, tree_from
from taskscape.themes.health import Health
from taskscape.themes.prepare import Preparation, PrepareConfig
from taskscape.themes.steps import FitState, init

Model = TypeVar("Model", bound=Any)


def state_from_arrays(
    arrays: Mapping[str, np.ndarray], prefix: str, covariance: Covariance
) -> FitState:
    """The state of a fit that :func:`taskscape.storage.arrays_of` took apart."""
    L, K = get_array(arrays, f"{prefix}.themes.alpha", axes=2).shape
    (D,) = get_array(arrays, f"{prefix}.shift", axes=1).shape
    shape = {"full": (K, D, D), "diag": (K, D), "tied": (D, D)}[covariance]
    themes = Themes(
        mu=jnp.zeros((K, D)),
        Sigma=jnp.zeros(shape),
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


def to_disk(model: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What to store of a fitted model."""
    arrays = {"preparation.mean": model.preparation_.mean}
    if model.preparation_.components is not None:
        arrays["preparation.components"] = model.preparation_.components
    for i, state in enumerate(model.states_):
        arrays |= arrays_of(state, f"member{i}")
    params, themes = model.get_params(), model.states_[0].themes
    if isinstance(params["prepare"], PrepareConfig):
        params["prepare"] = asdict(params["prepare"])
    return arrays, {
        "what": "task-theme model",
        "params": params,
        "random_state": model.random_state_,
        "preparation": model.preparation_.settings(),
        "members": len(model.states_),
        "sizes": {
            "task_themes": themes.L,
            "image_themes": themes.K,
            "dims": themes.D,
            "covariance": themes.covariance,
        },
        "pool": {"name": model.pool_name_, "fingerprint": model.pool_fingerprint_},
        "n_features_in": model.n_features_in_,
        "elbo_reference": model.elbo_reference_,
        "elbo_history": model.elbo_history_.tolist(),
        "held_out": model.held_out_,
        "health": model.health_.to_dict(),
    }


def from_disk(kind: type[Model], arrays: dict[str, np.ndarray], header: dict[str, Any]) -> Model:
    """The model that :func:`to_disk` took apart."""
    params = dict(header["params"])
    if isinstance(params["prepare"], dict):
        params["prepare"] = PrepareConfig(**params["prepare"])
    model = kind(**params)
    model._config()
    model.random_state_ = int(header["random_state"])
    model.n_features_in_ = int(header["n_features_in"])
    settings = dict(header["preparation"])
    explained = settings.pop("explained")
    model.preparation_ = Preparation(
        PrepareConfig(**settings),
        arrays["preparation.mean"],
        arrays.get("preparation.components"),
        explained,
    )
    covariance, members = header["sizes"]["covariance"], range(header["members"])
    model._set_states([state_from_arrays(arrays, f"member{i}", covariance) for i in members])
    model.elbo_history_ = np.array(header["elbo_history"], dtype=np.float64)
    model.held_out_ = str(header["held_out"])
    model.elbo_reference_ = tuple(header["elbo_reference"])
    health: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in header["health"].items()
    }
    model.health_ = Health(**health)
    model.pool_name_ = header["pool"]["name"]
    model.pool_fingerprint_ = header["pool"]["fingerprint"]
    return model
