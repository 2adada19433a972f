"""A table with a row per sample: Parquet, Arrow and CSV files, data frames, `datasets`."""

import codecs
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyarrow.types as pt
from jaxtyping import Float, Int

from taskscape.arguments import check_flag
from taskscape.errors import DataError
from taskscape.io.files import expanded
from taskscape.io.tables import check_header, csv_rows
from taskscape.pools.arrays import load_arrays
from taskscape.pools.cache import cache_key, cached, file_stamp, room
from taskscape.pools.images import Pictures, check_colour, check_image_size, read_pictures
from taskscape.pools.pool import ClassPool, as_samples, few_names, left_out, with_notes

PARQUET = (".parquet", ".pq")
TEXT = (".csv", ".tsv")
SUFFIXES = (*PARQUET, ".arrow", ".feather", ".ipc", *TEXT)
_VERSION = 5
_ROWS_AT_ONCE = 1 << 14
_LABELS = ("label", "labels", "y", "class", "class_name", "target", "targets")
_SPLITS = ("split", "class_split")
_GROUPS = ("group", "class_group")
_IDS = ("id", "ids", "sample", "sample_name", "filename", "file_name", "file", "path")
_FEATURES = ("features", "feature", "embedding", "embeddings", "x", "vector", "data")
_NOT_FEATURES = (*_IDS, "index", "__index_level_0__", "unnamed: 0", "")
_NUMBERS = ("whole", "fraction")


def load_table(
    source: Any,
    *,
    label_column: Any = None,
    feature_columns: Any = None,
    split_column: Any = None,
    group_column: Any = None,
    id_column: Any = None,
    image_size: Any = None,
    colour: Any = None,
    skip_damaged: Any = False,
    name: Any = None,
) -> ClassPool:
    """Open a table with a row per sample: a file, a data frame, or a dataset of `datasets`.

    A folder of Parquet files is one table, in the order of their names. It, and a Parquet file, may
    be larger than memory, unless it holds pictures.

    The label column is ``label``, ``y``, ``class`` or ``target``, else the only column of text, or
    is named by ``label_column``; ``split`` and ``group`` columns are optional, and so is a column
    of names for the samples (``id``, ``sample``, ``filename``, ``file``, ``path``). Features are
    one column of lists, otherwise all numeric columns (except ``id`` and ``index``), or those that
    ``feature_columns`` names. A column of encoded pictures (PNG, JPEG, …) is decoded.
    ``pool.info["unused_columns"]`` tells what was left out. Missing and infinite numbers, missing
    labels and damaged pictures are an error; ``skip_damaged`` leaves these rows out, with a note.
    """
    asked: dict[str, Any] = {
        "label_column": label_column,
        "split_column": split_column,
        "group_column": group_column,
        "id_column": id_column,
    }
    if feature_columns is not None:
        names = [feature_columns] if isinstance(feature_columns, str) else feature_columns
        asked["feature_columns"] = [str(c) for c in names]
    how = {
        "size": check_image_size(image_size),
        "colour": check_colour(colour),
        "skip_damaged": check_flag(skip_damaged, "skip_damaged"),
    }
    if not isinstance(source, str | Path):
        table, where = _in_memory(source)
        features = source.features if _is_dataset(source) else {}
        return _read(ds.dataset(table), where, str(name or "table"), asked, how, features)
    path = expanded(source)
    name = path.stem if name is None else str(name)
    files = parquet_files(path) if path.is_dir() else [path]
    key = cache_key("table", _VERSION, [file_stamp(file) for file in files], name, asked, how)
    return cached("table", key, lambda: _read_files(path, files, name, asked, how))


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files that lie in a folder."""
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in PARQUET)


def is_table(source: Any) -> bool:
    """Whether something is a table in memory: of pandas, polars, pyarrow, datasets or alike."""
    return _is_dataset(source) or hasattr(source, "__arrow_c_stream__") or hasattr(source, "iloc")


def _is_dataset(source: Any) -> bool:
    """Whether something is a dataset of Hugging Face's `datasets`, or a dict of its splits."""
    if isinstance(source, Mapping):
        return bool(source) and all(_is_dataset(part) for part in source.values())
    return all(hasattr(source, name) for name in ("column_names", "features", "with_format"))


