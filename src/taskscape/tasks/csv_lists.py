"""Tasks that a user lists in a CSV file: a row for each class, or for each sample."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from taskscape.errors import DataError
from taskscape.io.files import as_path
from taskscape.io.tables import read_csv, write_csv
from taskscape.pools import ClassPool
from taskscape.tasks.taskset import TaskSet, make_tasks

_EXPECTED = "expected the columns task and class, and perhaps sample and role, or n_shot"
_ROLES = ("support", "query")


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
    samples: dict[str, Any] = {
        role: [
            [[_sample(pool, s) for s in of_class[role]] for of_class in of_task.values()]
            for of_task in tasks.values()
        ]
        for role in _ROLES
    }
    asked = any(ids for of_task in samples["query"] for ids in of_task)
    return make_tasks(
        pool, classes, support=samples["support"], query=samples["query"] if asked else None
    )


def _sample(pool: ClassPool, text: str) -> int | str:
    """A name of a sample, or its number where the samples of the pool have no names."""
    return int(text) if pool.sample_names is None and text.isdecimal() else text
