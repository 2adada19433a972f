"""The classes of a task as text: a JSON list, in one cell of a table or one option.

Names may hold spaces, commas, semicolons, quotes and brackets, so nothing but a list that quotes
them says where one ends and the next begins.
"""

import json
import re
from collections.abc import Iterable

import numpy as np
from jaxtyping import Int

from taskscape.errors import DataError
from taskscape.io.tables import CsvTable

_EXAMPLE = '["cat", "sea lion"]'
_PLAIN_IDS = re.compile(r"[\[(]?\s*\d+(?:[\s;,]+\d+)*\s*[\])]?", re.ASCII)


def write_classes(names: Iterable[str]) -> str:
    """The names of a task's classes as text that :func:`read_class_column` reads.

    >>> write_classes(["cat", "sea lion"])
    '["cat", "sea lion"]'
    """
    return json.dumps([str(name) for name in names], ensure_ascii=False)


def parse_classes(text: str) -> list[str] | list[int] | None:
    """The names, or the ids, in a JSON list or in a row of plain integers; None where unclear."""
    if _PLAIN_IDS.fullmatch(text.strip()):
        return [int(word) for word in re.findall(r"\d+", text)]
    try:
        classes = json.loads(text)
    except ValueError:
        return None
    if isinstance(classes, list) and all(isinstance(c, str) for c in classes):
        return classes
    return None


def read_class_column(table: CsvTable, column: str) -> Int[np.ndarray, "tasks way"]:
    """The classes of every task, numbered in sorted order, padded with -1.

    What could be read in more than one way, such as names with spaces between, is refused.
    """
    rows: list[list[str] | list[int]] = []
    cells = table.columns[column]
    for i, cell in enumerate(cells):
        classes = parse_classes(cell)
        where = f"{table.place(i)}: {cell!r} in column {column!r}"
        if classes is None:
            raise DataError(
                f"{where} does not say where a class ends and the next begins. "
                f"Write a JSON list of names, such as {_EXAMPLE}, or plain ids, such as 3 14 15."
            )
        if not classes or len(set(classes)) < len(classes):
            problem = "holds a class twice" if classes else "holds no class"
            raise DataError(f"{where} {problem}; give each class of the task.")
        if rows and type(classes[0]) is not type(rows[0][0]):
            raise DataError(
                f"{where} and {cells[0]!r} in the first row are names and ids; give all rows "
                "names, or all ids."
            )
        rows.append(classes)
    every = sorted({c for row in rows for c in row})
    number = {c: i for i, c in enumerate(every)}
    padded = np.full((len(rows), max(map(len, rows), default=0)), -1, dtype=np.int64)
    for line, classes in zip(padded, rows, strict=True):
        line[: len(classes)] = [number[c] for c in classes]
    return padded
