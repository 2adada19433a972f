"""The posterior of tasks: in memory and in a Parquet file."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float, Int, UInt64
from numpy.typing import ArrayLike

from taskscape.arguments import as_array, check_whole, public
from taskscape.embeddings.factors import (
    BLOCK,
    TASK_THEMES,
    Factor,
    Posterior,
    Sums,
    split_columns,
)
from taskscape.errors import DataError
from taskscape.io.files import Kind, atomic_write
from taskscape.io.tables import (
    header_of,
    list_column,
    open_parquet,
    read_batches,
    read_row_group,
    table_with_header,
    write_parquet,
)
from taskscape.io.values import check_format, damage_named, from_plain, plain
from taskscape.notebook import ShownInNotebooks
from taskscape.plain_text import low_to_high
from taskscape.pools.pool import few_names
from taskscape.tasks import TaskSet
from taskscape.tasks.manifest import class_column, padded_classes
from taskscape.tasks.taskset import Rows, as_rows, check_range, pad

_WHAT = "embeddings"


@dataclass(frozen=True)
class Header:
    """Which model and which pool embedded tasks belong to."""

    model: str
    """What identifies the fitted model, such as its fingerprint; empty if unknown."""
    pool: str
    fingerprint: str
    class_names: tuple[str, ...]
    factors: tuple[Factor, ...]
    """What the posterior of a task is a product of, in the order of the columns."""
    groups: tuple[str, ...] | None = None
    delta: float | None = None
    """The prior of the mixture of task-themes, which :func:`normalise_ways` needs."""

    def check_same_model(self, other: "Header", own: str, there: str) -> None:
        """Raise an error unless both were embedded by the same model."""
        for what, mine, theirs in (
            ("factors", describe_factors(self.factors), describe_factors(other.factors)),
            ("model", _short(self.model), _short(other.model)),
        ):
            if mine != theirs and not (what == "model" and "" in (mine, theirs)):
                raise DataError(
                    f"{own} has {what} {mine}, {there} {theirs}; distances only mean something "
                    "within one model. Embed both with the same one."
                )

    def check_same_pool(self, other: "Header", own: str, there: str) -> None:
        """Raise an error unless the tasks of both are over the same pool."""
        if self.fingerprint != other.fingerprint:
            raise DataError(
                f"{own} has tasks over pool {self.pool!r} (fingerprint {self.fingerprint[:12]}…), "
                f"{there} over {other.pool!r} (fingerprint {other.fingerprint[:12]}…); their class "
                "ids mean different classes. Keep one catalogue for each pool."
            )

    @property
    def unit(self) -> str:
        """What distances are in: nats if they are one plain KL divergence, or nothing.

        Those of several factors are relative to the mean between training tasks.
        """
        weighing = [f for f in self.factors if f.share > 0]
        plain = len(weighing) == 1 and weighing[0].weight == 1
        return "nats" if plain and weighing[0].kind == "dirichlet" else ""

    @property
    def counts_themes(self) -> bool:
        """Whether distances are by task-themes alone, under which many tasks are equally near."""
        return all(f.name.startswith(TASK_THEMES) for f in self.factors if f.share > 0)

    def class_ids(self, classes: Sequence[int | str]) -> Int[np.ndarray, "n"]:
        """The ids of classes given by id or name."""
        if isinstance(classes, str) or not isinstance(classes, Iterable):
            raise DataError(f"classes={classes!r} must be a list of ids or names.")
        index = {name: c for c, name in enumerate(self.class_names)}
        ids = []
        for c in classes:
            number = index.get(c, -1) if isinstance(c, str) else check_whole(c, "class")
            if not 0 <= number < len(self.class_names):
                raise DataError(
                    f"no class {c!r} in pool {self.pool!r}; it has {len(self.class_names)} classes "
                    f"such as {few_names(self.class_names)}."
                )
            ids.append(number)
        return np.array(ids, dtype=np.int64)

    def classes_in_group(self, group: str) -> Int[np.ndarray, "n"]:
        """The ids of the classes of a group, such as an alphabet."""
        if self.groups is None:
            raise DataError(f"group={group!r}: the classes of pool {self.pool!r} have no groups.")
        ids = np.flatnonzero(np.array(self.groups) == group)
        if not ids.size:
            has = few_names(sorted(set(self.groups)), 5)
            raise DataError(f"no group {group!r} in pool {self.pool!r}; it has {has}.")
        return ids


@dataclass(frozen=True, eq=False, repr=False)
class Embeddings(ShownInNotebooks):
    """The posterior of tasks under a model, a product of factors, with what the tasks are.

    Functions that compare or select tasks take it as it is. ``embeddings[:10]`` are the first ten
    tasks; ``embeddings.factor("image_themes")`` is one factor alone, whose distances are its plain
    KL divergence. ``np.asarray(embeddings)`` has all factors side by side, as
    :meth:`~taskscape.TaskThemes.transform` gives them; :attr:`columns` names them.
    """

    header: Header
    ids: Int[np.ndarray, "tasks"]
    classes: Int[np.ndarray, "tasks way"]
    """Class ids, padded with -1."""
    values: Float[np.ndarray, "tasks columns"]
    """The numbers of all factors, side by side."""
    logs: Float[np.ndarray, "tasks factors"]
    """The log-normaliser of each factor, which distances need; for a Dirichlet, ln B."""
    elbo: Float[np.ndarray, "tasks"]
    """How well the model explains each task, in nats per sample: the log-likelihood or its bound
    (of an ensemble, the mean); NaN if not known."""
    keys: UInt64[np.ndarray, "tasks"] | None = None
    """What the samples of each task derive from."""

    @staticmethod
    @public
    def of(
        tasks: TaskSet,
        values: ArrayLike,
        factors: Sequence[Factor] | None = None,
        *,
        model: str = "",
        logs: ArrayLike | None = None,
        elbo: ArrayLike | None = None,
        delta: float | None = None,
    ) -> "Embeddings":
        """Embeddings of a TaskSet, from the numbers (tasks, columns) of its factors.

        Without ``factors`` they are λ, concentrations of task-themes. ``logs`` are the factors'
        log-normalisers, computed where they are not given.
        """
        numbers = as_array(values)
        if numbers.ndim != 2 or len(numbers) != len(tasks) or numbers.dtype.kind != "f":
            raise DataError(
                f"values have shape {numbers.shape} and type {numbers.dtype}; expected "
                f"floating-point numbers for {len(tasks)} tasks."
            )
        factors = factors or (Factor(TASK_THEMES, "dirichlet", numbers.shape[1]),)
        check_factors(numbers, factors, "values")
        if logs is None:
            logs = Posterior.of(numbers, factors).logs
        pool = tasks.pool
        bound = np.nan if elbo is None else as_array(elbo).astype(numbers.dtype)
        return Embeddings(
            header=Header(
                model=model,
                pool=pool.name,
                fingerprint=pool.fingerprint,
                class_names=pool.class_names,
                factors=tuple(factors),
                groups=pool.groups,
                delta=delta,
            ),
            ids=np.arange(len(tasks)),
            classes=tasks.classes,
            values=numbers,
            logs=as_array(logs).astype(np.float64).reshape(len(tasks), len(factors)),
            elbo=np.broadcast_to(bound, len(numbers)).astype(numbers.dtype),
            keys=tasks.keys,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        factors = describe_factors(self.header.factors)
        return f"Embeddings({len(self):,} tasks over {self.header.pool!r}: {factors})"

    def _rows(self) -> Iterable[Mapping[str, Any]]:
        ids = enumerate(self.ids.tolist())
        return ({"task": id_, "classes": ", ".join(self.names(row))} for row, id_ in ids)

    def __getitem__(self, which: Rows) -> "Embeddings":
        """Some of the tasks: a slice, indices, or a mask."""
        rows = as_rows(which)
        parts = {name: getattr(self, name) for name in _BY_TASK}
        return replace(self, **{k: value[rows] for k, value in parts.items() if value is not None})

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All factors side by side, (tasks, columns)."""
        return np.array(self.values, dtype=dtype, copy=copy)

    @property
    def posterior(self) -> Posterior:
        """The numbers with what they are."""
        return Posterior(self.values, self.logs, self.header.factors)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of :attr:`values`, such as ``image_themes_0``."""
        return tuple(f"{f.name}_{i}" for f in self.header.factors for i in range(f.size))

    def factor(self, name: str) -> "Embeddings":
        """One factor alone: distances are then its KL divergence, in nats.

        ``"task_themes"`` of an ensemble is all of its fits, each divided by its mean distance.
        """
        known = self.header.factors
        kept = [f for f in known if f.name == name]
        if name == TASK_THEMES:
            kept = of_task_themes(known)
        if not kept:
            names = ", ".join(f.name for f in known)
            raise DataError(f"no factor {name!r} in these embeddings; they have {names}.")
        one = self.posterior.only(kept)
        factors = tuple(replace(f, share=1 / len(kept)) for f in kept)
        if len(kept) == 1:
            factors = (replace(kept[0], share=1.0, scale=1.0),)
        header = replace(self.header, factors=factors)
        return replace(self, header=header, values=one.values, logs=one.logs)

    @property
    def lam(self) -> Float[np.ndarray, "members tasks L"]:
        """λ of the paper, the concentrations of task-themes, by member of an ensemble."""
        themes = self.factor(TASK_THEMES)
        return np.stack(split_columns(themes.values, themes.header.factors))

    @property
    def n_way(self) -> Int[np.ndarray, "tasks"]:
        """The number of classes of each task."""
        return (self.classes >= 0).sum(axis=1)

    def names(self, row: int) -> tuple[str, ...]:
        """The class names of the task in a row."""
        return tuple(self.header.class_names[c] for c in self.classes[row] if c >= 0)

    def summary(self) -> str:
        """In words: tasks, model, and how the tasks spread over the themes."""
        header, model = self.header, self.header.model
        of_model = f"model {_short(model)}" if model else "a model that is not named"
        lines = [
            f"{len(self):,} tasks over pool {header.pool!r}, embedded by {of_model}: "
            f"{describe_factors(header.factors)}."
        ]
        if len(self):
            lines.append(f"Each has {low_to_high(self.n_way.tolist())} classes.")
        if len(self) and of_task_themes(header.factors):
            share = (self.lam[0] / self.lam[0].sum(axis=1, keepdims=True)).mean(axis=0)
            lines.append(f"Mean share of each task-theme: {', '.join(f'{s:.2f}' for s in share)}.")
        if len(self) and np.isfinite(self.elbo).all():
            lines.append(
                f"Explained by {self.elbo.mean():.3f} nats per sample on average, from "
                f"{self.elbo.min():.3f} to {self.elbo.max():.3f}."
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: the model and pool, and a row for each task."""
        rows, known = [], bool(np.isfinite(self.elbo).all())
        parts = split_columns(self.values, self.header.factors)
        for i, task in enumerate(self.ids.tolist()):
            row = {"task": task, "classes": list(self.names(i))}
            for factor, part in zip(self.header.factors, parts, strict=True):
                row[factor.name] = part[i].tolist()
            rows.append(row | {"elbo": float(self.elbo[i])} if known else row)
        about = {name: getattr(self.header, name) for name in ("model", "pool", "fingerprint")}
        factors = [vars(f) for f in self.header.factors]
        return {**about, "factors": factors, "delta": self.header.delta, "tasks": rows}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one Parquet file, atomically; :class:`Catalogue` opens it too."""
        with atomic_write(path, EMBEDDINGS) as file:
            write_parquet(file, to_table(self), row_group_size=BLOCK)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Embeddings":
        """Everything in a file or catalogue, in memory."""
        from taskscape.embeddings.catalogue import Catalogue

        return Catalogue(path).read()

    @staticmethod
    def concatenate(parts: "Sequence[Embeddings]") -> "Embeddings":
        """Several pieces, one after another, all of one model and one pool."""
        if not parts:
            raise DataError("concatenate needs at least one piece.")
        for i, part in enumerate(parts):
            part.header.check_same_model(parts[0].header, f"piece {i}", "piece 0")
            part.header.check_same_pool(parts[0].header, f"piece {i}", "piece 0")
        way = max(p.classes.shape[1] for p in parts)
        joined: dict[str, Any] = {}
        for name in _BY_TASK:
            pieces = [getattr(p, name) for p in parts]
            if name == "classes":
                pieces = [pad(piece, (way,)) for piece in pieces]
            whole = all(piece is not None for piece in pieces)
            joined[name] = np.concatenate(pieces) if whole else None
        return replace(parts[0], **joined)


_BY_TASK = ("ids", "classes", "values", "logs", "elbo", "keys")


def of_task_themes(factors: Sequence[Factor]) -> list[Factor]:
    """The factors that hold λ, one for each fit of an ensemble."""
    return [f for f in factors if f.name.startswith(TASK_THEMES)]


def describe_factors(factors: Sequence[Factor]) -> str:
    """The factors in words, such as ``256 image-themes, position in 128 dimensions``."""
    words = {"dirichlet": "{size} {name}", "gaussian": "{name} in {size} dimensions"}
    return ", ".join(
        words[f.kind].format(size=f.size, name=f.name.replace("_", "-")) for f in factors
    )


def check_factors(
    values: Float[np.ndarray, "tasks columns"], factors: Sequence[Factor], name: str
) -> None:
    """Raise an error unless these numbers can be the posteriors of tasks."""
    columns = sum(f.size for f in factors)
    if values.shape[1] != columns:
        raise DataError(
            f"{name} has {values.shape[1]} columns; {describe_factors(factors)} are {columns}."
        )
    for factor, part in zip(factors, split_columns(values, factors), strict=True):
        good = np.isfinite(part)
        if factor.kind == "dirichlet":
            good &= part > 0
        if not good.all():
            task, column = np.argwhere(~good)[0]
            raise DataError(
                f"{name} holds {part[task, column]:g} at task {task}, column {column} of "
                f"{factor.name}; concentrations are positive and finite. Arrays are taken for λ; "
                "where there are other factors, pass embedded tasks (model.embed)."
            )


@dataclass(frozen=True)
class TaskFilter:
    """Which tasks of a catalogue to look at; a criterion that is None is ignored."""

    any_class: Sequence[int | str] | None = None
    """Tasks with at least one of these classes, given by id or name."""
    group: str | None = None
    """Tasks whose classes all belong to this group, such as an alphabet."""
    n_way: int | tuple[int, int] | None = None
    """Tasks with this many classes, or from this many to that many."""

    def __bool__(self) -> bool:
        return any(value is not None for value in vars(self).values())

    def mask(
        self, header: Header, classes: Int[np.ndarray, "tasks way"]
    ) -> Bool[np.ndarray, "tasks"]:
        """Which of the tasks with these class ids pass."""
        real = classes >= 0
        good = np.ones(len(classes), dtype=bool)
        if self.any_class is not None:
            good &= np.isin(classes, header.class_ids(self.any_class)).any(axis=1)
        if self.group is not None:
            good &= (np.isin(classes, header.classes_in_group(self.group)) | ~real).all(axis=1)
        if self.n_way is not None:
            low, high = check_range(self.n_way, "n_way", 0)
            n_way = real.sum(axis=1)
            good &= (n_way >= low) & (n_way <= high)
        return good


# -- files --------------------------------------------------------------------------------------


class EmbeddingsFile:
    """An opened Parquet file of embedded tasks, read as a whole, by block, or by place.

    What is read is checked against the checksums of its pages.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_parquet(path)
        self.header = _read_header(self._file.schema_arrow, str(path))

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    @property
    def sums(self) -> Sums:
        """What the mean over its tasks needs, without reading them."""
        header = header_of(self._file.schema_arrow, _WHAT) or {}
        with damage_named(self.path, "a file of embedded tasks"):
            return from_plain(Sums, header["totals"])

    def batches(self, size: int, columns: list[str] | None = None) -> Iterator[Embeddings]:
        """All tasks, so many at a time."""
        for table in read_batches(self._file, self.path, size, columns):
            yield self._tasks(table)

    def _tasks(self, table: pa.Table) -> Embeddings:
        with damage_named(self.path, "a file of embedded tasks"):
            return from_table(table, self.header)

    def take(self, places: Int[np.ndarray, "some"]) -> Embeddings:
        """The tasks at these places, which ascend; only the blocks that hold them are read."""
        metadata = self._file.metadata
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        ends = np.cumsum(sizes)
        block_of = np.searchsorted(ends, places, side="right")
        pieces = []
        for i in np.unique(block_of).tolist():
            block = self._tasks(read_row_group(self._file, self.path, i))
            pieces.append(block[places[block_of == i] - int(ends[i] - sizes[i])])
        return Embeddings.concatenate(pieces)

    def places_of(self, task: int) -> Int[np.ndarray, "some"]:
        """Where the tasks with this id stand."""
        tables = read_batches(self._file, self.path, max(1, len(self)), ["task"])
        ids = [table["task"].to_numpy() for table in tables]
        return np.flatnonzero(np.concatenate(ids) == task) if ids else np.empty(0, np.int64)


