"""A TaskSet as an Arrow table and as a file, bound to its pool by the pool's fingerprint."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int, Integer

from taskscape.arguments import check_kind
from taskscape.errors import DataError
from taskscape.files import Kind, written_in_one_piece
from taskscape.pools import ClassPool
from taskscape.storage import (
    check_format,
    header_of,
    open_parquet,
    read_parquet,
    table_with_header,
    write_parquet,
)
from taskscape.tasks.csv_lists import is_csv, read_tasks_csv
from taskscape.tasks.taskset import (
    TaskSet,
    check_drawn,
    class_table,
    listed_tasks,
    pad_classes,
)

__all__ = [
    "TASKS",
    "class_column",
    "from_table",
    "load_tasks",
    "padded_classes",
    "read_header",
    "save_tasks",
    "to_table",
]

_HEADER_KINDS = {
    "format": int, "pool": str, "fingerprint": str, "n_query": int, "class_names": list
}  # fmt: skip


def to_table(tasks: TaskSet) -> pa.Table:
    """One row per task: class ids, the key its samples derive from, shots, and listed samples.

    The schema's metadata says which pool (name, fingerprint, class names) and how many queries.
    """
    columns: dict[str, Any] = {
        "classes": class_column(tasks.classes),
        "key": pa.array(tasks.keys, pa.uint64()),
        "n_shot": pa.array(tasks.n_shot, pa.int32()),
    }
    for name, ids in (("support", tasks.support), ("query", tasks.query)):
        if ids is not None:
            flat = pa.array(ids.reshape(-1).astype(np.int32))
            inner = pa.FixedSizeListArray.from_arrays(flat, ids.shape[2])
            columns[name] = pa.FixedSizeListArray.from_arrays(inner, ids.shape[1])
    header = {
        "what": "tasks",
        "pool": tasks.pool.name,
        "fingerprint": tasks.pool.fingerprint,
        "n_query": tasks.n_query,
        "class_names": tasks.pool.class_names,
    }
    return table_with_header(columns, header)


def from_table(table: pa.Table, pool: ClassPool, source: str = "the table") -> TaskSet:
    """The TaskSet of a table made by :func:`to_table`, over the pool it was made for.

    It passes the same checks as tasks made by hand.
    """
    header = read_header(table.schema, source)
    if header["fingerprint"] != pool.fingerprint:
        raise DataError(
            f"{source} belongs to pool {header['pool']!r} of {len(header['class_names'])} classes "
            f"(fingerprint {header['fingerprint'][:12]}…), not to {pool!r} "
            f"(fingerprint {pool.fingerprint[:12]}…). Open the pool that the tasks were made from, "
            "with the same split and options."
        )
    try:
        return _checked(table, pool, header["n_query"])
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise DataError(
            f"{source} is not a list of tasks that can be used: {str(error).rstrip('.')}. "
            "Write it again with save_tasks or `taskscape tasks`."
        ) from error


def _checked(table: pa.Table, pool: ClassPool, n_query: int) -> TaskSet:
    classes = class_table(pool, *_read_classes(table["classes"]))
    keys = _numbers(table["key"], "key", pa.uint64())
    n_shot = _numbers(table["n_shot"], "n_shot", pa.int32())
    support = _listed(table, "support", classes.shape)
    query = _listed(table, "query", classes.shape)
    if support is None:
        if query is not None:
            raise DataError("it lists query samples without support samples")
        check_drawn(pool, classes, n_shot, n_query)
        return TaskSet(pool, classes, keys, n_shot, n_query)
    tasks = listed_tasks(pool, classes, keys, support, query)
    if tasks.n_query != n_query or (tasks.n_shot != n_shot).any():
        raise DataError("n_shot or n_query are not the numbers of samples that are listed")
    return tasks


def read_header(schema: pa.Schema, source: str) -> dict[str, Any]:
    """What the schema of a table made by :func:`to_table` says of the tasks."""
    header = header_of(schema, "tasks")
    if header is None:
        raise DataError(
            f"{source} is not a list of tasks written by taskscape. "
            "Write one with save_tasks or `taskscape tasks`."
        )
    for key, kind in _HEADER_KINDS.items():
        if type(header.get(key)) is not kind:
            raise DataError(
                f"{source}: its header has {key}={header.get(key)!r}; expected {kind.__name__}. "
                "Write it again with save_tasks or `taskscape tasks`."
            )
    check_format(header, source)
    return header


def class_column(classes: Int[np.ndarray, "tasks way"]) -> pa.ListArray:
    """Class ids as a column of lists, without the padding."""
    real = classes >= 0
    offsets = np.concatenate([[0], np.cumsum(real.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(classes[real], pa.int32()))


def padded_classes(
    column: pa.ChunkedArray, kind: type[np.signedinteger]
) -> Int[np.ndarray, "tasks way"]:
    """The class ids of such a column, padded with -1."""
    return pad_classes(*_read_classes(column), kind)


def _read_classes(
    column: pa.ChunkedArray,
) -> tuple[Int[np.ndarray, "all"], Int[np.ndarray, "tasks"]]:
    """The class ids of all tasks one after another, and how many each task has."""
    lists = column.cast(pa.list_(pa.int32()))
    ids = _numbers(_flat(lists, "classes"), "classes", pa.int32())
    ways = [np.diff(chunk.offsets.to_numpy()) for chunk in lists.chunks]
    return ids, np.concatenate(ways) if ways else np.zeros(0, dtype=np.int32)


def _flat(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """What the lists of a column hold, one list after another; no list may be missing."""
    if column.null_count:
        raise DataError(f"{name} has empty cells.")
    parts = [chunk.flatten() for chunk in column.chunks]
    return pa.chunked_array(parts, column.type.value_type)


def _numbers(column: pa.ChunkedArray, name: str, kind: pa.DataType) -> Integer[np.ndarray, "all"]:
    """The whole numbers of a column; none may be missing, or be too large for its type."""
    if column.null_count:
        raise DataError(f"{name} has empty cells.")
    return np.asarray(column.cast(kind).to_numpy())


def _listed(
    table: pa.Table, name: str, shape: tuple[int, ...]
) -> Int[np.ndarray, "tasks way n"] | None:
    if name not in table.column_names:
        return None
    kind = table.schema.field(name).type
    fixed = pa.types.is_fixed_size_list
    if not (fixed(kind) and fixed(kind.value_type)):
        raise DataError(f"{name} has type {kind}; expected lists of one size of lists of one size.")
    flat = _numbers(_flat(_flat(table[name], name), name), name, pa.int32())
    return flat.astype(np.int64).reshape(*shape, kind.value_type.list_size)


# -- files --------------------------------------------------------------------------------------


def _is_tasks(path: Path) -> bool:
    try:
        read_header(open_parquet(path).schema_arrow, str(path))
    except DataError:
        return False
    return True


TASKS = Kind("a list of tasks", _is_tasks)


def save_tasks(tasks: TaskSet, path: str | os.PathLike[str]) -> None:
    """See :meth:`TaskSet.save`."""
    with written_in_one_piece(path, TASKS) as file:
        write_parquet(file, to_table(tasks))


def load_tasks(path: str | os.PathLike[str], pool: ClassPool) -> TaskSet:
    """See :meth:`TaskSet.load`."""
    check_kind(pool, ClassPool, "pool", "Open one with load_pool.")
    if is_csv(path):
        return read_tasks_csv(path, pool)
    return from_table(read_parquet(path), pool, os.fspath(path))
