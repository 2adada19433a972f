"""A calibration as named arrays and a header of plain values, and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from taskscape.errors import DataError
from taskscape.forecast.calibration import Calibration
from taskscape.forecast.regression import Ridge

__all__ = ["from_disk", "to_disk"]

_PLAIN = (
    "penalty",
    "offset",
    "n_tasks",
    "n_classes",
    "mean_way",
    "shared",
    "mean_accuracy",
    "error",
)
_ARRAYS = ("residuals", "lowest", "highest")


def to_disk(calibration: Calibration) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What to store of a calibration."""
    ridge = calibration.ridge
    arrays = {name: getattr(calibration, name) for name in _ARRAYS}
    arrays |= {"mean": ridge.mean, "scale": ridge.scale, "weights": ridge.weights}
    header: dict[str, Any] = {name: getattr(calibration, name) for name in _PLAIN}
    return arrays, header | {"columns": list(calibration.columns), "intercept": ridge.intercept}


def from_disk(arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> Calibration:
    """The calibration that :func:`to_disk` took apart."""
    try:
        ridge = Ridge(
            arrays["mean"], arrays["scale"], arrays["weights"], float(header["intercept"])
        )
        values: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
        values |= {name: header[name] for name in _PLAIN}
        return Calibration(columns=tuple(header["columns"]), ridge=ridge, **values)
    except KeyError as error:
        raise DataError(f"{error} is missing: the forecaster is damaged.") from error
