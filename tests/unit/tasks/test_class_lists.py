"""Classes written to a table come back as they were, whatever their names hold."""

import csv
from pathlib import Path

import numpy as np
import pytest

from taskscape.diagram import read_diagram_csv
from taskscape.errors import DataError
from taskscape.io.tables import CsvTable
from taskscape.tasks.class_lists import parse_classes, read_class_column, write_classes

NAMES = [
    "sea lion", "sea", "lion", "a;b", "a,b", 'say "hi"', "[x]", "(1 2)", "Ελλάδα/άλφα", "狗",
    "back\\slash", "it's", "", " padded ", "line\nbreak", "7", "7 8", "null",
]  # fmt: skip


def draws(n: int) -> list[list[str]]:
    rng = np.random.default_rng(0)
    rows = [rng.permutation(len(NAMES))[: rng.integers(1, 6)] for _ in range(n)]
    return [[NAMES[i] for i in row] for row in rows]


def test_every_name_survives_the_round_trip() -> None:
    for row in [NAMES, *draws(20)]:
        assert parse_classes(write_classes(row)) == row


def test_a_column_keeps_classes_apart_through_a_file(tmp_path: Path) -> None:
    tasks = [NAMES, *draws(60)]
    path = tmp_path / "d.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["classes", "distance", "ProtoNet"])
        writer.writerows([write_classes(row), i, 0.5] for i, row in enumerate(tasks))
    result = read_diagram_csv(path).classes
    assert result is not None
    order = sorted(NAMES)
    back = [[order[c] for c in row if c >= 0] for row in result]
    assert back == tasks
    assert len(np.unique(result[result >= 0])) == len(NAMES)


def column_of(cells: list[str]) -> CsvTable:
    return CsvTable("t.csv", "", {"classes": cells}, list(range(2, len(cells) + 2)))


@pytest.mark.parametrize(
    "cells",
    [["3 14", "14 7 3"], ["3;14", "14;7;3"], ["[3, 14]", "[14,7,3]"], ["[3 14]", "(14 7 3)"]],
)
def test_plain_ids_are_read_as_they_come(cells: list[str]) -> None:
    result = read_class_column(column_of(cells), "classes")
    np.testing.assert_array_equal(result, [[0, 2, -1], [2, 1, 0]])


@pytest.mark.parametrize(
    ("cells", "row", "message"),
    [
        (["1 2", "sea lion"], 1, "does not say where a class ends and the next begins. Write a"),
        (["cat;dog"], 0, "does not say where a class ends and the next begins. Write a JSON list"),
        (["cat"], 0, "does not say where a class ends and the next begins. Write a JSON list of"),
        (["[1, \"a\"]"], 0, "does not say where a class ends and the next begins. Write a JSON"),
        (["-1 3"], 0, "does not say where a class ends and the next begins. Write a JSON list of"),
        (["1.5 3"], 0, "does not say where a class ends and the next begins. Write a JSON list of"),
        ([""], 0, "does not say where a class ends and the next begins. Write a JSON list of"),
        (["[]"], 0, "holds no class; give each class of the task."),
        (['["a", "a"]'], 0, "holds a class twice; give each class of the task."),
        (['["a"]', "3"], 1, "and '[\"a\"]' in the first row are names and ids; give all rows"),
    ],
)  # fmt: skip
def test_what_is_unclear_is_refused(cells: list[str], row: int, message: str) -> None:
    with pytest.raises(DataError) as error:
        read_class_column(column_of(cells), "classes")
    place = f"t.csv, line {row + 2}: {cells[row]!r} in column 'classes' "
    assert str(error.value).startswith(place + message)
