"""Named arrays with a header on disk: folders for what is kept, single files for checkpoints."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, load_file, save

from taskscape.errors import CheckpointError, DataError
from taskscape.io.files import (
    NO_CHECKSUM_YET,
    Kind,
    PathLike,
    add_checksum,
    as_path,
    atomic_folder,
    atomic_write,
    check_output,
    is_as_written,
)
from taskscape.io.values import FORMAT, check_format, read_json, versions

Tree = TypeVar("Tree")
_FILES = {"arrays.safetensors", "header.json"}


def save_arrays(
    path: PathLike, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]
) -> None:
    """Write a folder ``arrays.safetensors`` + ``header.json``; an atomic write."""
    check_output(path, arrays_of_kind(str(header["what"])))
    raw = save(_in_order(arrays))
    checksum = {"sha256": hashlib.sha256(raw).hexdigest()}
    text = _to_json(header, checksum, indent=2, ensure_ascii=False)
    with atomic_folder(path) as new:
        (new / "arrays.safetensors").write_bytes(raw)
        (new / "header.json").write_text(text + "\n", encoding="utf-8")


def _in_order(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {k: np.asarray(v, order="C") for k, v in arrays.items()}


def _to_json(header: Mapping[str, Any], more: Mapping[str, Any], **options: Any) -> str:
    """A header with format and versions; NumPy's numbers as Python's, which JSON knows."""
    full = {**header, "format": FORMAT, "versions": versions(), **more}
    return json.dumps(full, default=np.generic.item, **options)


def arrays_of_kind(what: str) -> Kind:
    """Folders written by :func:`save_arrays` that hold this, such as a task-theme model."""

    def is_so(folder: Path) -> bool:
        header = read_json(folder / "header.json")
        return (
            {p.name for p in folder.iterdir()} <= _FILES
            and header["what"] == what
            and "format" in header
        )

    return Kind(f"a {what}", is_so, folder=True)


def load_arrays(path: PathLike, what: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a folder written by :func:`save_arrays`, checking what it is and that it is whole."""
    folder = as_path(path)
    if not folder.is_dir():
        raise DataError(f"no {what} at {folder}: there is no such folder.")
    try:
        header = read_json(folder / "header.json")
        raw = (folder / "arrays.safetensors").read_bytes()
    except FileNotFoundError as error:
        raise DataError(
            f"{folder} is not a {what}: {Path(error.filename).name} is missing."
        ) from None
    except ValueError as error:
        raise DataError(f"{folder} is damaged: header.json cannot be read ({error}).") from error
    if not isinstance(header, dict) or header.get("what") != what:
        raise DataError(f"{folder} does not hold a {what}.")
    check_format(header, folder)
    if hashlib.sha256(raw).hexdigest() != header.get("sha256"):
        raise DataError(
            f"{folder} is damaged: arrays.safetensors does not match the checksum in header.json."
        )
    return load(raw), header


# -- checkpoints ----------------------------------------------------------------------------------


def save_checkpoint(
    path: PathLike, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]
) -> None:
    """Write one safetensors file with the header inside; an atomic write."""
    inside = {"taskscape": _to_json(header, {}), "sha256": NO_CHECKSUM_YET}
    with atomic_write(path, CHECKPOINT) as file:
        file.write_bytes(save(_in_order(arrays), inside))
        add_checksum(file)


def load_checkpoint(
    path: PathLike, of: str = "", identity: str | None = None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a file written by :func:`save_checkpoint`.

    With an ``identity``, it must be the one in the header: ``of`` says of what kind of work.
    """
    file = as_path(path)
    if not file.exists():
        raise CheckpointError(f"no checkpoint at {file}.")
    try:
        header = _header_inside(file)
        if not is_as_written(file):
            raise ValueError("it does not match its checksum")
        arrays = load_file(file)
    except (SafetensorError, LookupError, TypeError, ValueError) as error:
        reason = str(error).rstrip(".")
        raise CheckpointError(
            f"{file} is not a readable checkpoint ({reason}). Delete it and start again."
        ) from error
    check_format(header, file)
    if identity is not None and header.get("identity") != identity:
        raise CheckpointError(
            f"{file} belongs to a {of} with other settings, data or tasks. Use the same ones, or "
            "another checkpoint file."
        )
    return arrays, header


def _header_inside(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="numpy") as file:
        return dict(json.loads((file.metadata() or {})["taskscape"]))


CHECKPOINT = Kind("a checkpoint", _header_inside)


# -- trees of arrays ----------------------------------------------------------------------------


def arrays_of(tree: PyTree, prefix: str = "") -> dict[str, np.ndarray]:
    """Every leaf under its path, such as ``member0.themes.mu``, as a NumPy array."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_path(prefix, path): np.asarray(leaf) for path, leaf in leaves}


def tree_from(arrays: Mapping[str, np.ndarray], like: Tree, prefix: str = "") -> Tree:
    """The inverse of :func:`arrays_of`; ``like`` has the structure and shapes to be filled."""

    def leaf(path: tuple[Any, ...], value: Any) -> jax.Array:
        name = _path(prefix, path)
        stored = get_array(arrays, name)
        if stored.shape != value.shape or stored.dtype.kind != np.dtype(value.dtype).kind:
            raise DataError(
                f"{name} is {stored.dtype}{list(stored.shape)}, expected "
                f"{value.dtype}{list(value.shape)}: {_WRONG}."
            )
        return jax.device_put(stored)

    filled: Tree = jax.tree_util.tree_map_with_path(leaf, like)
    return filled


_WRONG = "the model is damaged, or of other settings or another version"


def get_array(arrays: Mapping[str, np.ndarray], name: str, axes: int | None = None) -> np.ndarray:
    """One of the stored arrays, which must be there, with so many axes."""
    if name not in arrays:
        raise DataError(f"{name} is missing: {_WRONG}.")
    stored = arrays[name]
    if axes is not None and stored.ndim != axes:
        raise DataError(
            f"{name} is {stored.dtype}{list(stored.shape)}, expected {axes} axes: {_WRONG}."
        )
    return stored


def _path(prefix: str, path: tuple[Any, ...]) -> str:
    return (prefix + jax.tree_util.keystr(path)).lstrip(".")
