"""A table with a row per sample: Parquet, Arrow and CSV files, data frames, `datasets`."""

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from taskscape.arguments import check_flag
from taskscape.errors import DataError
from taskscape.io.files import expanded
from taskscape.io.tables import check_header, csv_rows
from taskscape.pools.arrays import clean_labels, load_arrays
from taskscape.pools.cache import cache_key, cached, file_stamp, mapped_scratch
from taskscape.pools.images import Pictures, check_colour, check_image_size, read_pictures
from taskscape.pools.pool import ClassPool, as_samples, few_names, left_out, with_notes

PARQUET = (".parquet", ".pq")
TEXT = (".csv", ".tsv")
SUFFIXES = (*PARQUET, ".arrow", ".feather", ".ipc", *TEXT)
_VERSION = 4
_IN_PIECES_ABOVE_BYTES = 1 << 28
_ROWS_AT_ONCE = 1 << 14
_LABELS = ("label", "labels", "y", "class", "class_name", "target", "targets")
_SPLITS = ("split", "class_split")
_GROUPS = ("group", "class_group")
_IDS = ("id", "ids", "sample", "sample_name", "filename", "file_name", "file", "path")
_FEATURES = ("features", "feature", "embedding", "embeddings", "x", "vector", "data")
_NOT_FEATURES = (*_IDS, "index", "__index_level_0__", "unnamed: 0", "")
_NUMBERS = ("whole", "fraction")
_ROW = "row of the table"


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

    A folder of Parquet files is one table, in the order of their names. It, and a large Parquet
    file, may be larger than memory (unless they hold pictures, or damaged rows are to be skipped).

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
        return _read(table, where, "table" if name is None else str(name), asked, features)
    path = expanded(source)
    name = path.stem if name is None else str(name)
    files = parquet_files(path) if path.is_dir() else [path]
    stamps = [file_stamp(file) for file in files]
    key = cache_key("table", _VERSION, stamps, name, asdict(asked))
    large = sum(size for _, size, _ in stamps) > _IN_PIECES_ABOVE_BYTES
    in_pieces = path.is_dir() or (large and path.suffix.lower() in PARQUET)
    return cached("table", key, lambda: _read_files(path, files, name, asked, in_pieces))


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
    import pyarrow as pa  # slow to import, and most pools are not tables

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
    path: Path, files: Sequence[Path], name: str, asked: _Asked, in_pieces: bool
) -> ClassPool:
    """The pool of one file, or of several that make one table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not in_pieces:
        named = (asked.label, asked.group, asked.ids)
        return _read(_open(path, named), str(path), name, asked)
    opened = []
    for file in files:
        try:
            opened.append(pq.ParquetFile(file))
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(file, error) from error
        if not opened[-1].schema_arrow.equals(opened[0].schema_arrow):
            raise DataError(f"{file} has other columns than {files[0]}; write all alike.")
    empty = _plainly_typed(opened[0].schema_arrow.empty_table())
    columns = _Columns.find(str(path), empty, asked)
    if asked.skip_damaged or _kind(empty, columns.features[0]) == "picture":
        whole = pa.concat_tables([_open(file) for file in files])
        return _read(whole, str(path), name, asked)
    _refuse_image_options(str(path), asked)
    try:
        return _read_in_pieces(str(path), opened, name, columns)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _read_in_pieces(where: str, opened: Sequence[Any], name: str, columns: "_Columns") -> ClassPool:
    """Labels first, all of them; then the features, piece by piece, each to its place on disk."""
    import pyarrow as pa

    about = _plainly_typed(pa.concat_tables([one.read(columns.about) for one in opened]))
    if about.num_rows == 0:
        raise DataError(f"{where} has no rows.")
    _without_gaps(where, about, columns.needed, skip=False)
    labels = clean_labels(_values(about, columns.label))
    place = np.empty(len(labels), dtype=np.int64)
    place[np.argsort(labels, kind="stable")] = np.arange(len(labels))
    samples: Any = None
    begin = 0
    for one in opened:
        for batch in one.iter_batches(_ROWS_AT_ONCE, columns=columns.features):
            piece = _plainly_typed(pa.Table.from_batches([batch]))
            _without_gaps(where, piece, columns.features, skip=False, first_row=begin)
            X = as_samples(_features(where, piece, columns.features, False, begin))
            if samples is None:
                samples = mapped_scratch((len(labels), X.shape[1]), X.dtype)
            if X.shape[1] != samples.shape[1]:
                raise DataError(
                    f"{where} has {X.shape[1]} features in row {begin} and {samples.shape[1]} "
                    "in row 0; all rows need the same number."
                )
            samples[place[begin : begin + len(X)]] = X
            begin += len(X)
    pool = _pool(where, name, columns, about, np.zeros((len(labels), 1), np.float32))
    return replace(pool, samples=samples)


def _read(
    table: Any, where: str, name: str, asked: _Asked, features: Mapping[str, Any] | None = None
) -> ClassPool:
    """The pool of an Arrow table; ``features`` of `datasets` know the names of its classes."""
    if table.num_rows == 0:
        raise DataError(f"{where} has no rows.")
    table = _plainly_typed(table)
    columns = _Columns.find(where, table, asked)
    table = table.append_column(_ROW, [np.arange(table.num_rows)])
    table, notes = _without_gaps(
        where, table, [*columns.needed, *columns.features], asked.skip_damaged
    )
    if _kind(table, columns.features[0]) == "picture":
        pictures = _pictures(where, table, columns.features[0], asked)
        of_all = len(pictures.kept) + len(pictures.damaged)
        notes += left_out(pictures.damaged, f"of {of_all:,} pictures could not be read")
        samples, table = pictures.samples, table.take(pictures.kept)
    else:
        _refuse_image_options(where, asked)
        samples = _features(where, table, columns.features, asked.skip_damaged)
    class_names = getattr((features or {}).get(columns.label), "names", None)
    pool = _pool(where, name, columns, table, samples, class_names, asked.skip_damaged)
    return with_notes(pool, *notes)


def _refuse_image_options(where: str, asked: _Asked) -> None:
    if asked.image_size is not None or asked.colour is not None:
        raise DataError(f"image_size and colour are for pictures; {where} has features.")


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
        twice = [name for i, name in enumerate(names) if name in names[:i]]
        if twice:
            raise DataError(f"{where} has several columns called {twice[0]!r}. Rename or drop one.")
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
    import pyarrow.types as pt

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


def _pool(
    where: str,
    name: str,
    columns: _Columns,
    table: Any,
    samples: Shaped[np.ndarray, "rows ..."],
    class_names: Any = None,
    skip_damaged: bool = False,
) -> ClassPool:
    def values(column: str | None) -> Any:
        return None if column is None else _values(table, column)

    pool = load_arrays(
        samples, values(columns.label), name=name, class_names=class_names,
        splits=values(columns.split), groups=values(columns.group),
        sample_names=values(columns.ids), by_sample=True, skip_damaged=skip_damaged,
        info={"source": where, "unused_columns": columns.unused},
        given_rows=values(_ROW if _ROW in table.column_names else None),
    )  # fmt: skip
    return with_notes(pool, *columns.notes)


# -- reading ------------------------------------------------------------------------------------


def _open(path: Path, named: Sequence[Any] = ()) -> Any:
    import pyarrow as pa

    try:
        if path.suffix.lower() in TEXT:
            return _open_text(path, named)
        if path.suffix.lower() in PARQUET:
            import pyarrow.parquet

            table = pyarrow.parquet.read_table(path)
        else:
            with pa.OSFile(str(path), "rb") as file:
                try:
                    table = pa.ipc.open_file(file).read_all()
                except pa.ArrowInvalid:  # the streaming form of the same format
                    file.seek(0)
                    table = pa.ipc.open_stream(file).read_all()
        table.validate(full=True)  # to use a damaged one could end the process
        return table
    except DataError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _plainly_typed(table: Any) -> Any:
    """The table without dictionaries and views, as of polars, which Arrow hardly computes with."""
    import pyarrow as pa

    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    for i, field in enumerate(table.schema):
        coded = pa.types.is_dictionary(field.type)
        kind = field.type.value_type if coded else field.type
        plain, column = views.get(kind, kind), table.column(i)
        if coded:  # Arrow cannot look views up in a dictionary
            column = column.cast(pa.dictionary(field.type.index_type, plain))
        table = table.set_column(i, field.name, column.cast(plain))
    return table


def _unreadable(path: Path, error: Exception) -> DataError:
    kind = path.suffix[1:] or "Parquet"
    return DataError(
        f"{path} is not a readable {kind} table ({error}); it may be cut short. Write it again."
    )


def _open_text(path: Path, named: Sequence[Any]) -> Any:
    """A CSV file with a header, which shows whether commas, semicolons or tabs divide it."""
    import pyarrow.csv

    with path.open("rb") as file:
        header = file.readline(1 << 20)
        file.seek(0)
        quotes = sum(block.count(b'"') for block in iter(lambda: file.read(1 << 20), b""))
    if header.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{path} is UTF-16 text. Save it as UTF-8.")
    delimiter = chr(max(b",;\t", key=header.count))
    if quotes % 2:  # Arrow would take all that follows for one cell
        for _ in csv_rows(path, delimiter):
            pass
    options = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    table = pyarrow.csv.read_csv(path, parse_options=options)
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


def _with_padded_names(path: Path, table: Any, options: Any, named: Sequence[Any]) -> Any:
    """The table with 007 as text, not as 7, in columns of labels and of other names."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv

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


