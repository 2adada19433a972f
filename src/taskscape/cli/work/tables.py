"""Tables with a row for every task, as .csv, .parquet or .json; one way for all commands."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from taskscape.errors import DataError
from taskscape.files import Kind, check_output, csv_with, written_in_one_piece
from taskscape.tasks.class_lists import write_classes

__all__ = ["Tables"]


class Tables:
    """The tables of one command: what their columns are, and how they are known again.

    ``more`` is how further columns begin; ``whole`` is the JSON file that holds all results.
    """

    def __init__(
        self, name: str, columns: Sequence[str], whole: Kind, more: str | None = None
    ) -> None:
        self.columns, self.more = tuple(columns), more
        self.kinds = {
            ".csv": csv_with(f"a table of {name}", *columns, more=more),
            ".parquet": Kind(f"a table of {name}", self._is_parquet),
            ".json": whole,
        }

    def _is_parquet(self, path: Path) -> bool:
        try:
            names = pq.read_schema(path).names
        except (pa.ArrowInvalid, OSError):
            return False
        first, rest = tuple(names[: len(self.columns)]), names[len(self.columns) :]
        return first == self.columns and all(
            self.more is not None and name.startswith(self.more) for name in rest
        )

    def check_name(self, path: Path) -> None:
        """Raise an error unless the name has an ending that can be written."""
        if path.suffix not in self.kinds:
            raise DataError(f"--out {path}: expected a name that ends in .csv, .parquet or .json.")

    def check(self, path: Path | None) -> None:
        """Raise an error, before long work begins, if the table could not be written there."""
        if path is not None:
            self.check_name(path)
            check_output(path, self.kinds[path.suffix])

    def write(
        self, path: Path, rows: Sequence[Mapping[str, Any]], whole: Mapping[str, Any]
    ) -> None:
        """Write the rows, or as JSON the whole; ``classes`` are lists of names."""
        with written_in_one_piece(path, self.kinds[path.suffix]) as file:
            if path.suffix == ".json":
                file.write_text(json.dumps(whole, ensure_ascii=False) + "\n", encoding="utf-8")
            elif path.suffix == ".parquet":
                pq.write_table(pa.Table.from_pylist(list(rows)), file, compression="zstd")
            else:
                with file.open("w", newline="", encoding="utf-8") as lines:
                    writer = csv.DictWriter(lines, list(rows[0]))
                    writer.writeheader()
                    for row in rows:
                        writer.writerow({**row, "classes": write_classes(row["classes"])})
