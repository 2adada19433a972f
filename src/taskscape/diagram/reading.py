"""Distances and accuracies from a CSV file, measured with any framework."""

import csv
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from taskscape.errors import DataError
from taskscape.tasks.class_lists import read_class_column

__all__ = ["DiagramData", "read_diagram_csv"]

_NOT_ACCURACY = ("task", "task_id", "id", "index", "n_way", "classes", "nearest", "percentile")


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
    what `taskscape compare` writes besides (nearest, percentile).
    Columns such as ``ProtoNet/1`` and ``ProtoNet/2`` are evaluations of one learner. The classes
    of a task are a JSON list of names, or plain ids.
    """
    columns = _columns(path)
    where = os.fspath(path)
    for name in (distance, *(accuracy or ()), *(difficulty or ()), *([classes] if classes else ())):
        if name not in columns:
            raise DataError(f"{where} has no column {name!r}; it has {', '.join(columns)}.")
    if classes is None and "classes" in columns:
        classes = "classes"
    hard = list(difficulty or [c for c in columns if c.startswith("difficulty")])
    others = [c for c in columns if c not in (distance, classes, *hard, *_NOT_ACCURACY)]
    chosen = list(accuracy) if accuracy is not None else others
    if not chosen:
        raise DataError(f"{where} has no column of accuracies besides {', '.join(columns)}.")
    learners: dict[str, list[np.ndarray]] = {}
    for name in chosen:
        learner = re.sub(r"/\d+$", "", name)
        learners.setdefault(learner, []).append(_numbers(columns[name], name, where))
    return DiagramData(
        distance=_numbers(columns[distance], distance, where),
        accuracy={name: np.stack(parts, axis=1) for name, parts in learners.items()},
        difficulty=np.stack([_numbers(columns[c], c, where) for c in hard], axis=1)
        if hard
        else None,
        classes=None
        if classes is None
        else read_class_column(columns[classes], f"{where}, column {classes!r}"),
    )


def _columns(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
    except FileNotFoundError:
        raise DataError(f"no such file: {os.fspath(path)}.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{os.fspath(path)} is not a CSV text file: {error}.") from error
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise DataError(f"{os.fspath(path)} has no rows below its header.")
    header = [name.strip() for name in rows[0]]
    for i, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise DataError(
                f"{os.fspath(path)}, row {i}: {len(row)} values for {len(header)} columns."
            )
    return {name: [row[c].strip() for row in rows[1:]] for c, name in enumerate(header)}


def _numbers(values: list[str], name: str, where: str) -> Float[np.ndarray, "tasks"]:
    for i, value in enumerate(values, start=2):
        try:
            float(value)
        except ValueError:
            raise DataError(
                f"{where}, row {i}: {value!r} in column {name!r} is not a number. Name the columns "
                "of accuracies if this is not one."
            ) from None
    return np.array([float(v) for v in values])
