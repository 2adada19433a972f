"""Pictures in files: checked, decoded, brought to one size and to grey or colour."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, BytesIO
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from taskscape.errors import DataError

__all__ = [
    "MAX_BYTES",
    "MAX_PIXELS",
    "SUFFIXES",
    "careful_decoding",
    "check_colour",
    "check_image_size",
    "has_colour",
    "open_picture",
    "picture_array",
    "upright_size",
]

SUFFIXES = (
    ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pbm", ".pgm", ".ppm", ".tif", ".tiff", ".webp"
)  # fmt: skip
"""How the names of files that are taken for pictures end, in lower case."""
# Named, because some of PIL's other readers start programs (EPS) or are rarely exercised.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
MAX_BYTES = 64 << 20
MAX_PIXELS = 50_000_000
_MAX_SIDE = 1024
_ORIENTATION = 0x0112
_DEEP_MODES = frozenset({"F", "I", "I;16", "I;16B", "I;16L", "I;16N"})
_GREY_MODES = _DEEP_MODES | {"1", "L", "LA", "La"}


def check_image_size(image_size: Any) -> tuple[int, int] | None:
    """``image_size`` as (height, width); one number is a square, None is left to the loader."""
    if image_size is None:
        return None
    pair = image_size if isinstance(image_size, tuple | list) else (image_size, image_size)
    whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in pair)
    if len(pair) != 2 or not whole or not all(1 <= n <= _MAX_SIDE for n in pair):
        raise DataError(
            f"image_size={image_size!r}: expected a whole number of pixels from 1 to {_MAX_SIDE}, "
            "or a pair (height, width) of them."
        )
    return int(pair[0]), int(pair[1])


def check_colour(colour: Any) -> bool | None:
    """``colour`` must be True, False, or None (to look at the pictures)."""
    if colour is not None and not isinstance(colour, bool | np.bool_):
        raise DataError(
            f"colour={colour!r}: expected True, False, or None to look at the pictures."
        )
    return None if colour is None else bool(colour)


@contextmanager
def careful_decoding() -> Iterator[None]:
    """Around a loop that opens pictures: refuse bombs, and keep PIL's asides to itself.

    Entered once for a loop and in the main thread, because Python's warning filters belong to the
    whole process.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def open_picture(data: bytes | BufferedReader | BytesIO, where: str) -> Image.Image:
    """A picture whose header has been read and found sane; its pixels are not decoded yet."""
    try:
        picture = Image.open(BytesIO(data) if isinstance(data, bytes) else data, formats=_FORMATS)
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise _too_large(where) from error
    except UnidentifiedImageError as error:
        raise DataError(
            f"{where} is not a picture that can be read, or is damaged. Replace or remove it."
        ) from error
    except Exception as error:  # a damaged header can make a decoder raise nearly anything
        raise _damaged(where, error) from error
    if picture.width * picture.height > MAX_PIXELS:
        raise _too_large(where, f"{picture.width}×{picture.height}")
    return picture


def _too_large(where: str, size: str = "far") -> DataError:
    return DataError(
        f"{where} is too large ({size}; at most {MAX_PIXELS // 1_000_000} megapixels are read). "
        "Shrink or remove it."
    )


def _damaged(where: str, error: Exception) -> DataError:
    return DataError(
        f"{where} is damaged or cut short ({type(error).__name__}: {error}). "
        "Replace or remove it; if it came in an archive, fetch that again."
    )


def has_colour(picture: Image.Image) -> bool:
    """Whether a picture may hold colour, from its header and palette alone."""
    if picture.mode in _GREY_MODES:
        return False
    if picture.mode == "P" and picture.palette is not None:
        entries = np.frombuffer(picture.palette.tobytes(), dtype=np.uint8)
        channels = len(picture.palette.mode)
        rgb = entries[: entries.size // channels * channels].reshape(-1, channels)[:, :3]
        return bool((rgb != rgb[:, :1]).any())
    return True


def upright_size(picture: Image.Image) -> tuple[int, int]:
    """Height and width of a picture as it is meant to be seen, from its header alone."""
    turned = "exif" in picture.info and picture.getexif().get(_ORIENTATION, 1) >= 5
    return (picture.width, picture.height) if turned else (picture.height, picture.width)


def picture_array(
    data: bytes | BufferedReader | BytesIO, where: str, size: tuple[int, int], *, colour: bool
) -> UInt8[np.ndarray, "height width *channels"]:
    """The pixels of a picture, upright, 8 bits deep, (height, width) or (height, width, 3).

    Transparency shows white paper. The whole picture is stretched to ``size``, antialiased.
    """
    picture = open_picture(data, where)
    height, width = size
    try:
        if picture.format == "JPEG":  # decodes at a half, quarter or eighth where that is enough
            picture.draft(None, (3 * max(size), 3 * max(size)))
        picture = _eight_bits(ImageOps.exif_transpose(picture), where)
        picture = _on_white(picture).convert("RGB" if colour else "L")
        if picture.size != (width, height):
            picture = picture.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3.0)
        return np.asarray(picture)
    except DataError:
        raise
    except Exception as error:  # as above: decoders raise nearly anything on damaged data
        raise _damaged(where, error) from error


def _on_white(picture: Image.Image) -> Image.Image:
    transparent = picture.mode in ("RGBA", "LA", "PA", "La", "RGBa")
    if not transparent and "transparency" not in picture.info:
        return picture
    paper = Image.new("RGBA", picture.size, "white")
    paper.alpha_composite(picture.convert("RGBA"))
    return paper


def _eight_bits(picture: Image.Image, where: str) -> Image.Image:
    """16-bit and floating-point grey brought to 0 to 255; PIL would clip it instead."""
    if picture.mode not in _DEEP_MODES:
        return picture
    pixels = np.asarray(picture).astype(np.float64)
    top = 65535.0
    if picture.mode == "F":
        top = 1.0 if pixels.max() <= 1 else 255.0
    if not (np.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= top):
        raise DataError(
            f"{where} has grey levels from {pixels.min():g} to {pixels.max():g}; expected whole "
            "numbers up to 65535 or fractions from 0 to 1. Convert it to an 8-bit picture."
        )
    return Image.fromarray(np.round(pixels * (255.0 / top)).astype(np.uint8))
