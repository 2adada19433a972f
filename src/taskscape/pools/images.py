"""Pictures in files: checked, decoded, brought to one size and to grey or colour."""

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from io import BufferedReader, BytesIO
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int, Shaped, UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from taskscape.arguments import check_flag, check_whole
from taskscape.errors import DataError
from taskscape.progress import track

SUFFIXES = (
    ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pbm", ".pgm", ".ppm", ".tif", ".tiff", ".webp"
)  # fmt: skip
"""How the names of files that are taken for pictures end, in lower case."""
# Named, because some of PIL's other readers start programs (EPS) or are rarely exercised.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
MAX_BYTES = 64 << 20
MAX_PIXELS = 50_000_000
_MAX_SIDE = 1024
_KEEP_UP_TO = 96
_USUAL_SIZE = 84
_SKIP = (
    "Or leave such pictures out, with a note: skip_damaged=True, `taskscape run --set "
    "source.skip_damaged=true`, "
    "`taskscape data save --skip-damaged`."
)
_ORIENTATION = 0x0112
_DEEP_MODES = frozenset({"F", "I", "I;16", "I;16B", "I;16L", "I;16N"})
_GREY_MODES = _DEEP_MODES | {"1", "L", "LA", "La"}

T = TypeVar("T")
Smooth = Image.Resampling
"""How pixels are put together where pictures shrink."""


def check_image_size(image_size: Any) -> tuple[int, int] | None:
    """``image_size`` as (height, width); one number is a square, None is left to the loader."""
    if image_size is None:
        return None
    pair = image_size if isinstance(image_size, tuple | list) else (image_size, image_size)
    if len(pair) != 2:
        raise DataError(f"image_size={image_size!r} must be a number, or a pair (height, width).")
    height, width = (check_whole(side, "image_size", 1, _MAX_SIDE) for side in pair)
    return height, width


def check_colour(colour: Any) -> bool | None:
    """``colour`` must be True, False, or None (to look at the pictures)."""
    return None if colour is None else check_flag(colour, "colour")


def open_picture(data: BufferedReader | BytesIO, where: str) -> Image.Image:
    """A picture whose header has been read and found sane; its pixels are not decoded yet."""
    try:
        picture = Image.open(data, formats=_FORMATS)
    except Image.DecompressionBombError as error:
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


def upright_size(picture: Image.Image) -> tuple[int, int]:
    """Height and width of a picture as it is meant to be seen, from its header alone."""
    turned = "exif" in picture.info and picture.getexif().get(_ORIENTATION, 1) >= 5
    return (picture.width, picture.height) if turned else (picture.height, picture.width)


def picture_array(
    data: BufferedReader | BytesIO, where: str, size: tuple[int, int], colour: bool, smooth: Smooth
) -> UInt8[np.ndarray, "height width *channels"]:
    """The pixels of a picture, upright, 8 bits deep, (height, width) or (height, width, 3).

    Transparency shows white paper. The whole picture is stretched to ``size``, antialiased.
    """
    picture = open_picture(data, where)
    try:
        if picture.format == "JPEG":  # decodes at a half, quarter or eighth where that is enough
            picture.draft(None, (3 * max(size), 3 * max(size)))
        picture = _eight_bits(ImageOps.exif_transpose(picture), where)
        return _pixels(_on_white(picture), size, colour, smooth)
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


def images_in_shape(
    images: Shaped[np.ndarray, "n *before"], shape: tuple[int, ...]
) -> Shaped[np.ndarray, "n *after"]:
    """Images in another size, in grey or in colour."""
    if images.shape[1:] == shape:
        return images
    pictures = (Image.fromarray(np.ascontiguousarray(image)) for image in images)
    return np.stack(
        [_pixels(picture, (shape[0], shape[1]), len(shape) == 3) for picture in pictures]
    )


def _pixels(
    picture: Image.Image, size: tuple[int, int], colour: bool, smooth: Smooth = Smooth.LANCZOS
) -> UInt8[np.ndarray, "height width *channels"]:
    picture = picture.convert("RGB" if colour else "L")
    if picture.size != size[::-1]:
        picture = picture.resize(size[::-1], smooth, reducing_gap=3.0)
    return np.asarray(picture)


# -- many files -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pictures:
    """The pixels of many pictures, in one size."""

    samples: UInt8[np.ndarray, "rows height width *channels"]
    kept: Int[np.ndarray, "rows"]
    """Which of the pictures each row is; all of them, unless damaged ones were left out."""
    damaged: tuple[str, ...]
    """Those left out, in words."""


def read_pictures(
    pictures: Sequence[tuple[Callable[[], BufferedReader | BytesIO], str]],
    *,
    size: tuple[int, int] | None = None,
    colour: bool | None = None,
    skip_damaged: bool = False,
    smooth: Smooth = Smooth.LANCZOS,
) -> Pictures:
    """Decode pictures, each given by what opens it and by its place in words.

    A damaged one is an error, unless it is to be skipped.
    Without ``size``, pictures that all have the same size of at most 96 pixels keep it, and others
    become 84×84; without ``colour``, they are in colour if any has some.
    """
    damaged: set[int] = set()

    def careful(index: int, decode: Callable[[Any, str], T]) -> T | None:
        open_file, where = pictures[index]
        try:
            with open_file() as file:
                return decode(file, where)
        except DataError as error:
            if not skip_damaged:
                raise DataError(f"{error} {_SKIP}") from error
            damaged.add(index)
            return None

    with warnings.catch_warnings():  # in the main thread: filters belong to the whole process
        warnings.filterwarnings("ignore", module=r"PIL\.")
        headers = [careful(i, _header) for i in track(range(len(pictures)), "looking at pictures")]
        sizes = {header[0] for header in headers if header is not None}
        if size is None:
            size = sizes.pop() if len(sizes) == 1 else (_USUAL_SIZE, _USUAL_SIZE)
            size = size if max(size) <= _KEEP_UP_TO else (_USUAL_SIZE, _USUAL_SIZE)
        coloured = any(h is not None and h[1] for h in headers) if colour is None else colour
        samples = np.zeros((len(pictures), *size, *((3,) if coloured else ())), dtype=np.uint8)
        pixels = partial(picture_array, size=size, colour=coloured, smooth=smooth)

        def decode(index: int) -> None:
            decoded = None if index in damaged else careful(index, pixels)
            if decoded is not None:
                samples[index] = decoded

        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
            done = threads.map(decode, range(len(pictures)))
            for _ in track(done, "reading pictures", len(pictures)):
                pass
    kept = np.array([i for i in range(len(pictures)) if i not in damaged], dtype=np.int64)
    samples = samples[kept] if damaged else samples
    if (
        colour is None
        and samples.ndim == 4
        and all((s[..., 1:] == s[..., :1]).all() for s in samples)
    ):
        samples = np.ascontiguousarray(samples[..., 0])
    return Pictures(samples, kept, tuple(pictures[i][1] for i in sorted(damaged)))


def _header(file: BufferedReader | BytesIO, where: str) -> tuple[tuple[int, int], bool]:
    picture = open_picture(file, where)
    return upright_size(picture), picture.mode not in _GREY_MODES
