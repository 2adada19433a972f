"""Distances and accuracies from a CSV file, measured with any framework."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.io.tables import CsvTable, read_csv
from taskscape.tasks.class_lists import parse_classes, read_class_column

_EXPECTED = "expected a header, and a row for each test task"
_TASK_COLUMNS = ("task", "task_id", "id")
_NOT_ACCURACY = (
    *_TASK_COLUMNS, "index", "n_way", "classes", "distance", "nearest", "percentile",
    "log_likelihood", "calibration_error",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class DiagramData:
    """What :func:`correlation_diagram` takes."""

    distance: Float[np.ndarray, "tasks"]
    accuracy: dict[str, Float[np.ndarray, "tasks evaluations"]]
    difficulty: Float[np.ndarray, "tasks columns"] | None
    classes: Int[np.ndarray, "tasks way"] | None


def read_diagram_csv(
    path: str | os.PathLike[str],
    *,
    distance: str = "distance",
    accuracy: Sequence[str] | None = None,
    difficulty: Sequence[str] | None = None,
    classes: str | None = None,
) -> DiagramData:
    """Read a CSV with a header and a row per test task.

    ``distance`` names the column of distances. ``accuracy`` names those of accuracies: by default
    every other column but those called difficulty…, classes, task, task_id, id, index, n_way, and
    what `taskscape compare` and `evaluate` write besides (nearest, percentile, log_likelihood,
    calibration_error).
    Columns such as ``ProtoNet/1`` and ``ProtoNet/2`` are evaluations of one learner. The classes
    of a task are a JSON list of names, or plain ids.
    """
    table = read_csv(path, _EXPECTED, distance, *([] if classes is None else [classes]))
    if classes is None and "classes" in table.columns:
        classes = "classes"
    learners, hard = _measured(table, (distance, classes), accuracy, difficulty)
    return DiagramData(
        distance=table.numbers(distance),
        accuracy=learners,
        difficulty=hard,
        classes=None if classes is None else read_class_column(table, classes),
    )


def join_accuracies(
    path: str | os.PathLike[str],
    tasks: Embeddings,
    distance: Float[np.ndarray, "tasks"],
    *,
    accuracy: Sequence[str] | None = None,
    difficulty: Sequence[str] | None = None,
) -> tuple[DiagramData, str]:
    """Accuracies in a CSV file beside the distances of embedded tasks, and how they were joined.

    Rows are found by a column ``task`` (or ``task_id``, ``id``) with the numbers of the tasks; else
    by a column ``classes`` with JSON lists of their classes; else they are taken in order, if there
    is one for each task. Tasks without a row are left out.
    """
    table = read_csv(path, _EXPECTED)
    learners, hard = _measured(table, (), accuracy, difficulty)
    by, rows = _matched(table, tasks)
    known = np.flatnonzero(rows >= 0)
    if not len(known):
        raise DataError(f"{table.path} has no accuracy of any of the {len(tasks)} tasks.")
    lines, missing = rows[known], len(tasks) - len(known)
    left = f"; {missing:,} of the tasks have none" if missing else ""
    data = DiagramData(
        distance=np.asarray(distance)[known],
        accuracy={name: values[lines] for name, values in learners.items()},
        difficulty=None if hard is None else hard[lines],
        classes=tasks.classes[known].astype(np.int64),
    )
    return data, f"accuracies of {len(known):,} tasks joined by {by}{left}"


def _matched(table: CsvTable, tasks: Embeddings) -> tuple[str, Int[np.ndarray, "tasks"]]:
    """How rows were found, and the row of each task; -1 where it has none."""
    columns, where, n_rows = table.columns, table.path, len(table.lines)
    named = next((name for name in _TASK_COLUMNS if name in columns), None)
    if named is not None:
        for row, cell in enumerate(columns[named]):
            if not cell.isdecimal():
                raise DataError(
                    f"{table.place(row)}: {cell!r} in column {named!r} is not the number of a "
                    "task; they count from 0, as in `taskscape compare … --out`."
                )
        numbers = [int(cell) for cell in columns[named]]
        return f"column {named!r}", _rows_of(tasks.ids.tolist(), numbers, f"{where}: {named}")
    if "classes" in columns:
        listed = [parse_classes(cell) for cell in columns["classes"]]
        if any(names is None or isinstance(names[0], int) for names in listed):
            raise DataError(
                f"{where}: to be found by their classes, tasks need JSON lists of names, such as "
                '["cat", "sea lion"], in every row; or give a column task with their numbers.'
            )
        wanted = [tuple(sorted(tasks.names(i))) for i in range(len(tasks))]
        if len(set(wanted)) < len(wanted):
            raise DataError(
                f"{where}: several tasks have the same classes, so that rows cannot be found by "
                "them. Give a column task with their numbers."
            )
        keys = [tuple(sorted(map(str, names or ()))) for names in listed]
        return "column 'classes'", _rows_of(wanted, keys, f"{where}: the task of")
    if n_rows != len(tasks):
        raise DataError(
            f"{where} has {n_rows} rows for {len(tasks)} tasks, and no column task that says which "
            "is which. Add one: task numbers count from 0, as in `taskscape compare … --out`."
        )
    return "order, row by row", np.arange(n_rows)


def _rows_of(wanted: list[Any], keys: list[Any], where: str) -> Int[np.ndarray, "tasks"]:
    row_of: dict[Any, int] = {}
    known = set(wanted)
    for row, key in enumerate(keys):
        if key not in known:
            raise DataError(f"{where} {key} is not one of the {len(wanted)} tasks.")
        if key in row_of:
            raise DataError(
                f"{where} {key} has two rows. Give evaluations of a task as columns of one row, "
                "such as ProtoNet/1 and ProtoNet/2."
            )
        row_of[key] = row
    return np.array([row_of.get(key, -1) for key in wanted], dtype=np.int64)


def _measured(
    table: CsvTable,
    taken: Sequence[str | None],
    accuracy: Sequence[str] | None,
    difficulty: Sequence[str] | None,
) -> tuple[
    dict[str, Float[np.ndarray, "rows evaluations"]], Float[np.ndarray, "rows columns"] | None
]:
    """The accuracies of each learner, and the difficulties."""
    table.need(*(accuracy or ()), *(difficulty or ()))
    columns = table.columns
    hard = list(difficulty or [c for c in columns if c.startswith("difficulty")])
    others = [c for c in columns if c not in (*taken, *hard, *_NOT_ACCURACY)]
    chosen = list(accuracy) if accuracy is not None else others
    if not chosen:
        raise DataError(f"{table.path} has no column of accuracies besides {', '.join(columns)}.")
    learners: dict[str, list[np.ndarray]] = {}
    for name in chosen:
        learner = re.sub(r"/\d+$", "", name)
        accuracies = table.numbers(name, "; name the columns of accuracies if this is not one")
        learners.setdefault(learner, []).append(accuracies)
    difficulties = [table.numbers(c) for c in hard]
    return (
        {name: np.stack(parts, axis=1) for name, parts in learners.items()},
        np.stack(difficulties, axis=1) if hard else None,
    )
