"""A table with a row per sample: Parquet, Arrow and CSV files, data frames, `datasets`."""

import codecs
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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
_VERSION = 4
_ROWS_AT_ONCE = 1 << 14
_LABELS = ("label", "labels", "y", "class", "class_name", "target", "targets")
_SPLITS = ("split", "class_split")
_GROUPS = ("group", "class_group")
_IDS = ("id", "ids", "sample", "sample_name", "filename", "file_name", "file", "path")
_FEATURES = ("features", "feature", "embedding", "embeddings", "x", "vector", "data")
_NOT_FEATURES = (*_IDS, "index", "__index_level_0__", "unnamed: 0", "")
_NUMBERS = ("whole", "fraction")


@dataclass(frozen=True)
class _Asked:
    """What a user says of a table: its columns, and how pictures in it are read."""

    label: Any
    features: list[str] | None
    split: Any
    group: Any
    ids: Any
    image_size: tuple[int, int] | None
    colour: bool | None
    skip_damaged: bool


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
    columns = feature_columns
    if columns is not None:
        columns = [columns] if isinstance(columns, str) else [str(c) for c in columns]
    asked = _Asked(
        label_column, columns, split_column, group_column, id_column,
        check_image_size(image_size), check_colour(colour),
        check_flag(skip_damaged, "skip_damaged"),
    )  # fmt: skip
    if not isinstance(source, str | Path):
        table, where = _in_memory(source)
        features = source.features if _is_dataset(source) else {}
        return _read(ds.dataset(table), where, str(name or "table"), asked, features)
    path = expanded(source)
    name = path.stem if name is None else str(name)
    files = parquet_files(path) if path.is_dir() else [path]
    key = cache_key("table", _VERSION, [file_stamp(file) for file in files], name, asdict(asked))
    return cached("table", key, lambda: _read_files(path, files, name, asked))


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


def _read_files(path: Path, files: Sequence[Path], name: str, asked: _Asked) -> ClassPool:
    """The pool of one file, or of several that make one table."""
    file = files[0]
    try:
        if file.suffix.lower() not in PARQUET:
            data = ds.dataset(_open(path, (asked.label, asked.group, asked.ids)))
        else:
            data = ds.dataset([str(one) for one in files], format="parquet")
            for file in files:
                if not pq.read_schema(file).equals(data.schema):
                    raise DataError(f"{file} has other columns than {files[0]}; write all alike.")
            file = path
        return _read(data, str(path), name, asked)
    except DataError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise DataError(
            f"{file} is not a readable {file.suffix[1:] or 'Parquet'} table ({error}); it may be "
            "cut short. Write it again."
        ) from error


