"""Small tables and plain values on disk: Parquet, CSV and JSON."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["plain", "read_json", "read_table", "write_csv", "write_json", "write_table"]


def plain(value: Any) -> Any:
    """Numbers, lists and dicts that JSON knows; what is not a number becomes None."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, value: Any) -> None:
    """Plain values as JSON for people to read."""
    text = json.dumps(plain(value), indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """What :func:`write_json` wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_table(path: Path, columns: Mapping[str, Any]) -> None:
    """Columns as Parquet: lists, arrays, or arrays with several numbers in each row."""
    arrays = {}
    for name, values in columns.items():
        if isinstance(values, np.ndarray) and values.ndim == 2:
            flat = pa.array(np.ascontiguousarray(values).reshape(-1))
            arrays[name] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        else:
            arrays[name] = pa.array(values)
    pq.write_table(pa.table(arrays), path, compression="zstd")


def read_table(path: Path) -> dict[str, Any]:
    """The columns of such a file: arrays, or lists where they hold text."""
    table = pq.read_table(path)
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


def write_csv(path: Path, columns: Mapping[str, Sequence[Any] | np.ndarray]) -> None:
    """Columns as CSV, for a spreadsheet."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
