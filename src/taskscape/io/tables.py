"""Tables: Parquet of our own, verified on reading, and CSV files that users hand over or open."""

import csv
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float

from taskscape.errors import DataError
from taskscape.io.files import (
    NO_CHECKSUM_YET,
    Kind,
    PathLike,
    add_checksum,
    as_path,
    expanded,
    is_as_written,
)
from taskscape.io.values import FORMAT

_NUMBER = re.compile(r"\s*([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|nan|NaN)\s*", re.ASCII)
_FORMULA = re.compile("'*[=+@-]")
_AS_TEXT = re.compile("^'('*[=+@-])")
_HEADER = b"taskscape"
_BATCH = 1 << 17
_AGAIN = "Make it again, or take it from a backup."


def table_with(name: str, *columns: str, more: str | None = None) -> Kind:
    """The kind of CSV and Parquet files with these columns, then any that begin with ``more``.

    A file with other columns is not of this kind: a user may have added them.
    """

    def is_so(path: Path) -> bool:
        if path.suffix == ".parquet":
            names = open_parquet(path).schema_arrow.names
        else:
            with path.open(newline="", encoding="utf-8") as file:
                names = next(csv.reader(file), [])
        rest = names[len(columns) :]
        return [*columns, *rest] == names and all(more and name.startswith(more) for name in rest)

    return Kind(name, is_so)


# -- Parquet: every page has a checksum, and a table with a header has one of the whole file ------


def write_table(path: Path, columns: Mapping[str, Any]) -> None:
    """Columns as Parquet: lists, arrays, or arrays with several numbers in each row."""
    write_parquet(path, pa.table({name: _column(values) for name, values in columns.items()}))


def _column(values: Any) -> pa.Array:
    return list_column(values) if getattr(values, "ndim", 1) == 2 else pa.array(values)


def list_column(rows: np.ndarray) -> pa.FixedSizeListArray:
    """Rows of as many numbers each as a column."""
    flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])


def read_table(path: Path) -> dict[str, Any]:
    """The columns of such a file: arrays, or lists where they hold text."""
    table = read_parquet(path)
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if pa.types.is_fixed_size_list(column.type):
            columns[name] = column.flatten().to_numpy().reshape(-1, column.type.list_size)
        elif pa.types.is_string(column.type):
            columns[name] = column.to_pylist()
        else:
            columns[name] = column.to_numpy(zero_copy_only=False)
    return columns


def write_parquet(path: Path, table: pa.Table, **options: Any) -> None:
    """Write a table so that damage is noticed on reading."""
    header = _any_header(table.schema)
    if header:
        table = _with_header(table, header | {"sha256": NO_CHECKSUM_YET})
    pq.write_table(table, path, compression="zstd", write_page_checksum=True, **options)
    if header:
        add_checksum(path)


def open_parquet(path: PathLike) -> pq.ParquetFile:
    """A Parquet file whose pages are verified as they are read."""
    if not as_path(path).is_file():
        raise DataError(f"no such file: {os.fspath(path)}.")
    with _readable(path):
        return pq.ParquetFile(path, page_checksum_verification=True)


@contextmanager
def _readable(path: PathLike) -> Iterator[None]:
    """Name the file where Arrow says that it is damaged."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise DataError(
            f"{os.fspath(path)} is not a readable Parquet file: {reason}. {_AGAIN}"
        ) from error


def read_batches(
    file: pq.ParquetFile, path: Path, batch_size: int, columns: list[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of an open file, so many at a time; all columns only of a file that is whole."""
    signed = columns is None and "sha256" in _any_header(file.schema_arrow)
    if signed and not is_as_written(path):
        raise DataError(
            f"{path} is damaged or was edited: it does not match its own checksum. {_AGAIN}"
        )
    with _readable(path):
        for batch in file.iter_batches(batch_size, columns=columns):
            yield pa.Table.from_batches([batch])


def read_row_group(file: pq.ParquetFile, path: Path, number: int) -> pa.Table:
    """One row group of an open file; its pages are verified."""
    with _readable(path):
        return file.read_row_group(number)


def read_parquet(path: PathLike) -> pa.Table:
    """A whole table, checked to be what was written."""
    file = open_parquet(path)
    tables = list(read_batches(file, Path(path), _BATCH))
    return pa.concat_tables(tables) if tables else file.schema_arrow.empty_table()


def table_with_header(columns: Mapping[str, Any], header: Mapping[str, Any]) -> pa.Table:
    """An Arrow table whose schema says what it holds (``what``) and all else in the header."""
    return _with_header(pa.table(dict(columns)), {"format": FORMAT, **header})


def _with_header(table: pa.Table, header: Mapping[str, Any]) -> pa.Table:
    text = json.dumps(header, default=np.generic.item, ensure_ascii=False)
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _HEADER: text})


def header_of(schema: pa.Schema, what: str) -> dict[str, Any] | None:
    """The header of such a table; None where there is none, or it holds something else."""
    header = _any_header(schema)
    return header if header.get("what") == what else None


def _any_header(schema: pa.Schema) -> dict[str, Any]:
    try:
        header = json.loads((schema.metadata or {}).get(_HEADER) or b"{}")
    except ValueError:
        return {}
    return header if isinstance(header, dict) else {}


# -- CSV ------------------------------------------------------------------------------------------


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
    """Raise an error if the first row is numbers or gaps: data, unless they count the columns."""
    named = [name for name in names if name.strip()]
    counted = [str(c) for c in range(len(named))]
    if named != counted and all(_NUMBER.fullmatch(name) for name in named):
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