def _read(
    data: Any, where: str, name: str, asked: _Asked, features: Mapping[str, Any] | None = None
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
    empty = _plainly_typed(data.schema.empty_table())
    columns = _Columns.find(where, empty, asked)
    about = _plainly_typed(data.to_table(columns.about))
    rows, notes = _sound_rows(where, about, columns.needed, asked.skip_damaged)
    samples: Any
    if _kind(empty, columns.features[0]) == "picture":
        cells = _plainly_typed(data.to_table(columns.features)).column(0).take(rows).to_pylist()
        places = [f"{where}, row {row}, column {columns.features[0]!r}" for row in rows]
        pictures = _pictures(cells, places, asked)
        notes += left_out(pictures.damaged, f"of {len(rows):,} pictures could not be read")
        samples, rows = pictures.samples, rows[pictures.kept]
    elif asked.image_size is not None or asked.colour is not None:
        raise DataError(f"image_size and colour are for pictures; {where} has features.")
    else:
        samples = _features(where, data, columns.features, rows, asked.skip_damaged)

    def values(column: str | None) -> Any:
        return None if column is None else np.asarray(about.column(column).take(rows).to_numpy())

    pool = load_arrays(
        samples, values(columns.label), name=name, splits=values(columns.split),
        groups=values(columns.group), sample_names=values(columns.ids), by_sample=True,
        class_names=getattr((features or {}).get(columns.label), "names", None),
        skip_damaged=asked.skip_damaged, given_rows=rows,
        info={"source": where, "unused_columns": columns.unused},
    )  # fmt: skip
    return with_notes(pool, *columns.notes, *notes)


@dataclass(frozen=True)
class _Columns:
    """What the columns of a table are."""

    label: str
    split: str | None
    group: str | None
    ids: str | None
    features: list[str]
    unused: list[str]
    notes: list[str]
    """On unused ones that a user may believe to be features."""

    @property
    def needed(self) -> list[str]:
        """Those besides the features that must have a value in every row."""
        return [c for c in (self.label, self.split, self.group) if c is not None]

    @property
    def about(self) -> list[str]:
        """Those that are not features."""
        return self.needed if self.ids is None else [*self.needed, self.ids]

    @staticmethod
    def find(where: str, table: Any, asked: _Asked) -> "_Columns":
        names = table.column_names
        split = _column(where, table, _SPLITS, asked.split, "split_column")
        group = _column(where, table, _GROUPS, asked.group, "group_column")
        ids = _column(where, table, (), asked.ids, "id_column")
        if ids is None:  # fractions are taken for features
            by_name = {
                c.lower(): c for c in reversed(names) if _kind(table, c) in ("text", "whole")
            }
            ids = next((by_name[name] for name in _IDS if name in by_name), None)
        label = _column(where, table, _LABELS, asked.label, "label_column")
        if label is None:
            texts = [c for c in names if c not in (split, group, ids) and _kind(table, c) == "text"]
            if len(texts) != 1:
                raise DataError(
                    f"{where} has no label column: found {few_names(names, 12)}; expected one of "
                    f"{few_names(_LABELS, 12)}, a single column of text, or name it with "
                    "label_column=…"
                )
            label = texts[0]
        others = [c for c in names if c not in (label, split, group, ids)]
        used = _feature_columns(where, table, others, asked.features)
        unused = [c for c in others if c not in used]
        unasked = [c for c in unused if asked.features is None and c.lower() not in _NOT_FEATURES]
        notes = left_out(unasked, f"of {len(names)} columns are not features")
        return _Columns(label, split, group, ids, used, unused, notes)


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


def _open(path: Path, named: Sequence[Any]) -> Any:
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


def _open_text(path: Path, named: Sequence[Any]) -> Any:
    """A CSV file with a header, which shows whether commas, semicolons or tabs divide it."""
    with path.open("rb") as file:
        header = file.readline(1 << 20)
        file.seek(0)
        counts = [(b.count(b'"'), b.count(b"\n")) for b in iter(lambda: file.read(1 << 20), b"")]
    if header.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{path} is UTF-16 text. Save it as UTF-8.")
    delimiter = chr(max(b",;\t", key=header.count))
    quotes, line_ends = map(sum, zip(*counts, strict=True))
    if quotes % 2:
        _check_quotes(path, delimiter)
    options = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    table = pyarrow.csv.read_csv(path, parse_options=options)
    if quotes and line_ends > table.num_rows + 1:
        _check_quotes(path, delimiter)
    check_header(str(path), table.column_names)
    for i, column in enumerate(table.schema):
        if pyarrow.types.is_string(column.type) and column.name in table[i].to_pylist():
            raise DataError(
                f"{path}, line 1: {column.name!r} is also in a row below. Is this the first row of "
                "data? Add a line above it that names the columns."
            )
        if pyarrow.types.is_binary(column.type):
            raise DataError(
                f"{path}: column {column.name!r} has letters that are not UTF-8 text. Save the "
                "file as UTF-8."
            )
    return _with_padded_names(path, table, options, named)


def _check_quotes(path: Path, delimiter: str) -> None:
    """Arrow takes what follows an open quote for one cell; here it is an error."""
    for _ in csv_rows(path, delimiter):
        pass


def _with_padded_names(path: Path, table: Any, options: Any, named: Sequence[Any]) -> Any:
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


def _pictures(cells: Sequence[Any], places: Sequence[str], asked: _Asked) -> Pictures:
    def opened(cell: Any, place: str) -> BufferedReader | BytesIO:
        data = cell.get("bytes") if isinstance(cell, dict) else cell
        if data is not None:
            return BytesIO(data)
        try:
            return Path(cell["path"]).open("rb")
        except (KeyError, TypeError, OSError) as error:
            raise DataError(f"{place}: its picture is not there ({error}).") from error

    return read_pictures(
        [(partial(opened, *one), one[1]) for one in zip(cells, places, strict=True)],
        size=asked.image_size, colour=asked.colour, skip_damaged=asked.skip_damaged,
    )  # fmt: skip


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
            values = as_samples(_numbers(where, piece, columns, own, skip))
            X = room((len(rows), values.shape[1]), values.dtype) if X is None else X
            if values.shape[1] != X.shape[1]:
                raise _uneven(where, columns[0], values.shape[1], own[0], X.shape[1], rows[0])
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
    where: str, piece: Any, columns: Sequence[str], rows: Int[np.ndarray, "rows"], skip: bool
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
    odd = np.flatnonzero(lengths != lengths[0])
    if odd.size:
        wrong, first = rows[there][odd[0]], rows[there][0]
        raise _uneven(where, columns[0], lengths[odd[0]], wrong, lengths[0], first)
    flat = lists.drop_null().flatten()
    if flat.null_count and not skip:
        raise DataError(f"{where}: column {columns[0]!r} has {flat.null_count} missing features.")
    values = np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(lengths), -1)
    values = values if values.dtype.kind == "f" else values.astype(np.float32)
    if there.all():
        return values
    filled = np.full((len(rows), values.shape[1]), np.nan, dtype=values.dtype)
    filled[there] = values
    return filled


def _uneven(where: str, column: str, one: Any, row: Any, other: Any, first: Any) -> DataError:
    return DataError(
        f"{where}: column {column!r} has {one} features in row {row} and {other} in row {first}; "
        "all rows need the same number."
    )