def _in_memory(source: Any) -> tuple[Any, str]:
    """An Arrow table, and what it is in words."""
    if isinstance(source, Mapping):
        first = next(iter(source))
        raise DataError(
            f"a dict of datasets ({', '.join(map(repr, source))}): its splits are of samples, and "
            f"those of a pool are of classes. Give one of them, such as data[{first!r}], or all as "
            "one: datasets.concatenate_datasets(list(data.values()))."
        )
    where = f"the {type(source).__name__}"
    try:
        table = source.with_format("arrow")[:] if _is_dataset(source) else pa.table(source)
        return table, where
    except (TypeError, ValueError, NotImplementedError, pa.ArrowException) as error:
        raise DataError(
            f"{where} is not a table with a row per sample that can be read as a whole ({error})."
        ) from error


def _read_files(
    path: Path, files: Sequence[Path], name: str, asked: Mapping[str, Any], how: Mapping[str, Any]
) -> ClassPool:
    """The pool of one file, or of several that make one table."""
    file = files[0]
    try:
        if file.suffix.lower() not in PARQUET:
            data = ds.dataset(_open(path, asked.values()))
        else:
            data = ds.dataset([str(one) for one in files], format="parquet")
            for file in files:
                if not pq.read_schema(file).equals(data.schema):
                    raise DataError(f"{file} has other columns than {files[0]}; write all alike.")
            file = path
        return _read(data, str(path), name, asked, how)
    except DataError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise DataError(
            f"{file} is not a readable {file.suffix[1:] or 'Parquet'} table ({error}); it may be "
            "cut short. Write it again."
        ) from error


def _read(
    data: Any,
    where: str,
    name: str,
    asked: Mapping[str, Any],
    how: Mapping[str, Any],
    features: Mapping[str, Any] | None = None,
) -> ClassPool:
    """The pool of an Arrow dataset; ``features`` of `datasets` know the names of its classes.

    Labels first, all of them; then the features, piece by piece.
    """
    names = data.schema.names
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise DataError(f"{where} has several columns called {twice[0]!r}. Rename or drop one.")
    if data.count_rows() == 0:
        raise DataError(f"{where} has no rows.")
    empty, skip = _plainly_typed(data.schema.empty_table()), how["skip_damaged"]
    column_of, used, unused = _columns(where, empty, asked)
    about = _plainly_typed(data.to_table(list(column_of.values())))
    needed = [column for role, column in column_of.items() if role != "sample_names"]
    rows, notes = _sound_rows(where, about, needed, skip)
    if _kind(empty, used[0]) == "picture":
        cells = _plainly_typed(data.to_table(used)).column(0).take(rows).to_pylist()
        places = [f"{where}, row {row}, column {used[0]!r}" for row in rows]
        pictures = _pictures(cells, places, how)
        notes += left_out(pictures.damaged, f"of {len(rows):,} pictures could not be read")
        samples, rows = pictures.samples, rows[pictures.kept]
    elif how["size"] is not None or how["colour"] is not None:
        raise DataError(f"image_size and colour are for pictures; {where} has features.")
    else:
        samples = _features(where, data, used, rows, skip)
    values = {role: about.column(c).take(rows).to_numpy() for role, c in column_of.items()}
    pool = load_arrays(
        samples, name=name, by_sample=True, skip_damaged=skip, given_rows=rows,
        class_names=getattr((features or {}).get(column_of["y"]), "names", None),
        info={"source": where, "unused_columns": unused}, **values,
    )  # fmt: skip
    if "feature_columns" not in asked:
        unasked = [c for c in unused if c.lower() not in _NOT_FEATURES]
        notes = [*left_out(unasked, f"of {len(names)} columns are not features"), *notes]
    return with_notes(pool, *notes)


