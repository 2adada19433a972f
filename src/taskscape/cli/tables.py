"""Tables with a row for every task, as .csv, .parquet or .json; one way for all commands."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from taskscape.csv_tables import write_csv
from taskscape.errors import DataError
from taskscape.files import Kind, check_output, csv_with, has_columns, written_in_one_piece
from taskscape.storage import open_parquet, write_parquet
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
            names = open_parquet(path).schema_arrow.names
        except DataError:
            return False
        return has_columns(names, self.columns, self.more)

    def check(self, path: Path | None) -> None:
        """Raise an error, before long work begins, if the table could not be written there."""
        if path is None:
            return
        if path.suffix not in self.kinds:
            raise DataError(f"--out {path}: expected a name that ends in .csv, .parquet or .json.")
        check_output(path, self.kinds[path.suffix])

    def write(
        self, path: Path, rows: Sequence[Mapping[str, Any]], whole: Mapping[str, Any]
    ) -> None:
        """Write the rows, or as JSON the whole; ``classes`` are lists of names."""
        with written_in_one_piece(path, self.kinds[path.suffix]) as file:
            if path.suffix == ".json":
                file.write_text(json.dumps(whole, ensure_ascii=False) + "\n", encoding="utf-8")
            elif path.suffix == ".parquet":
                write_parquet(file, pa.Table.from_pylist(list(rows)))
            else:
                columns = {name: [row[name] for row in rows] for name in rows[0]}
                columns["classes"] = [write_classes(names) for names in columns["classes"]]
                write_csv(file, columns)
