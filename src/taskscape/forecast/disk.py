"""A calibration as named arrays and a header of plain values, and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from taskscape.errors import DataError
from taskscape.forecast.calibration import Calibration
from taskscape.forecast.class_effects import Spread
from taskscape.forecast.regression import Ridge

__all__ = ["FORMAT", "from_disk", "to_disk"]

FORMAT = 2
"""Of stored calibrations. In format 1, intervals came from errors on held-out tasks."""
_PLAIN = (
    "penalty",
    "typical",
    "offset",
    "n_tasks",
    "n_classes",
    "shared",
    "mean_accuracy",
    "error",
)
_ARRAYS = ("lowest", "highest")


def to_disk(calibration: Calibration) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What to store of a calibration."""
    ridge, spread = calibration.ridge, calibration.spread
    arrays = {name: getattr(calibration, name) for name in _ARRAYS}
    arrays |= {"mean": ridge.mean, "scale": ridge.scale, "weights": ridge.weights}
    arrays |= {"of_coefficients": spread.of_coefficients}
    header: dict[str, Any] = {name: getattr(calibration, name) for name in _PLAIN}
    header |= {"of_classes": spread.of_classes, "of_tasks": spread.of_tasks}
    header |= {"columns": list(calibration.columns), "intercept": ridge.intercept}
    return arrays, header | {"calibration_format": FORMAT}


def from_disk(arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> Calibration:
    """The calibration that :func:`to_disk` took apart."""
    written = header.get("calibration_format", 1)
    if written != FORMAT:
        raise DataError(
            f"the forecaster has calibration_format={written}; this version reads {FORMAT}, whose "
            "intervals are made from other numbers. Fit the forecaster again and save it."
        )
    try:
        ridge = Ridge(
            arrays["mean"], arrays["scale"], arrays["weights"], float(header["intercept"])
        )
        spread = Spread(header["of_classes"], header["of_tasks"], arrays["of_coefficients"])
        values: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
        values |= {name: header[name] for name in _PLAIN}
        return Calibration(columns=tuple(header["columns"]), ridge=ridge, spread=spread, **values)
    except KeyError as error:
        raise DataError(f"{error} is missing: the forecaster is damaged.") from error