EMBEDDINGS = Kind("a file of embedded tasks", lambda path: EmbeddingsFile(path).header)


def to_table(embeddings: Embeddings) -> pa.Table:
    """One row per task, a column of lists for each factor, and the sums that means need."""
    e = embeddings
    columns: dict[str, Any] = {
        "task": pa.array(e.ids),
        "classes": class_column(e.classes),
        "n_way": pa.array(e.n_way.astype(np.int32)),
    }
    if e.keys is not None:
        columns["key"] = pa.array(e.keys)
    parts = split_columns(e.values, e.header.factors)
    for factor, values in zip(e.header.factors, parts, strict=True):
        kept = values.astype(np.float16) if factor.half else values
        columns[factor.name] = list_column(kept)
    columns["logs"] = list_column(e.logs)
    columns["elbo"] = pa.array(e.elbo)
    about = plain(e.header) | {"totals": plain(Sums.of(e.posterior))}
    return table_with_header(columns, {"what": _WHAT, **about})


def _rows(column: pa.ChunkedArray, size: int) -> np.ndarray:
    return column.combine_chunks().flatten().to_numpy().reshape(-1, size)


def _read_header(schema: pa.Schema, source: str) -> Header:
    """The header of a table made by :func:`to_table`."""
    header = header_of(schema, _WHAT)
    if header is None or "sha256" not in header:  # by which its values are verified
        raise DataError(
            f"{source} does not hold embedded tasks. Write them with `taskscape embed`."
        )
    check_format(header, source)
    with damage_named(source, "a file of embedded tasks"):
        read: Header = from_plain(Header, header)
        describe_factors(read.factors)  # which fails where they are not what they should be
        return read


def from_table(table: pa.Table, header: Header) -> Embeddings:
    """The embeddings of a table made by :func:`to_table`, or of some of its rows and columns."""
    names, n = set(table.column_names), table.num_rows

    def column(name: str, otherwise: np.ndarray) -> np.ndarray:
        return table[name].to_numpy() if name in names else otherwise

    parts = [_rows(table[f.name], f.size) for f in header.factors]
    parts = [p.astype(np.float32) if p.dtype == np.float16 else p for p in parts]
    classes = padded_classes(table["classes"], np.int32) if "classes" in names else None
    return Embeddings(
        header=header,
        ids=column("task", np.arange(n)),
        classes=np.full((n, 0), -1) if classes is None else classes,
        values=parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1),
        logs=_rows(table["logs"], len(header.factors)),
        elbo=column("elbo", np.full(n, np.nan, dtype=np.float32)),
        keys=table["key"].to_numpy() if "key" in names else None,
    )


def _short(value: object) -> str:
    text = str(value)
    return f"{text[:12]}…" if len(text) > 12 else text
