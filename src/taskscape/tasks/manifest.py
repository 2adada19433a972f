"""A TaskSet as an Arrow table and back, bound to its pool by the pool's fingerprint."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from taskscape.errors import DataError
from taskscape.pools import ClassPool
from taskscape.tasks.taskset import TaskSet, class_dtype

__all__ = ["class_column", "from_table", "padded_classes", "read_header", "to_table"]

_FORMAT = 1
_HEADER = b"taskscape"


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
        "format": _FORMAT,
        "what": "tasks",
        "pool": tasks.pool.name,
        "fingerprint": tasks.pool.fingerprint,
        "n_query": tasks.n_query,
        "class_names": tasks.pool.class_names,
    }
    table = pa.table(columns)
    return table.replace_schema_metadata({_HEADER: json.dumps(header, ensure_ascii=False)})


def from_table(table: pa.Table, pool: ClassPool, source: str = "the table") -> TaskSet:
    """The TaskSet of a table made by :func:`to_table`, over the pool it was made for."""
    header = read_header(table.schema, source)
    if header["fingerprint"] != pool.fingerprint:
        raise DataError(
            f"{source} belongs to pool {header['pool']!r} of {len(header['class_names'])} classes "
            f"(fingerprint {header['fingerprint'][:12]}…), not to {pool!r} "
            f"(fingerprint {pool.fingerprint[:12]}…). Open the pool that the tasks were made from, "
            "with the same split and options."
        )
    try:
        classes = padded_classes(table["classes"], class_dtype(pool))
        tasks = TaskSet(
            pool=pool,
            classes=classes,
            keys=table["key"].to_numpy().astype(np.uint64),
            n_shot=table["n_shot"].to_numpy().astype(np.int32),
            n_query=int(header["n_query"]),
            support=_listed(table, "support", classes.shape),
            query=_listed(table, "query", classes.shape),
        )
    except (KeyError, TypeError, pa.ArrowInvalid) as error:
        raise DataError(f"{source} is not a list of tasks that can be read: {error}.") from error
    if tasks.classes.size and tasks.classes.max() >= len(pool):
        raise DataError(f"{source} names class {tasks.classes.max()}; {pool!r} has fewer.")
    return tasks


def read_header(schema: pa.Schema, source: str) -> dict[str, Any]:
    """What the schema of a table made by :func:`to_table` says of the tasks."""
    raw = (schema.metadata or {}).get(_HEADER)
    try:
        header = json.loads(raw or b"{}")
    except ValueError:
        header = {}
    if header.get("what") != "tasks":
        raise DataError(
            f"{source} is not a list of tasks written by taskscape. "
            "Write one with save_tasks or `taskscape tasks`."
        )
    if header["format"] > _FORMAT:
        raise DataError(f"{source} was written by a newer taskscape; please upgrade.")
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
    ways = [np.diff(chunk.offsets.to_numpy()) for chunk in column.chunks]
    way = np.concatenate(ways) if ways else np.zeros(0, dtype=np.int32)
    classes = np.full((len(way), int(way.max(initial=0))), -1, dtype=kind)
    ids = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    classes[np.arange(classes.shape[1]) < way[:, None]] = np.concatenate(ids) if ids else []
    return classes


def _listed(
    table: pa.Table, name: str, shape: tuple[int, ...]
) -> Int[np.ndarray, "tasks way n"] | None:
    if name not in table.column_names:
        return None
    flat = table[name].combine_chunks().flatten().flatten().to_numpy(zero_copy_only=False)
    each = table.schema.field(name).type.value_type.list_size
    return flat.astype(np.int64).reshape(*shape, each)