def _columns(
    where: str, table: Any, asked: Mapping[str, Any]
) -> tuple[dict[str, str], list[str], list[str]]:
    """The column of labels (``y``), splits, groups and names; those of features; and all others."""
    names = table.column_names
    asked_for = {
        "y": ("label_column", _LABELS),
        "splits": ("split_column", _SPLITS),
        "groups": ("group_column", _GROUPS),
        "sample_names": ("id_column", ()),
    }
    column_of = {
        role: column
        for role, (argument, usual) in asked_for.items()
        if (column := _column(where, table, usual, asked[argument], argument)) is not None
    }
    if "sample_names" not in column_of:  # fractions are taken for features
        by_name = {c.lower(): c for c in reversed(names) if _kind(table, c) in ("text", "whole")}
        named = [by_name[name] for name in _IDS if name in by_name]
        column_of |= {"sample_names": named[0]} if named else {}
    if "y" not in column_of:
        known = column_of.values()
        texts = [c for c in names if c not in known and _kind(table, c) == "text"]
        if len(texts) != 1:
            raise DataError(
                f"{where} has no label column: found {few_names(names, 12)}; expected one of "
                f"{few_names(_LABELS, 12)}, a single column of text, or name it with "
                "label_column=…"
            )
        column_of["y"] = texts[0]
    others = [c for c in names if c not in column_of.values()]
    used = _feature_columns(where, table, others, asked.get("feature_columns"))
    return column_of, used, [c for c in others if c not in used]


def _column(where: str, table: Any, usual: Sequence[str], named: Any, argument: str) -> str | None:
    names = table.column_names
    if named is not None:
        if named not in names:
            raise DataError(
                f"{argument}={named!r}: {where} has no such column; it has {few_names(names, 12)}."
            )
        return str(named)
    matching = [c for c in names if c.lower() in usual]
    if len(matching) > 1:
        raise DataError(
            f"{where}: columns {few_names(matching, 12)} could each be meant. Say which with "
            f"{argument}=…"
        )
    return matching[0] if matching else None


def _feature_columns(
    where: str, table: Any, others: Sequence[str], chosen: Sequence[str] | None
) -> list[str]:
    kinds = {c: _kind(table, c) for c in others}
    if chosen is not None:
        for column in chosen:
            if kinds.get(column, "") in ("", "text"):
                raise DataError(
                    f"feature_columns: {where} has no numeric column {column!r} besides the label, "
                    f"split and group; it has {few_names(others, 12)}."
                )
        if len(chosen) > 1 and not all(kinds[c] in _NUMBERS for c in chosen):
            raise DataError(
                "feature_columns: give one column of lists or of pictures, or numeric columns."
            )
        return list(chosen)
    for kind, content in (("list", "lists"), ("picture", "bytes")):
        matching = [c for c in others if kinds[c] == kind]
        if len(matching) > 1:
            matching = [c for c in matching if c.lower() in _FEATURES] or matching
        if len(matching) > 1:
            raise DataError(
                f"{where}: columns {few_names(matching, 12)} all hold {content}. Say which with "
                "feature_columns=…"
            )
        if matching:
            return matching
    numbers = [c for c in others if kinds[c] in _NUMBERS and c.lower() not in _NOT_FEATURES]
    if not numbers:
        raise DataError(
            f"{where} has no features: expected a column of number lists, numeric columns or a "
            f"column of pictures besides the label; it has {few_names(table.column_names, 12)}. "
            "Text needs to be turned into numbers first, for example by a sentence encoder; "
            "numbers are written with a point, 1.5."
        )
    return numbers


def _kind(table: Any, column: str) -> str:
    """What a column holds: "text", "whole" or "fraction", "list" of numbers, "picture", or ""."""
    kind = table.schema.field(column).type
    if pt.is_string(kind) or pt.is_large_string(kind):
        return "text"
    is_list = pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind)
    number = kind.value_type if is_list else kind
    if pt.is_integer(number):
        return "list" if is_list else "whole"
    if pt.is_floating(number) or pt.is_boolean(number) or pt.is_decimal(number):
        return "list" if is_list else "fraction"
    # `datasets` keeps a picture as its bytes and its path.
    encoded = pt.is_struct(kind) and any(field.name == "bytes" for field in kind)
    return "picture" if encoded or pt.is_binary(kind) or pt.is_large_binary(kind) else ""


