"""Names come from anybody's data: here they are kept from being read as markup or script."""

import json
import math
from typing import Any

import numpy as np
from markupsafe import Markup

__all__ = ["data_island", "plain"]

_DIGITS = 4
_UNSAFE_IN_SCRIPT = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def plain(value: Any) -> Any:
    """Arrays and numbers as JSON knows them: rounded, and None for NaN and infinities.

    >>> plain({"x": np.array([1 / 3, np.nan])})
    {'x': [0.3333, None]}
    """
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float | np.floating):
        return _rounded(float(value)) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def data_island(value: Any) -> Markup:
    """A value as JSON that can stand inside a ``<script>`` element and cannot end it."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_UNSAFE_IN_SCRIPT))


def _rounded(number: float) -> float | int:
    whole = round(number)
    if number == whole and abs(number) < 1e15:
        return whole
    return float(f"{number:.{_DIGITS}g}")
