"""A fitted TaskThemes as named arrays and a header of plain values, and back."""

from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np

from taskscape.errors import DataError
from taskscape.model import Themes
from taskscape.themes.arrays import state_from_arrays, to_arrays
from taskscape.themes.health import Health
from taskscape.themes.prepare import Preparation, PrepareConfig
from taskscape.themes.steps import FitState

__all__ = ["from_disk", "to_disk"]

Model = TypeVar("Model", bound=Any)


def to_disk(model: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What to store of a fitted model."""
    arrays = {"preparation.mean": model.preparation_.mean}
    if model.preparation_.components is not None:
        arrays["preparation.components"] = model.preparation_.components
    for i, state in enumerate(model.states_):
        arrays |= to_arrays(state, f"member{i}")
    params = model.get_params()
    if isinstance(params["prepare"], PrepareConfig):
        params["prepare"] = asdict(params["prepare"])
    return arrays, {
        "what": "task-theme model",
        "params": params,
        "preparation": model.preparation_.settings(),
        "members": len(model.states_),
        "sizes": _sizes(model.states_[0].themes),
        "pool": {"name": model.pool_name_, "fingerprint": model.pool_fingerprint_},
        "n_features_in": model.n_features_in_,
        "elbo_reference": model.elbo_reference_,
        "elbo_history": model.elbo_history_.tolist(),
        "held_out": model.held_out_,
        "health": model.health_.to_json(),
    }


def from_disk(kind: type[Model], arrays: dict[str, np.ndarray], header: dict[str, Any]) -> Model:
    """The model that :func:`to_disk` took apart."""
    params = dict(header["params"])
    if isinstance(params["prepare"], dict):
        params["prepare"] = PrepareConfig(**params["prepare"])
    model = kind(**params)
    model._config()
    model.n_features_in_ = int(header["n_features_in"])
    settings = dict(header["preparation"])
    explained = settings.pop("explained")
    model.preparation_ = Preparation(
        PrepareConfig(**settings),
        arrays["preparation.mean"],
        arrays.get("preparation.components"),
        explained,
    )
    states = [
        state_from_arrays(arrays, f"member{i}", header["sizes"]["covariance"])
        for i in range(header["members"])
    ]
    _check_sizes(model, states, header["sizes"])
    model._set_states(states)
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


def _sizes(themes: Themes) -> dict[str, Any]:
    return {
        "task_themes": themes.L,
        "image_themes": themes.K,
        "dims": themes.D,
        "covariance": themes.covariance,
    }


def _check_sizes(model: Any, states: list[FitState], sizes: dict[str, Any]) -> None:
    """The header, the preparation and every member must be of one model."""
    prep = model.preparation_
    raw = (model.n_features_in_,)
    found = [("preparation.mean", prep.mean.shape, raw), ("dims", sizes["dims"], prep.dims)]
    if prep.components is not None:
        found.append(("preparation.components", prep.components.shape[1:], raw))
    found += [(f"member{i}", _sizes(state.themes), sizes) for i, state in enumerate(states)]
    for name, has, wanted in found:
        if has != wanted:
            raise DataError(f"{name} has {has}, expected {wanted}: the model is damaged.")
    if not states:
        raise DataError("it holds no fit: the model is damaged.")