def _without_gaps(
    where: str, table: Any, columns: Sequence[str], skip: bool, first_row: int = 0
) -> tuple[Any, list[str]]:
    """The table without rows that lack a value, if they may be skipped; missing numbers stay."""
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = np.zeros(table.num_rows, dtype=bool)
    for name in columns:
        column, kind = table.column(name), _kind(table, name)
        gaps = pc.is_null(column)
        if kind == "text":
            gaps = pc.or_(gaps, pc.fill_null(pc.equal(column, ""), True))
        here = np.asarray(gaps.to_numpy())
        if here.any() and not skip:
            raise DataError(
                f"{where}: column {name!r} has {here.sum()} missing values, the first in row "
                f"{first_row + here.argmax()} (from 0). Remove or fill these rows, or leave them "
                "out with skip_damaged=True (--skip-damaged)."
            )
        if kind not in _NUMBERS or name == columns[0]:
            missing |= here
    if not missing.any():
        return table, []
    if missing.all():
        raise DataError(f"{where}: every row lacks a value in {few_names(columns, 12)}.")
    lost = [f"row {row}" for row in np.flatnonzero(missing)]
    notes = left_out(lost, f"of {len(missing):,} rows lack a value")
    return table.filter(pa.array(~missing)), notes


def _values(table: Any, column: str) -> Shaped[np.ndarray, "rows"]:
    return np.asarray(table.column(column).to_numpy())


