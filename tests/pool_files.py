"""Small files of every kind that a pool can be opened from, written by hand for the tests."""

import io
import stat
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

N_CLASSES = 6
PER_CLASS = 5
SPLIT_OF = ("train", "train", "train", "val", "test", "test")


def features(seed: int = 0, dims: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """30 feature vectors of 6 classes, in mixed order."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(N_CLASSES), PER_CLASS))
    return (rng.normal(size=(len(y), dims)) + y[:, None]).astype(np.float32), y


def png(pixels: np.ndarray, **options: object) -> bytes:
    """An array as the bytes of a PNG."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", **options)
    return buffer.getvalue()


def drawing(seed: int, size: int = 28) -> bytes:
    """A grey PNG of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size))
    return png(pixels.astype(np.uint8))


def ink(seed: int) -> bytes:
    """A PNG like Omniglot's: 105×105, one bit deep, black strokes on white."""
    pixels = np.full((105, 105), 255, dtype=np.uint8)
    row, column = np.random.default_rng(seed).integers(10, 60, 2)
    pixels[row : row + 30, column : column + 12] = 0
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert("1").save(buffer, "PNG")
    return buffer.getvalue()


def write_files(root: Path, files: Mapping[str, bytes]) -> Path:
    """Files by their relative path; a path that ends in a slash is an empty folder."""
    for name, data in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return root


def write_zip(path: Path, files: Mapping[str, bytes], *, links: Mapping[str, str] = {}) -> Path:
    """A zip with these entries, under exactly these names."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        for name, target in links.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, target)
    return path


def picture_files(seed: int = 0, prefix: str = "") -> dict[str, bytes]:
    """Split / class / picture, 6 classes of 5 pictures."""
    return {
        f"{prefix}{SPLIT_OF[c]}/class{c}/{i}.png": drawing(1000 * seed + 10 * c + i)
        for c in range(N_CLASSES)
        for i in range(PER_CLASS)
    }


def omniglot_files(seed: int = 0) -> dict[str, bytes]:
    """The official layout: two training alphabets and one for testing, of 2 characters each."""
    alphabets = {"Greek": "background", "Latin": "background", "Tengwar": "evaluation"}
    return {
        f"images_{half}/{alphabet}/character{c:02}/{c:04}_{i:02}.png": ink(
            1000 * seed + 100 * a + 10 * c + i
        )
        for a, (alphabet, half) in enumerate(alphabets.items())
        for c in (1, 2)
        for i in range(1, PER_CLASS + 1)
    }


def python2_pickle(value: object) -> bytes:
    """A pickle as Python 2 and the numpy of its time wrote it: protocol 2, byte strings."""
    return b"\x80\x02" + _python2(value) + b"."


def _python2(value: object) -> bytes:
    if isinstance(value, np.ndarray):
        return _python2_array(value)
    if isinstance(value, np.integer):
        dtype = _python2_dtype(value.dtype)
        return b"cnumpy.core.multiarray\nscalar\n" + dtype + _string(value.tobytes()) + b"\x86R"
    if isinstance(value, dict):
        items = b"".join(_python2(part) for item in value.items() for part in item)
        return b"}(" + items + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(_python2, value)) + b"e"
    if isinstance(value, str):
        return b"X" + len(value.encode()).to_bytes(4, "little") + value.encode()
    if isinstance(value, bytes):
        return _string(value)
    assert isinstance(value, int)
    return b"J" + value.to_bytes(4, "little", signed=True)


def _string(raw: bytes) -> bytes:
    return b"T" + len(raw).to_bytes(4, "little") + raw


def _python2_dtype(dtype: np.dtype) -> bytes:
    kind = dtype.str.lstrip("<>|=").encode()
    size = dtype.itemsize if dtype.kind in "SU" else -1
    numbers = b"NNN" + _python2(size) + _python2(1 if size > 0 else -1)
    numbers += _python2(63 if dtype.kind == "O" else 0)
    built = b"cnumpy\ndtype\n" + _string(kind) + b"K\x00K\x01\x87R"
    return built + b"(K\x03" + _string(dtype.str[:1].encode()) + numbers + b"tb"


def _python2_array(array: np.ndarray) -> bytes:
    built = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
        + _string(b"b")
        + b"\x87R"
    )
    raw = _python2(array.tolist()) if array.dtype == object else _string(array.tobytes())
    shape = b"(" + b"".join(_python2(n) for n in array.shape) + b"t"
    return built + b"(K\x01" + shape + _python2_dtype(array.dtype) + b"\x89" + raw + b"tb"


def write_leo(
    folder: Path, seed: int = 0, dump: Callable[[object], bytes] = python2_pickle
) -> Path:
    """LEO's three pickles, 6 classes in all."""
    folder.mkdir(parents=True, exist_ok=True)
    X, y = features(seed, dims=8)
    for split in ("train", "val", "test"):
        rows = np.flatnonzero([SPLIT_OF[c] == split for c in y])
        content = {
            "embeddings": X[rows],
            "labels": [f"n{c:08}".encode() for c in y[rows]],
            "keys": [f"{r:05}-n{y[r]:08}-n{y[r]:08}_{r}.JPEG".encode() for r in rows],
        }
        (folder / f"{split}_embeddings.pkl").write_bytes(dump(content))
    return folder
