"""Pictures of pools: names of all kinds can be drawn."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from taskscape.pools import ClassPool
from taskscape.pools.sheet import contact_sheet

ODD = ("$x^$", r"$\oops{$", "100 $", r"\$ $_", "%s_^{}")


@pytest.mark.parametrize("shape", [(3,), (8, 8)])
def test_names_are_drawn_as_they_are(shape: tuple[int, ...], tmp_path: Path) -> None:
    X = np.random.default_rng(0).integers(0, 255, (10, *shape))
    pool = ClassPool.from_arrays(
        X.astype(np.uint8 if len(shape) == 2 else np.float32),
        np.repeat(np.arange(5), 2),
        name="$$_$",
        class_names=ODD,
        groups=ODD,
    )
    contact_sheet(pool, tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as image:
        assert min(image.size) > 100
