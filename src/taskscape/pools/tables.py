"""A table of features: Parquet, or Arrow (Feather) files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from taskscape.errors import DataError
from taskscape.pools.arrays import labelled_pool
from taskscape.pools.cache import cache_key, cached, file_stamp
from taskscape.pools.pool import ClassPool

__all__ = ["PARQUET", "SUFFIXES", "load_table"]

PARQUET = (".parquet", ".pq")
SUFFIXES = (*PARQUET, ".arrow", ".feather", ".ipc")
_VERSION = 1
_LABELS = ("label", "labels", "y", "class", "class_name", "target", "targets")
_SPLITS = ("split", "class_split")
_GROUPS = ("group", "class_group")
_FEATURES = ("features", "feature", "embedding", "embeddings", "x", "vector", "data")
_NOT_FEATURES = ("id", "index", "__index_level_0__", "unnamed: 0")


def load_table(
    path: str | Path,
    *,
    label_column: Any = None,
    feature_columns: Any = None,
    split_column: Any = None,
    group_column: Any = None,
    name: Any = None,
) -> ClassPool:
    """Open a Parquet or Arrow table with a row per sample.

    The label column is ``label``, ``y``, ``class`` or ``target``, or is named by ``label_column``;
    ``split`` and ``group`` columns are optional. Features are one column of lists, or else all
    numeric columns (except ``id`` and ``index``), or those that ``feature_columns`` names.
    ``pool.info["unused_columns"]`` tells what was left out.

    >>> load_table("features.parquet", label_column="species")  # doctest: +SKIP
    ClassPool('features': 20 classes, 12,000 samples of 512 features)
    """
    path = Path(path).expanduser()
    name = path.stem if name is None else str(name)
    columns = feature_columns
    if columns is not None:
        columns = [columns] if isinstance(columns, str) else [str(c) for c in columns]
    named = {"label": label_column, "split": split_column, "group": group_column}
    key = cache_key("table", _VERSION, file_stamp(path), name, columns, named)
    return cached("table", key, lambda: _read(path, name, columns, named))


def _read(
    path: Path, name: str, feature_columns: Sequence[str] | None, named: dict[str, Any]
) -> ClassPool:
    table = _open(path)
    if table.num_rows == 0:
        raise DataError(f"{path} has no rows.")
    label = _column(path, table, _LABELS, named["label"], "label_column")
    if label is None:
        raise DataError(
            f"{path} has no label column: found {_listed(table.column_names)}; expected one of "
            f"{_listed(_LABELS)}, or name it with label_column=…"
        )
    split = _column(path, table, _SPLITS, named["split"], "split_column")
    group = _column(path, table, _GROUPS, named["group"], "group_column")
    others = [c for c in table.column_names if c not in (label, split, group)]
    used = _feature_columns(path, table, others, feature_columns)
    for column in (label, split, group, *used):
        if column is not None and table.column(column).null_count:
            raise DataError(
                f"{path}: column {column!r} has {table.column(column).null_count} missing values. "
                "Remove or fill these rows."
            )
    return labelled_pool(
        _features(path, table, used),
        _values(table, label),
        name=name,
        splits=None if split is None else _values(table, split),
        groups=None if group is None else _values(table, group),
        info={"source": str(path), "unused_columns": [c for c in others if c not in used]},
        by_sample=True,
    )


def _open(path: Path) -> Any:
    import pyarrow as pa  # slow to import, and most pools are not tables

    try:
        if path.suffix.lower() in PARQUET:
            import pyarrow.parquet

            return pyarrow.parquet.read_table(path)
        with pa.OSFile(str(path), "rb") as file:
            try:
                return pa.ipc.open_file(file).read_all()
            except pa.ArrowInvalid:  # the streaming form of the same format
                file.seek(0)
                return pa.ipc.open_stream(file).read_all()
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path} is not a readable {path.suffix[1:]} table ({error}); it may be cut short. "
            "Write it again."
        ) from error


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return (", ".join(map(repr, names[:12])) or "no columns") + more


def _column(path: Path, table: Any, usual: Sequence[str], named: Any, argument: str) -> str | None:
    names = table.column_names
    if named is not None:
        if named not in names:
            raise DataError(
                f"{argument}={named!r}: {path} has no such column; it has {_listed(names)}."
            )
        return str(named)
    matching = [c for c in names if c.lower() in usual]
    if len(matching) > 1:
        raise DataError(
            f"{path}: columns {_listed(matching)} could each be meant. Say which with {argument}=…"
        )
    return matching[0] if matching else None


def _is_list(kind: Any) -> bool:
    import pyarrow.types as pt

    lists = pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind)
    return bool(lists and _is_number(kind.value_type))


def _is_number(kind: Any) -> bool:
    import pyarrow.types as pt

    return bool(
        pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind) or pt.is_decimal(kind)
    )


def _feature_columns(
    path: Path, table: Any, others: Sequence[str], chosen: Sequence[str] | None
) -> list[str]:
    kinds = {c: table.schema.field(c).type for c in others}
    if chosen is not None:
        for column in chosen:
            if column not in kinds or not (_is_list(kinds[column]) or _is_number(kinds[column])):
                raise DataError(
                    f"feature_columns: {path} has no numeric column {column!r} besides the label, "
                    f"split and group; it has {_listed(others)}."
                )
        if len(chosen) > 1 and any(_is_list(kinds[c]) for c in chosen):
            raise DataError("feature_columns: give one column of lists, or numeric columns.")
        return list(chosen)
    lists = [c for c in others if _is_list(kinds[c])]
    if len(lists) > 1:
        lists = [c for c in lists if c.lower() in _FEATURES] or lists
    if len(lists) > 1:
        raise DataError(
            f"{path}: columns {_listed(lists)} all hold lists. Say which with feature_columns=…"
        )
    numbers = [c for c in others if _is_number(kinds[c]) and c.lower() not in _NOT_FEATURES]
    if not lists and not numbers:
        raise DataError(
            f"{path} has no features: expected a column of number lists or numeric columns besides "
            f"the label; it has {_listed(table.column_names)}."
        )
    return lists or numbers


def _values(table: Any, column: str) -> Shaped[np.ndarray, "rows"]:
    import pyarrow.types as pt

    values = table.column(column)
    if pt.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return np.asarray(values.to_numpy())


def _features(path: Path, table: Any, columns: Sequence[str]) -> Float[np.ndarray, "rows dims"]:
    if not _is_list(table.schema.field(columns[0]).type):
        return np.column_stack([table.column(c).to_numpy().astype(np.float32) for c in columns])
    lists = table.column(columns[0]).combine_chunks()
    lengths = np.asarray(lists.value_lengths().to_numpy(zero_copy_only=False))
    odd = np.flatnonzero(lengths != lengths[0])
    if odd.size:
        raise DataError(
            f"{path}: column {columns[0]!r} has {lengths[odd[0]]} features in row {odd[0]} and "
            f"{lengths[0]} in row 0; all rows need the same number."
        )
    flat = lists.flatten()
    if flat.null_count:
        raise DataError(f"{path}: column {columns[0]!r} has {flat.null_count} missing features.")
    values = np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(lengths), -1)
    return values if values.dtype.kind == "f" else values.astype(np.float32)
