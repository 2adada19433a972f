"""What is kept on disk, and how: arrays in safetensors, values in JSON, tables in Parquet.

Never a pickle. Models, learners and forecasters hand over named arrays and a header of plain
values. What a folder or file holds, whether it is whole, and which version wrote it is checked
here.
"""

import hashlib
import json
import math
import os
import platform
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import PyTree
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from taskscape.errors import CheckpointError, DataError
from taskscape.files import (
    Kind,
    PathLike,
    as_path,
    check_output,
    folder_in_one_piece,
    written_in_one_piece,
)  # fmt: skip

Tree = TypeVar("Tree")
FORMAT = 2
"""Of everything that is checked by :func:`check_format`; 2 has posteriors of several factors."""
_HEADER = b"taskscape"
_BATCH = 1 << 17
_FILES = {"arrays.safetensors", "header.json"}
_AGAIN = "Make it again, or take it from a backup."


def versions(*names: str) -> dict[str, str]:
    """What made a result: the versions of Python and of some packages."""
    known = {}
    for name in names or ("taskscape", "jax", "jaxlib", "numpy", "scikit-learn"):
        try:
            known[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            known[name] = "unknown"
    return {"python": platform.python_version()} | known


def versions_and_hardware() -> dict[str, Any]:
    """Versions and hardware, for results that are kept."""
    device = jax.devices()[0]
    return {
        "versions": versions("jax", "equinox", "optax", "numpy"),
        "hardware": {
            "device": device.device_kind,
            "platform": device.platform,
            "cores": os.cpu_count(),
            "machine": platform.machine(),
        },
    }


# -- folders and checkpoints --------------------------------------------------------------------


def save_arrays(
    path: PathLike, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]
) -> None:
    """Write a folder ``arrays.safetensors`` + ``header.json``, in one piece."""
    check_output(path, arrays_of_kind(str(header["what"])))
    raw = save_tensors({k: np.asarray(v, order="C") for k, v in arrays.items()})
    full = dict(header) | {
        "format": FORMAT,
        "versions": versions(),
        "sha256": hashlib.sha256(raw).hexdigest(),
    }
    text = json.dumps(full, indent=2, ensure_ascii=False, default=_number)
    with folder_in_one_piece(path) as new:
        (new / "arrays.safetensors").write_bytes(raw)
        (new / "header.json").write_text(text + "\n", encoding="utf-8")


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


def load_arrays(path: PathLike, what: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a folder written by :func:`save_arrays`, checking what it is and that it is whole."""
    folder = as_path(path)
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
    check_format(header, folder)
    if hashlib.sha256(raw).hexdigest() != header.get("sha256"):
        raise DataError(
            f"{folder} is damaged: arrays.safetensors does not match the checksum in header.json."
        )
    return load_tensors(raw), header


def save_checkpoint(
    path: PathLike, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]
) -> None:
    """Write one safetensors file with the header inside, in one piece."""
    whole = {k: np.asarray(v, order="C") for k, v in arrays.items()}
    about = dict(header) | {"format": FORMAT, "versions": versions()}
    full = dict(json.loads(json.dumps(about, default=_number)))
    full["sha256"] = _checksum(whole, full)
    raw = save_tensors(whole, {"taskscape": json.dumps(full)})
    with written_in_one_piece(path, CHECKPOINT) as file:
        file.write_bytes(raw)


def load_checkpoint(
    path: PathLike, of: str = "", identity: str | None = None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a file written by :func:`save_checkpoint`.

    With an ``identity``, it must be the one in the header: ``of`` says of what kind of work.
    """
    try:
        raw = as_path(path).read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"no checkpoint at {os.fspath(path)}.") from None
    try:
        header = _header_inside(raw)
        arrays = load_tensors(raw)
        if _checksum(arrays, header) != header["sha256"]:
            raise ValueError("it does not match its checksum")
    except (SafetensorError, LookupError, TypeError, ValueError) as error:
        reason = str(error).rstrip(".")
        raise CheckpointError(
            f"{os.fspath(path)} is not a readable checkpoint ({reason}). Delete it and start again."
        ) from error
    check_format(header, path)
    if identity is not None and header.get("identity") != identity:
        raise CheckpointError(
            f"{os.fspath(path)} belongs to a {of} with other settings, data or tasks. Use the same "
            "ones, or another checkpoint file."
        )
    return arrays, header


def forget_checkpoint(path: PathLike) -> None:
    """Delete a checkpoint that is not needed any more."""
    Path(path).unlink(missing_ok=True)


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


def check_format(header: Mapping[str, Any], path: PathLike) -> None:
    """Raise an error unless this version can read what a header of that format describes."""
    written = header.get("format")
    if not isinstance(written, int):
        raise DataError(f"{os.fspath(path)} is damaged: format={written!r} is not a number.")
    if written > FORMAT:
        raise DataError(f"{os.fspath(path)} was written by a newer taskscape; please upgrade.")
    if written < FORMAT:
        raise DataError(f"{os.fspath(path)} was written by an older taskscape; make it again.")