# -- reading ------------------------------------------------------------------------------------


def _open(path: Path, named: Collection[Any]) -> Any:
    """The table of an Arrow or CSV file."""
    if path.suffix.lower() in TEXT:
        return _open_text(path, named)
    with pa.OSFile(str(path), "rb") as file:
        try:
            return pa.ipc.open_file(file).read_all()
        except pa.ArrowInvalid:  # the streaming form of the same format
            file.seek(0)
            return pa.ipc.open_stream(file).read_all()


def _plainly_typed(table: Any) -> Any:
    """The table without dictionaries and views, as of polars, which Arrow hardly computes with."""
    table.validate(full=True)  # to use a damaged one could end the process
    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    for i, field in enumerate(table.schema):
        coded = pa.types.is_dictionary(field.type)
        kind = field.type.value_type if coded else field.type
        plain, column = views.get(kind, kind), table.column(i)
        if coded:  # Arrow cannot look views up in a dictionary
            column = column.cast(pa.dictionary(field.type.index_type, plain))
        table = table.set_column(i, field.name, column.cast(plain))
    return table


def _open_text(path: Path, named: Collection[Any]) -> Any:
    """A CSV file with a header, which shows whether commas, semicolons or tabs divide it."""
    with path.open("rb") as file:
        header = file.readline(1 << 20)
        quoted = b'"' in header or any(b'"' in line for line in file)
    if header.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{path} is UTF-16 text. Save it as UTF-8.")
    delimiter = chr(max(b",;\t", key=header.count))
    for _ in csv_rows(path, delimiter) if quoted else ():
        pass  # Arrow takes what follows an open quote for one cell; here it is an error
    options = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    table = pyarrow.csv.read_csv(path, parse_options=options)
    check_header(str(path), table.column_names)
    for i, column in enumerate(table.schema):
        if pt.is_string(column.type) and column.name in table[i].to_pylist():
            raise DataError(
                f"{path}, line 1: {column.name!r} is also in a row below. Is this the first row of "
                "data? Add a line above it that names the columns."
            )
        if pt.is_binary(column.type):
            raise DataError(
                f"{path}: column {column.name!r} has letters that are not UTF-8 text. Save the "
                "file as UTF-8."
            )
    return _with_padded_names(path, table, options, named)


def _with_padded_names(path: Path, table: Any, options: Any, named: Collection[Any]) -> Any:
    """The table with 007 as text, not as 7, in columns of labels and of other names."""
    usual = (*_LABELS, *_GROUPS, *_IDS)
    names = [
        field.name
        for field in table.schema
        if pa.types.is_integer(field.type)
        and (field.name in named or field.name.lower() in usual)
        and table.column_names.count(field.name) == 1
    ]
    if not names:
        return table
    as_text = pyarrow.csv.ConvertOptions(
        include_columns=names, column_types=dict.fromkeys(names, pa.string())
    )
    text = pyarrow.csv.read_csv(path, parse_options=options, convert_options=as_text)
    for name in names:
        if pc.any(pc.match_substring_regex(text[name], r"^\s*[+-]?0\d")).as_py():
            table = table.set_column(table.column_names.index(name), name, text[name])
    return table


def _sound_rows(
    where: str, about: Any, columns: Sequence[str], skip: bool
) -> tuple[Int[np.ndarray, "rows"], list[str]]:
    """The rows that have a value in all of these columns, and a note on the others."""
    missing = np.zeros(about.num_rows, dtype=bool)
    for name in columns:
        gaps = pc.is_null(about.column(name))
        if _kind(about, name) == "text":
            gaps = pc.or_(gaps, pc.fill_null(pc.equal(about.column(name), ""), True))
        _refuse_gaps(where, name, np.asarray(gaps), np.arange(len(missing)), skip)
        missing |= np.asarray(gaps)
    if missing.all():
        raise DataError(f"{where}: every row lacks a value in {few_names(columns, 12)}.")
    lost = [f"row {row}" for row in np.flatnonzero(missing)]
    return np.flatnonzero(~missing), left_out(lost, f"of {len(missing):,} rows lack a value")


