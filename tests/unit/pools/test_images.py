"""Pictures of every depth and mode come out upright, 8 bits deep, and in one size."""

import io

import numpy as np
import pytest
from PIL import Image

import pool_files as files
from taskscape.errors import DataError
from taskscape.pools import images
from taskscape.pools.images import (
    check_image_size,
    open_picture,
    picture_array,
    read_pictures,
    upright_size,
)


def _saved(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def _read(data: bytes, size: tuple[int, int], *, colour: bool = False) -> np.ndarray:
    return picture_array(io.BytesIO(data), "it", size, colour, Image.Resampling.LANCZOS)


RAMP = np.linspace(0, 255, 16).astype(np.uint8).reshape(4, 4)


def test_grey_is_kept_as_it_is() -> None:
    np.testing.assert_array_equal(_read(files.png(RAMP), (4, 4)), RAMP)


def test_16_bits_are_scaled_not_clipped() -> None:
    deep = files.png(RAMP.astype(np.uint16) * 257)
    np.testing.assert_array_equal(_read(deep, (4, 4)), RAMP)


@pytest.mark.parametrize("top", [1, 255])
def test_fractions_are_scaled(top: int) -> None:
    data = _saved(Image.fromarray(RAMP.astype(np.float32) / 255 * top), "TIFF")
    np.testing.assert_array_equal(_read(data, (4, 4)), RAMP)


def test_grey_levels_that_mean_nothing_are_an_error() -> None:
    data = _saved(Image.fromarray(RAMP.astype(np.float32) * 100), "TIFF")
    with pytest.raises(DataError, match=r"it has grey levels from 0 to 25500"):
        _read(data, (4, 4))


def test_transparency_shows_white_paper() -> None:
    pixels = np.zeros((2, 2, 4), dtype=np.uint8)
    pixels[0, :, 3] = 255
    np.testing.assert_array_equal(_read(files.png(pixels), (2, 2)), [[0, 0], [255, 255]])
    red_clear = np.array([[[255, 0, 0, 0]]], dtype=np.uint8)
    assert _read(files.png(red_clear), (1, 1), colour=True).tolist() == [[[255, 255, 255]]]


def test_palettes_are_looked_up() -> None:
    picture = Image.new("P", (2, 1))
    picture.putpalette([0, 0, 0, 200, 10, 10])
    picture.putdata([0, 1])
    data = _saved(picture)
    assert _read(data, (1, 2), colour=True).tolist() == [[[0, 0, 0], [200, 10, 10]]]
    clear = _saved(picture, transparency=1)
    assert _read(clear, (1, 2), colour=True).tolist() == [[[0, 0, 0], [255, 255, 255]]]


def test_colour_is_seen_in_modes_and_palettes() -> None:
    grey, red = Image.new("P", (1, 1)), Image.new("P", (1, 1))
    grey.putpalette([7, 7, 7])
    red.putpalette([7, 0, 0])
    plain = {mode: Image.new(mode, (1, 1)) for mode in ("1", "L", "LA", "I;16")}
    for picture, axes in ((grey, 3), (red, 4), *((p, 3) for p in plain.values())):
        data = _saved(picture)
        assert read_pictures([(lambda data=data: io.BytesIO(data), "it")]).samples.ndim == axes


def test_pictures_are_turned_as_their_header_says() -> None:
    picture = Image.fromarray(np.arange(0, 240, 40, dtype=np.uint8).reshape(2, 3))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn clockwise by 90° to see it upright
    data = _saved(picture, exif=exif)
    assert upright_size(open_picture(io.BytesIO(data), "it")) == (3, 2)
    np.testing.assert_array_equal(_read(data, (3, 2)), np.rot90(np.asarray(picture), -1))


def test_large_jpegs_are_shrunk_truly() -> None:
    rows = np.linspace(0, 255, 640).astype(np.uint8)
    picture = Image.fromarray(np.repeat(rows[:, None], 480, axis=1)).convert("RGB")
    small = _read(_saved(picture, "JPEG", quality=95), (10, 10), colour=True)
    expected = rows.reshape(10, 64).mean(axis=1)
    assert np.abs(small[:, 5, 0] - expected).max() < 6


@pytest.mark.parametrize("kind", ["BMP", "GIF", "JPEG", "PPM", "TIFF", "WEBP"])
def test_other_kinds_of_files(kind: str) -> None:
    assert (
        np.abs(_read(_saved(Image.new("L", (3, 3), 100), kind), (3, 3)).astype(int) - 100).max() < 3
    )


def test_kinds_that_start_programs_are_not_opened() -> None:
    with pytest.raises(DataError, match=r"it is not a picture that can be read"):
        _read(_saved(Image.new("L", (3, 3)), "EPS"), (3, 3))


def test_every_truncation_that_costs_pixels_is_an_error() -> None:
    data = files.drawing(0, size=12)
    whole = _read(data, (12, 12))
    refused = 0
    for length in range(len(data)):
        try:
            np.testing.assert_array_equal(_read(data[:length], (12, 12)), whole)
        except DataError:
            refused += 1
    assert refused > 0.8 * len(data)


def test_flipped_bits_are_noticed() -> None:
    data = files.drawing(0, size=12)
    whole = _read(data, (12, 12))
    for at in range(8, len(data)):
        flipped = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        try:
            same = np.array_equal(_read(flipped, (12, 12)), whole)
        except DataError:
            continue
        assert same


@pytest.mark.parametrize(("width", "height"), [(8_000, 8_000), (10_000, 10_000), (60_000, 60_000)])
def test_bombs_are_refused_before_decoding(width: int, height: int) -> None:
    # The header alone promises the pixels; below, within and above what PIL itself warns of.
    header = b"P5\n%d %d\n255\n" % (width, height)
    picture = (lambda: io.BytesIO(header), "it")
    with pytest.raises(DataError, match=r"it is too large .*50 megapixels"):
        images.read_pictures([picture])


def test_a_size_is_one_number_or_two(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_image_size(None) is None
    assert check_image_size(28) == (28, 28)
    assert check_image_size((20, 30)) == (20, 30)
    for bad in (0, -1, 2.5, "28", True, (1, 2, 3), images._MAX_SIDE + 1):
        with pytest.raises(DataError, match=r"^image_size=.* must be (a whole number|a number|at)"):
            check_image_size(bad)
