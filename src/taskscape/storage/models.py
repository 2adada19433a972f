"""Models on disk: a folder with arrays (safetensors) and a header (JSON). Never a pickle."""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from taskscape.errors import CheckpointError, DataError
from taskscape.files import (
    Kind,
    check_output,
    folder_in_one_piece,
    recover,
    written_in_one_piece,
)

__all__ = [
    "CHECKPOINT",
    "arrays_of_kind",
    "load_arrays",
    "load_checkpoint",
    "save_arrays",
    "save_checkpoint",
    "versions",
]

_FORMAT = 1
_FILES = {"arrays.safetensors", "header.json"}


def versions() -> dict[str, str]:
    """What made a result: the versions of Python and of the libraries it depends on."""
    names = ("taskscape", "jax", "jaxlib", "numpy", "scikit-learn")
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "unknown"
    return {"python": platform.python_version()} | found


def save_arrays(
    path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]
) -> None:
    """Write a folder ``arrays.safetensors`` + ``header.json``, in one piece."""
    check_output(path, arrays_of_kind(str(header["what"])))
    raw = save_tensors({k: np.asarray(v, order="C") for k, v in arrays.items()})
    full = dict(header) | {
        "format": _FORMAT,
        "versions": versions(),
        "arrays": {k: [str(v.dtype), list(v.shape)] for k, v in arrays.items()},
        "sha256": hashlib.sha256(raw).hexdigest(),
    }
    with folder_in_one_piece(path) as made:
        (made / "arrays.safetensors").write_bytes(raw)
        text = json.dumps(full, indent=2, ensure_ascii=False, default=_plain)
        (made / "header.json").write_text(text + "\n", encoding="utf-8")


def arrays_of_kind(what: str) -> Kind:
    """Folders written by :func:`save_arrays` that hold this, such as a task-theme model."""

    def known(folder: Path) -> bool:
        if not {p.name for p in folder.iterdir()} <= _FILES:
            return False
        try:
            header = json.loads((folder / "header.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return isinstance(header, dict) and header.get("what") == what and "format" in header

    return Kind(f"a {what}", known, folder=True)


def load_arrays(
    path: str | os.PathLike[str], what: str
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a folder written by :func:`save_arrays`, checking what it is and that it is whole."""
    folder = Path(path)
    recover(folder)
    if not folder.is_dir():
        raise DataError(f"no {what} at {folder}: there is no such folder.")
    try:
        header = json.loads((folder / "header.json").read_text(encoding="utf-8"))
        raw = (folder / "arrays.safetensors").read_bytes()
    except FileNotFoundError as error:
        raise DataError(
            f"{folder} is not a {what}: {Path(error.filename).name} is missing."
        ) from None
    except ValueError as error:
        raise DataError(f"{folder} is damaged: header.json cannot be read ({error}).") from error
    if not isinstance(header, dict) or header.get("what") != what:
        raise DataError(f"{folder} does not hold a {what}.")
    _check_format(header, folder)
    if hashlib.sha256(raw).hexdigest() != header.get("sha256"):
        raise DataError(
            f"{folder} is damaged: arrays.safetensors does not match the checksum in header.json."
        )
    try:
        arrays = load_tensors(raw)
    except SafetensorError as error:
        raise DataError(
            f"{folder} is damaged: arrays.safetensors cannot be read ({error})."
        ) from error
    listed = {k: [str(v.dtype), list(v.shape)] for k, v in arrays.items()}
    if listed != header.get("arrays"):
        raise DataError(f"{folder} is damaged: its arrays are not those that header.json lists.")
    return arrays, header


def save_checkpoint(
    path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]
) -> None:
    """Write one safetensors file with the header inside, in one piece."""
    whole = {k: np.asarray(v, order="C") for k, v in arrays.items()}
    full = dict(header) | {
        "format": _FORMAT,
        "versions": versions(),
        "sha256": _checksum(whole),
    }
    raw = save_tensors(whole, {"taskscape": json.dumps(full, default=_plain)})
    with written_in_one_piece(path, CHECKPOINT) as made:
        made.write_bytes(raw)


def load_checkpoint(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a file written by :func:`save_checkpoint`."""
    try:
        raw = Path(path).read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"no checkpoint at {os.fspath(path)}.") from None
    try:
        header = _header_inside(raw)
        arrays = load_tensors(raw)
        if _checksum(arrays) != header["sha256"]:
            raise ValueError("the arrays do not match their checksum")
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{os.fspath(path)} is not a readable checkpoint ({error}). Delete it and start anew."
        ) from error
    _check_format(header, path)
    return arrays, header


def _header_inside(raw: bytes) -> dict[str, Any]:
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(json.loads(raw[8 : 8 + size])["__metadata__"]["taskscape"])
    return dict(header)


def _is_checkpoint(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            start = file.read(8)
            size = int.from_bytes(start, "little")
            if size > path.stat().st_size:
                return False
            return "sha256" in _header_inside(start + file.read(size))
    except (ValueError, KeyError, TypeError):
        return False


CHECKPOINT = Kind("a checkpoint", _is_checkpoint)


def _check_format(header: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    written = header.get("format")
    if not isinstance(written, int):
        raise DataError(f"{os.fspath(path)} is damaged: format={written!r} is not a number.")
    if written > _FORMAT:
        raise DataError(f"{os.fspath(path)} was written by a newer taskscape; please upgrade.")


def _checksum(arrays: Mapping[str, np.ndarray]) -> str:
    h = hashlib.sha256()
    for name in sorted(arrays):
        h.update(name.encode())
        h.update(arrays[name].tobytes())
    return h.hexdigest()


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's, which JSON knows."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored in a header")
