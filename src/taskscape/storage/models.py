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

from taskscape.errors import DataError
from taskscape.files import folder_in_one_piece, written_in_one_piece

__all__ = ["load_arrays", "load_checkpoint", "save_arrays", "save_checkpoint", "versions"]

_FORMAT = 1


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
    raw = save_tensors({k: np.asarray(v, order="C") for k, v in arrays.items()})
    full = dict(header) | {
        "format": _FORMAT,
        "versions": versions(),
        "arrays": {k: [str(v.dtype), list(v.shape)] for k, v in arrays.items()},
        "sha256": hashlib.sha256(raw).hexdigest(),
    }
    with folder_in_one_piece(path) as made:
        (made / "arrays.safetensors").write_bytes(raw)
        text = json.dumps(full, indent=2, ensure_ascii=False)
        (made / "header.json").write_text(text + "\n", encoding="utf-8")


def load_arrays(
    path: str | os.PathLike[str], what: str
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a folder written by :func:`save_arrays`, checking what it is and that it is whole."""
    folder = Path(path)
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
    if header.get("format", 0) > _FORMAT:
        raise DataError(f"{folder} was written by a newer taskscape; please upgrade.")
    if hashlib.sha256(raw).hexdigest() != header.get("sha256"):
        raise DataError(
            f"{folder} is damaged: arrays.safetensors does not match the checksum in header.json."
        )
    arrays = load_tensors(raw)
    listed = {k: [str(v.dtype), list(v.shape)] for k, v in arrays.items()}
    if listed != header.get("arrays"):
        raise DataError(f"{folder} is damaged: its arrays are not those that header.json lists.")
    return arrays, header


def save_checkpoint(
    path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]
) -> None:
    """Write one safetensors file with the header inside, in one piece."""
    text = json.dumps(dict(header) | {"format": _FORMAT, "versions": versions()})
    raw = save_tensors(
        {k: np.asarray(v, order="C") for k, v in arrays.items()}, {"taskscape": text}
    )
    with written_in_one_piece(path) as made:
        made.write_bytes(raw)


def load_checkpoint(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a file written by :func:`save_checkpoint`."""
    try:
        raw = Path(path).read_bytes()
    except FileNotFoundError:
        raise DataError(f"no checkpoint at {os.fspath(path)}.") from None
    try:
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(json.loads(raw[8 : 8 + size])["__metadata__"]["taskscape"])
        return load_tensors(raw), header
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{os.fspath(path)} is not a readable checkpoint ({error}). Delete it and start anew."
        ) from error
