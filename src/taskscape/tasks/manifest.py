"""A TaskSet as an Arrow table and as a file, bound to its pool by the pool's fingerprint."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from taskscape.arguments import check_kind
from taskscape.errors import DataError
from taskscape.io.files import Kind, written_in_one_piece
from taskscape.io.tables import (
    header_of,
    open_parquet,
    read_parquet,
    table_with_header,
    write_parquet,
)
from taskscape.io.values import check_format
from taskscape.pools import ClassPool
from taskscape.tasks.csv_lists import is_csv, read_tasks_csv, write_tasks_csv
from taskscape.tasks.taskset import TaskSet, class_dtype, pad_classes


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


def read_header(schema: pa.Schema, source: str) -> dict[str, Any]:
    """What the schema of a table made by :func:`to_table` says of the tasks."""
    header = header_of(schema, "tasks")
    if header is None or "sha256" not in header:  # by which its values are verified
        raise DataError(
            f"{source} is not a list of tasks written by taskscape. "
            "Write one with save_tasks or `taskscape tasks`."
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
    lists = column.combine_chunks()
    return pad_classes(lists.flatten().to_numpy(), np.diff(lists.offsets.to_numpy()), kind)


def _listed(
    table: pa.Table, name: str, shape: tuple[int, ...]
) -> Int[np.ndarray, "tasks way n"] | None:
    if name not in table.column_names:
        return None
    lists = table[name].combine_chunks()
    ids = lists.flatten().flatten().to_numpy()
    return ids.astype(np.int64).reshape(*shape, lists.type.value_type.list_size)


# -- files --------------------------------------------------------------------------------------


def _is_tasks(path: Path) -> bool:
    if is_csv(path):
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline().startswith("task,class,sample,role")
    try:
        read_header(open_parquet(path).schema_arrow, str(path))
    except DataError:
        return False
    return True


TASKS = Kind("a list of tasks", _is_tasks)


def save_tasks(tasks: TaskSet, path: str | os.PathLike[str]) -> None:
    """See :meth:`TaskSet.save`."""
    with written_in_one_piece(path, TASKS) as file:
        if is_csv(path):
            write_tasks_csv(file, tasks)
        else:
            write_parquet(file, to_table(tasks))


def load_tasks(path: str | os.PathLike[str], pool: ClassPool) -> TaskSet:
    """See :meth:`TaskSet.load`."""
    check_kind(pool, ClassPool, "pool", "Open one with load_pool.")
    if is_csv(path):
        return read_tasks_csv(path, pool)
    source = os.fspath(path)
    # of the file, not of the table: Parquet has two copies of it, and one is verified
    header = read_header(open_parquet(path).schema_arrow, source)
    table = read_parquet(path)
    if header["fingerprint"] != pool.fingerprint:
        raise DataError(
            f"{source} belongs to pool {header['pool']!r} of {len(header['class_names'])} classes "
            f"(fingerprint {header['fingerprint'][:12]}…), not to {pool!r} "
            f"(fingerprint {pool.fingerprint[:12]}…). Open the pool that the tasks were made from, "
            "with the same split and options."
        )
    classes = padded_classes(table["classes"], class_dtype(pool))
    return TaskSet(
        pool,
        classes,
        keys=table["key"].to_numpy(),
        n_shot=table["n_shot"].to_numpy(),
        n_query=header["n_query"],
        support=_listed(table, "support", classes.shape),
        query=_listed(table, "query", classes.shape),
    )
