"""Tasks in files: Parquet, bound to its pool by the pool's fingerprint, and lists in CSV."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from taskscape.arguments import public
from taskscape.errors import DataError
from taskscape.io.files import Kind, as_path, atomic_write
from taskscape.io.tables import (
    header_of,
    open_parquet,
    read_csv,
    read_parquet,
    table_with_header,
    write_csv,
    write_parquet,
)
from taskscape.io.values import check_format
from taskscape.pools import ClassPool
from taskscape.tasks.taskset import TaskSet, class_dtype, make_tasks, pad_classes

_EXPECTED = "expected the columns task and class, and perhaps sample and role, or n_shot"
_ROLES = ("support", "query")


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
    return bool(read_header(open_parquet(path).schema_arrow, str(path)))


TASKS = Kind("a list of tasks", _is_tasks)


def save_tasks(tasks: TaskSet, path: str | os.PathLike[str]) -> None:
    """See :meth:`TaskSet.save`."""
    with atomic_write(path, TASKS) as file:
        if is_csv(path):
            write_tasks_csv(file, tasks)
        else:
            write_parquet(file, to_table(tasks))


@public
def load_tasks(path: str | os.PathLike[str], pool: ClassPool) -> TaskSet:
    """See :meth:`TaskSet.load`."""
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


# -- lists in CSV: a row for each class, or for each sample ---------------------------------------


def is_csv(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a list of tasks that a user wrote."""
    return as_path(path).suffix.lower() == ".csv"


def read_tasks_csv(path: str | os.PathLike[str], pool: ClassPool) -> TaskSet:
    """Tasks from a CSV file over the classes of a pool, in the order in which they come.

    With the columns ``task`` and ``class``, a row names a class of a task, which has all of its
    samples, or as many as a column ``n_shot`` says. With ``sample``, a row names one sample, by its
    name or, where samples have none, its number within the class, and ``role`` says ``support`` or
    ``query``; left out, all are support.
    """
    table = read_csv(path, _EXPECTED, "task", "class", any_case=True)
    columns = table.columns
    if "sample" in columns and "n_shot" in columns:
        raise DataError(f"{table.path} has both sample and n_shot; list samples, or say how many.")
    classes: dict[str, list[str]] = {}
    shots: dict[str, str] = {}
    samples: dict[tuple[str, ...], list[int | str]] = {}
    for i, values in enumerate(zip(*columns.values(), strict=True)):
        row = dict(zip(columns, values, strict=True))
        task, name, role = row["task"], row["class"], row.get("role", _ROLES[0]).lower()
        own, sample, shot = classes.setdefault(task, []), row.get("sample"), row.get("n_shot", "")
        if sample is None and name in own:
            raise DataError(f"{table.place(i)}: task {task!r} has the class before.")
        if role not in _ROLES:
            raise DataError(f"{table.place(i)}: role {role!r}; use support or query.")
        if shots.setdefault(task, shot) != shot:
            raise DataError(f"{table.place(i)}: task {task!r} has n_shot {shots[task]} before.")
        own += [] if name in own else [name]
        if sample is not None:
            numbered = pool.sample_names is None and sample.isdecimal()
            listed = samples.setdefault((role, task, name), [])
            listed.append(int(sample) if numbered else sample)
    options: dict[str, Any] = {
        role: [[samples.get((role, t, name), []) for name in own] for t, own in classes.items()]
        for role in {role for role, *_ in samples}
    }
    if "n_shot" in columns:
        if not all(shot.isdecimal() for shot in shots.values()):
            raise DataError(f"{table.path}: n_shot must be a whole number in every row.")
        options["n_shot"] = [int(shot) for shot in shots.values()]
    try:
        return make_tasks(pool, list(classes.values()), **options)
    except DataError as error:
        raise DataError(f"{table.path}: {error}") from error


def write_tasks_csv(path: Path, tasks: TaskSet) -> None:
    """A line for each sample, as :func:`read_tasks_csv` reads it, with its row for the user."""
    pool, drawn = tasks.pool, tasks.pool_rows(slice(None))
    lines = []
    for role in _ROLES:
        rows, mask = getattr(drawn, role), getattr(drawn, f"{role}_mask")
        task, slot, _ = np.nonzero(mask)
        lines.append((task, slot, np.full(len(task), role), rows[mask]))
    task, slot, roles, row = (np.concatenate(parts) for parts in zip(*lines, strict=True))
    order = np.argsort(task, kind="stable")  # of each task the support first, as in its rows
    task, slot, roles, row = task[order], slot[order], roles[order], row[order]
    classes = tasks.classes[task, slot]
    names = pool.sample_names
    sample = row - pool.starts[classes] if names is None else [names[r] for r in row]
    columns = {"task": task, "class": [pool.class_names[c] for c in classes], "sample": sample}
    given = {} if pool.sources else {"row": pool.given(row)}
    write_csv(path, {**columns, "role": roles, **given})
