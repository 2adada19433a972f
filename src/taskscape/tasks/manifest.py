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
    names = table.columns
    if "sample" in names and "n_shot" in names:
        raise DataError(f"{table.path} has both sample and n_shot; list samples, or say how many.")
    tasks: dict[str, dict[str, dict[str, list[str]]]] = {}
    shots: dict[str, str] = {}
    for i, values in enumerate(zip(*names.values(), strict=True)):
        row = dict(zip(names, values, strict=True))
        of_task = tasks.setdefault(row["task"], {})
        if "sample" not in row and row["class"] in of_task:
            raise DataError(f"{table.place(i)}: task {row['task']!r} has the class before.")
        role = row.get("role", _ROLES[0]).lower()
        if role not in _ROLES:
            raise DataError(f"{table.place(i)}: role {role!r}; use support or query.")
        of_class = of_task.setdefault(row["class"], {name: [] for name in _ROLES})
        of_class[role].append(row.get("sample", ""))
        if shots.setdefault(row["task"], row.get("n_shot", "")) != row.get("n_shot", ""):
            raise DataError(
                f"{table.place(i)}: task {row['task']!r} has n_shot {shots[row['task']]} before."
            )
    try:
        return _as_tasks(pool, tasks, shots, listed="sample" in names, counted="n_shot" in names)
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


def _as_tasks(
    pool: ClassPool,
    tasks: dict[str, dict[str, dict[str, list[str]]]],
    shots: dict[str, str],
    *,
    listed: bool,
    counted: bool,
) -> TaskSet:
    classes = [list(of_task) for of_task in tasks.values()]
    if counted:
        if not all(number.isdecimal() for number in shots.values()):
            raise DataError("n_shot must be a whole number in every row.")
        return make_tasks(pool, classes, n_shot=[int(number) for number in shots.values()])
    if not listed:
        return make_tasks(pool, classes)

    def meant(text: str) -> int | str:
        return int(text) if pool.sample_names is None and text.isdecimal() else text

    samples: dict[str, Any] = {
        role: [
            [[meant(text) for text in of_class[role]] for of_class in of_task.values()]
            for of_task in tasks.values()
        ]
        for role in _ROLES
    }
    asked = any(ids for of_task in samples["query"] for ids in of_task)
    return make_tasks(
        pool, classes, support=samples["support"], query=samples["query"] if asked else None
    )