def _checksum(arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> str:
    h = hashlib.sha256(_without_checksum(header).encode())
    for name, values in sorted(arrays.items()):
        h.update(f"{name} {values.dtype} {values.shape}".encode())
        h.update(values.tobytes())
    return h.hexdigest()


def _without_checksum(header: Mapping[str, Any]) -> str:
    return json.dumps({k: v for k, v in header.items() if k != "sha256"}, sort_keys=True)


def _number(value: Any) -> Any:
    """NumPy's numbers as Python's, which JSON knows."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored in a header")


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


# -- values and small tables --------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Numbers, lists and dicts that JSON knows; what is not a number becomes None."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, value: Any) -> None:
    """Plain values as JSON for people to read."""
    text = json.dumps(plain(value), indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """What :func:`write_json` wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_table(path: Path, columns: Mapping[str, Any]) -> None:
    """Columns as Parquet: lists, arrays, or arrays with several numbers in each row."""
    arrays = {}
    for name, values in columns.items():
        if isinstance(values, np.ndarray) and values.ndim == 2:
            flat = pa.array(np.ascontiguousarray(values).reshape(-1))
            arrays[name] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        else:
            arrays[name] = pa.array(values)
    write_parquet(path, pa.table(arrays))


def read_table(path: Path) -> dict[str, Any]:
    """The columns of such a file: arrays, or lists where they hold text."""
    table = read_parquet(path)
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if pa.types.is_fixed_size_list(column.type):
            columns[name] = column.flatten().to_numpy().reshape(-1, column.type.list_size)
        elif pa.types.is_string(column.type):
            columns[name] = column.to_pylist()
        else:
            columns[name] = column.to_numpy(zero_copy_only=False)
    return columns


# -- Parquet: every page has a checksum, and a table with a header has one of all its values -------


def write_parquet(path: Path, table: pa.Table, **options: Any) -> None:
    """Write a table so that damage is noticed by whoever reads it here.

    Pages carry checksums. A table with a header has one of its header and columns besides: what
    Parquet says of its own pages is not covered by theirs.
    """
    metadata = dict(table.schema.metadata or {})
    if _HEADER in metadata:
        header = json.loads(metadata[_HEADER])
        header["sha256"] = _TableChecksum(header).add(table)
        metadata[_HEADER] = json.dumps(header, ensure_ascii=False).encode()
        table = table.replace_schema_metadata(metadata)
    pq.write_table(table, path, compression="zstd", write_page_checksum=True, **options)


def open_parquet(path: PathLike) -> pq.ParquetFile:
    """A Parquet file whose pages are verified as they are read."""
    if not as_path(path).is_file():
        raise DataError(f"no such file: {os.fspath(path)}.")
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error


def read_batches(
    file: pq.ParquetFile, path: Path, batch_size: int, columns: list[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of an open file, so many at a time.

    An error names the file where a page is not what was written, or, after the last row of all
    columns, where they or the header are not.
    """
    header = _any_header(file.schema_arrow)
    checksum, value = _TableChecksum(header), None
    try:
        for batch in file.iter_batches(batch_size, columns=columns):
            table = pa.Table.from_batches([batch])
            if "sha256" in header and columns is None:
                value = checksum.add(table)
            yield table
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error
    if value is not None and value != header["sha256"]:
        raise DataError(
            f"{os.fspath(path)} is damaged or was edited: it does not match its own checksum. "
            f"{_AGAIN}"
        )


def read_row_group(
    file: pq.ParquetFile, path: Path, number: int, columns: list[str] | None = None
) -> pa.Table:
    """One row group of an open file; its pages are verified."""
    try:
        return file.read_row_group(number, columns=columns)
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error


def read_parquet(path: PathLike) -> pa.Table:
    """A whole table, checked to be what was written."""
    file = open_parquet(path)
    tables = list(read_batches(file, Path(path), _BATCH))
    return pa.concat_tables(tables) if tables else file.schema_arrow.empty_table()


_UNREADABLE = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)
"""What Arrow raises for damaged files."""


def _unreadable(path: PathLike, error: object) -> DataError:
    said = " ".join(str(error).split()).rstrip(".")
    return DataError(f"{os.fspath(path)} is not a readable Parquet file: {said}. {_AGAIN}")


class _TableChecksum:
    """SHA-256 of a header and of the columns of a table that comes in pieces, however it is cut."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        self._header = _without_checksum(header)
        self._columns: dict[str, Any] = {}

    def add(self, table: pa.Table) -> str:
        """Go on with the next rows; the checksum of all that was added."""
        for name in table.column_names:
            for chunk in table[name].chunks:
                self._add(name, chunk)
        sums = {name: column.hexdigest() for name, column in sorted(self._columns.items())}
        return hashlib.sha256(f"{self._header} {sums}".encode()).hexdigest()

    def _add(self, name: str, values: pa.Array) -> None:
        if len(values) and pa.types.is_nested(values.type):
            self._add(f"{name} lengths", values.value_lengths())
            self._add(f"{name} values", values.flatten())
        elif len(values):
            numbers = np.ascontiguousarray(values.to_numpy(zero_copy_only=False))
            column = self._columns.setdefault(f"{name} {numbers.dtype}", hashlib.sha256())
            column.update(numbers.data)


def table_with_header(columns: Mapping[str, Any], header: Mapping[str, Any]) -> pa.Table:
    """An Arrow table whose schema says what it holds (``what``) and all else in the header."""
    text = json.dumps({"format": FORMAT, **header}, ensure_ascii=False)
    return pa.table(dict(columns)).replace_schema_metadata({_HEADER: text})


def header_of(schema: pa.Schema, what: str) -> dict[str, Any] | None:
    """The header of such a table; None where there is none, or it holds something else."""
    header = _any_header(schema)
    return header if header.get("what") == what else None


def _any_header(schema: pa.Schema) -> dict[str, Any]:
    try:
        header = json.loads((schema.metadata or {}).get(_HEADER) or b"{}")
    except ValueError:
        return {}
    return header if isinstance(header, dict) else {}
