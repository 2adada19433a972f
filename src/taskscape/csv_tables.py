"""CSV files: what users hand over is read and checked in one way, and so are sheets written."""

import csv
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from taskscape.errors import DataError
from taskscape.files import expanded

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FORMULA = re.compile("'*[=+@-]")
_AS_TEXT = re.compile("^'('*[=+@-])")


@dataclass(frozen=True)
class CsvTable:
    """The columns of a CSV file as text, each row with the line of the file where it begins."""

    path: str
    expected: str
    """What the file should hold, for messages."""
    columns: dict[str, list[str]]
    lines: list[int]

    def place(self, row: int) -> str:
        """Where a row stands, for messages; the first row below the header is row 0."""
        return f"{self.path}, line {self.lines[row]}"

    def need(self, *names: str) -> None:
        """Raise an error unless these columns are there."""
        for name in names:
            if name not in self.columns:
                raise DataError(
                    f"{self.path} has no column {name!r}, but {', '.join(self.columns)}; "
                    f"{self.expected}."
                )

    def numbers(self, name: str, remedy: str = "") -> Float[np.ndarray, "rows"]:
        """A column of numbers; ``remedy`` ends the message about a cell that is none."""
        values = []
        for row, text in enumerate(self.columns[name]):
            try:
                values.append(float(text))
            except ValueError:
                raise DataError(
                    f"{self.place(row)}: {text!r} in column {name!r} is not a number{remedy}."
                ) from None
        return np.array(values)


def read_csv(
    path: str | os.PathLike[str], expected: str, *needed: str, any_case: bool = False
) -> CsvTable:
    """The table in a CSV file, which has a header and one row or more.

    ``expected`` says in messages what the file should hold, and ``needed`` are columns that it must
    have. Anything else is refused, with its file and line. Empty lines and columns without
    a name are passed over; with ``any_case``, names of columns are read in small letters.
    """
    where, lines, rows = os.fspath(path), [], []
    try:
        for line, row in csv_rows(path):
            lines.append(line)
            rows.append([_AS_TEXT.sub(r"\1", value.strip()) for value in row])
    except FileNotFoundError:
        raise DataError(f"no such file: {where}; {expected}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{where} cannot be read ({error}); {expected}.") from error
    names = [name.lower() if any_case else name for name in rows[0]] if rows else []
    if not any(names):
        raise DataError(f"{where} is empty or names no columns; {expected}.")
    check_header(where, names)
    for name in names:
        if name and names.count(name) > 1:
            raise DataError(f"{where} has two columns {name!r}; {expected}.")
    for line, row in zip(lines, rows, strict=True):
        if len(row) != len(names):
            raise DataError(f"{where}, line {line}: {len(row)} values for {len(names)} columns.")
    columns = {name: [row[c] for row in rows[1:]] for c, name in enumerate(names) if name}
    table = CsvTable(where, expected, columns, lines[1:])
    table.need(*needed)
    if len(rows) < 2:
        raise DataError(f"{where} has no rows below its header; {expected}.")
    return table


def csv_rows(path: str | os.PathLike[str], delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """The rows of a file that are not empty, and the line where each begins."""
    with expanded(path).open(newline="", encoding="utf-8-sig") as file:
        reader, begin = csv.reader(file, delimiter=delimiter, strict=True), 1
        try:
            for row in reader:
                if row:
                    yield begin, row
                begin = reader.line_num + 1
        except csv.Error as error:
            unclosed = "unexpected end of data" in str(error)
            what = "a quote is opened and never closed" if unclosed else error
            raise DataError(f"{os.fspath(path)}, line {begin}: {what}.") from error


def check_header(where: str, names: Sequence[str]) -> None:
    """Raise an error if the first row is numbers: they are data, unless they count the columns."""
    if all(_NUMBER.fullmatch(name) for name in names) and list(names) != [
        str(c) for c in range(len(names))
    ]:
        raise DataError(
            f"{where}, line 1: numbers in every column ({', '.join(names[:4])}, …). Is this the "
            "first row of data? Add a line above it that names the columns."
        )


def write_csv(path: Path, columns: Mapping[str, Sequence[Any] | np.ndarray]) -> None:
    """Columns as CSV; text that a spreadsheet would take for a formula begins with ``'``."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        for row in (columns, *zip(*columns.values(), strict=True)):
            writer.writerow(
                f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell
                for cell in row
            )
