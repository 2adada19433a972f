"""Double precision, and one small case, for every equation."""

from collections.abc import Iterator

import jax
import pytest
from small_case import Case, build_case


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    """Equations are checked in double precision, so that a tolerance hides no mistake."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def case(float64: None) -> Case:
    """Three tasks; the second has two classes only, and one class of the third two samples."""
    return build_case()