def _refuse_gaps(
    where: str, column: str, gaps: np.ndarray, rows: Int[np.ndarray, "rows"], skip: bool
) -> None:
    if gaps.any() and not skip:
        raise DataError(
            f"{where}: column {column!r} has {gaps.sum()} missing values, the first in row "
            f"{rows[gaps.argmax()]} (from 0). Remove or fill these rows, or leave them out with "
            "skip_damaged=True (--skip-damaged)."
        )


def _pictures(cells: Sequence[Any], places: Sequence[str], how: Mapping[str, Any]) -> Pictures:
    def opened(cell: Any, place: str) -> BufferedReader | BytesIO:
        data = cell.get("bytes") if isinstance(cell, dict) else cell
        if data is not None:
            return BytesIO(data)
        try:
            return Path(cell["path"]).open("rb")
        except (KeyError, TypeError, OSError) as error:
            raise DataError(f"{place}: its picture is not there ({error}).") from error

    pairs = zip(cells, places, strict=True)
    return read_pictures([(partial(opened, *pair), pair[1]) for pair in pairs], **how)


def _features(
    where: str, data: Any, columns: Sequence[str], rows: Int[np.ndarray, "rows"], skip: bool
) -> Float[np.ndarray, "rows dims"]:
    """The features in these rows, which ascend; large ones stay out of memory."""
    X: Any = None
    begin = at = 0
    for batch in _pieces(data, columns):
        own = rows[at : np.searchsorted(rows, begin + batch.num_rows)]
        piece = _plainly_typed(pa.Table.from_batches([batch])).take(own - begin)
        begin += batch.num_rows
        if len(own):
            dims = None if X is None else X.shape[1]
            values = as_samples(_numbers(where, piece, columns, own, skip, dims))
            X = room((len(rows), values.shape[1]), values.dtype) if X is None else X
            X[at : at + len(own)] = values
            at += len(own)
    return X


def _pieces(data: Any, columns: Sequence[str]) -> Iterator[Any]:
    """The columns, some rows at a time; of files without what a dataset reads ahead."""
    if not hasattr(data, "files"):
        yield from data.to_batches(columns=columns, batch_size=_ROWS_AT_ONCE)
    for file in getattr(data, "files", ()):
        yield from pq.ParquetFile(file).iter_batches(_ROWS_AT_ONCE, columns=columns)


def _numbers(
    where: str,
    piece: Any,
    columns: Sequence[str],
    rows: Int[np.ndarray, "rows"],
    skip: bool,
    dims: int | None,
) -> Float[np.ndarray, "rows dims"]:
    """The features of a piece of a table; missing ones, where they may be skipped, are NaN."""
    for column in columns:
        _refuse_gaps(where, column, np.asarray(pc.is_null(piece.column(column))), rows, skip)
    if _kind(piece, columns[0]) != "list":
        return np.column_stack([piece.column(c).to_numpy().astype(np.float32) for c in columns])
    lists = piece.column(columns[0]).combine_chunks()
    there = np.asarray(lists.is_valid())
    lengths = np.asarray(lists.value_lengths().drop_null())
    if not len(lengths):
        raise DataError(f"{where}: no row has a value in column {columns[0]!r}.")
    dims = int(lengths[0]) if dims is None else dims
    odd = np.flatnonzero(lengths != dims)
    if odd.size:
        raise DataError(
            f"{where}: column {columns[0]!r} has {lengths[odd[0]]} features in row "
            f"{rows[there][odd[0]]} and {dims} in rows before; all rows need the same number."
        )
    flat = lists.drop_null().flatten()
    if flat.null_count and not skip:
        raise DataError(f"{where}: column {columns[0]!r} has {flat.null_count} missing features.")
    values = np.asarray(flat.to_numpy(zero_copy_only=False))
    kind = values.dtype if values.dtype.kind == "f" else np.float32
    filled = np.full((len(rows), dims), np.nan, dtype=kind)
    filled[there] = values.reshape(len(lengths), dims)
    return filled
