"""Many small pictures in one image, which a page shows in parts."""

import base64
import io
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8
from PIL import Image, features

__all__ = ["Sheet", "make_sheet"]

_LARGEST, _SMALLEST = 64, 20
_PIXELS = 3_000_000
"""Of a whole sheet; thumbnails shrink where there are many."""


@dataclass(frozen=True)
class Sheet:
    """Pictures of one size in rows, as a data URI."""

    uri: str
    columns: int
    rows: int
    width: int
    height: int
    """Of one picture, in pixels."""

    def to_dict(self) -> dict[str, int]:
        """How to find a picture in the sheet."""
        return {"columns": self.columns, "rows": self.rows, "w": self.width, "h": self.height}


def make_sheet(
    images: UInt8[np.ndarray, "n height width *colour"], *, lossless: bool | None = None
) -> Sheet:
    """Put images of one shape into a sheet, shrunk where they are large or many."""
    n, height, width = images.shape[:3]
    room = math.sqrt(_PIXELS / max(n, 1))
    side = max(_SMALLEST, min(_LARGEST, int(room)))
    shrink = min(1.0, side / max(height, width))
    w, h = max(1, round(width * shrink)), max(1, round(height * shrink))
    columns = math.ceil(math.sqrt(n * h / w)) or 1
    rows = max(1, math.ceil(n / columns))
    grey = images.ndim == 3
    whole = Image.new("L" if grey else "RGB", (columns * w, rows * h))
    for i, image in enumerate(images):
        small = Image.fromarray(image)
        if shrink < 1:
            small = small.resize((w, h), Image.Resampling.LANCZOS)
        whole.paste(small, (i % columns * w, i // columns * h))
    exact = grey if lossless is None else lossless
    return Sheet(_data_uri(whole, exact), columns, rows, w, h)


def _data_uri(image: Image.Image, lossless: bool) -> str:
    stream = io.BytesIO()
    if features.check("webp"):
        kind, options = "webp", {"lossless": lossless, "quality": 70 if lossless else 80}
    else:
        kind, options = "png", {"optimize": True}
    image.save(stream, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"