def _pictures(where: str, table: Any, column: str, asked: _Asked) -> Pictures:
    cells = table.column(column).to_pylist()

    def opened(row: int) -> BufferedReader | BytesIO:
        cell = cells[row]
        data = cell.get("bytes") if isinstance(cell, dict) else cell
        if data is not None:
            return BytesIO(data)
        try:
            return Path(cell["path"]).open("rb")
        except (KeyError, TypeError, OSError) as error:
            raise DataError(f"{where}, row {row}: its picture is not there ({error}).") from error

    return read_pictures(
        [(partial(opened, r), f"{where}, row {r}, column {column!r}") for r in range(len(cells))],
        size=asked.image_size, colour=asked.colour, skip_damaged=asked.skip_damaged,
    )  # fmt: skip


def _features(
    where: str, table: Any, columns: Sequence[str], skip: bool, first_row: int = 0
) -> Float[np.ndarray, "rows dims"]:
    if _kind(table, columns[0]) != "list":
        return np.column_stack([table.column(c).to_numpy().astype(np.float32) for c in columns])
    lists = table.column(columns[0]).combine_chunks()
    lengths = np.asarray(lists.value_lengths().to_numpy(zero_copy_only=False))
    odd = np.flatnonzero(lengths != lengths[0])
    if odd.size:
        raise DataError(
            f"{where}: column {columns[0]!r} has {lengths[odd[0]]} features in row "
            f"{first_row + odd[0]} and {lengths[0]} in row {first_row}; all rows need the same "
            "number."
        )
    flat = lists.flatten()
    if flat.null_count and not skip:
        raise DataError(f"{where}: column {columns[0]!r} has {flat.null_count} missing features.")
    values = np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(lengths), -1)
    return values if values.dtype.kind == "f" else values.astype(np.float32)
