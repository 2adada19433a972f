"""Seeds: what is accepted as one, everywhere."""

from typing import Any, TypeAlias

import numpy as np

from taskscape.errors import DataError

__all__ = ["MOST_FOR_JAX", "Seed", "check_seed"]

Seed: TypeAlias = int | np.integer
MOST_FOR_JAX = 2**31 - 1
"""Larger seeds do not fit into JAX's usual whole numbers."""


def check_seed(seed: Any, what: str = "seed", *, most: int | None = None) -> int:
    """A seed as a plain whole number; NumPy's are welcome, all else is an error.

    >>> check_seed(np.int64(3))
    3
    """
    is_whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not is_whole or seed < 0 or (most is not None and seed > most):
        limit = "up" if most is None else f"to {most:,}"
        raise DataError(f"{what}={seed!r} must be a whole number from 0 {limit}.")
    return int(seed)
