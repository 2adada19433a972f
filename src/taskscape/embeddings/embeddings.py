"""The posterior of tasks: in memory and in a Parquet file."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float, Int, UInt64
from numpy.typing import ArrayLike

from taskscape.arguments import as_array, check_kind, check_whole
from taskscape.embeddings.blocks import BLOCK, Sums
from taskscape.errors import DataError
from taskscape.files import Kind, damage_named, written_in_one_piece
from taskscape.storage import (
    check_format,
    header_of,
    open_parquet,
    read_batches,
    read_row_group,
    table_with_header,
    write_parquet,
)
from taskscape.tasks import TaskSet
from taskscape.tasks.manifest import class_column, padded_classes
from taskscape.tasks.taskset import Rows, as_rows, check_range

_WHAT = "embeddings"
_IDS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Header:
    """Which model and which pool embedded tasks belong to."""

    model: str
    """What identifies the fitted model, such as its fingerprint; empty if unknown."""
    pool: str
    fingerprint: str
    class_names: tuple[str, ...]
    members: int
    task_themes: int
    groups: tuple[str, ...] | None = None
    delta: float | None = None
    """The prior of the task mixture, which :func:`normalise_ways` needs."""

    def check_same_model(self, other: "Header", here: str, there: str) -> None:
        """Raise an error unless both were embedded by the same model."""
        for what, mine, theirs in (
            ("task-themes", self.task_themes, other.task_themes),
            ("members", self.members, other.members),
            ("model", self.model, other.model),
        ):
            if mine != theirs and not (what == "model" and "" in (mine, theirs)):
                raise DataError(
                    f"{here} has {what} {_short(mine)}, {there} {_short(theirs)}; distances only "
                    "mean something within one model. Embed both with the same one."
                )

    def check_same_pool(self, other: "Header", here: str, there: str) -> None:
        """Raise an error unless the tasks of both are over the same pool."""
        if self.fingerprint != other.fingerprint:
            raise DataError(
                f"{here} has tasks over pool {self.pool!r} (fingerprint {self.fingerprint[:12]}…), "
                f"{there} over {other.pool!r} (fingerprint {other.fingerprint[:12]}…); their class "
                "ids mean different classes. Keep one catalogue for each pool."
            )

    def class_ids(self, classes: Sequence[int | str]) -> Int[np.ndarray, "n"]:
        """The ids of classes given by id or name."""
        if isinstance(classes, str) or not isinstance(classes, Iterable):
            raise DataError(f"classes={classes!r} must be a list of ids or names.")
        index = {name: c for c, name in enumerate(self.class_names)}
        ids = []
        for c in classes:
            number = index.get(c, -1) if isinstance(c, str) else check_whole(c, "class")
            if not 0 <= number < len(self.class_names):
                examples = ", ".join(map(repr, self.class_names[:3]))
                raise DataError(
                    f"no class {c!r} in pool {self.pool!r}; it has {len(self.class_names)} classes "
                    f"such as {examples}."
                )
            ids.append(number)
        return np.array(ids, dtype=np.int64)

    def classes_in_group(self, group: str) -> Int[np.ndarray, "n"]:
        """The ids of the classes of a group, such as an alphabet."""
        if self.groups is None:
            raise DataError(f"group={group!r}: the classes of pool {self.pool!r} have no groups.")
        ids = np.flatnonzero(np.array(self.groups) == group)
        if not ids.size:
            examples = ", ".join(map(repr, sorted(set(self.groups))[:5]))
            raise DataError(f"no group {group!r} in pool {self.pool!r}; it has {examples}.")
        return ids


@dataclass(frozen=True, eq=False, repr=False)
class Embeddings:
    """The posterior of tasks under every member of a model, with what the tasks are.

    Functions that compare or select tasks take it as it is. ``embeddings[:10]`` are the first ten
    tasks; ``np.asarray(embeddings)`` has λ as :meth:`~taskscape.TaskThemes.transform` gives it:
    (tasks, task-themes) for a single fit, (members, tasks, task-themes) for an ensemble. The fields
    always have the axis of members: ``lam[0]`` is λ under the best fit.
    """

    header: Header
    ids: Int[np.ndarray, "tasks"]
    classes: Int[np.ndarray, "tasks way"]
    """Class ids, padded with -1."""
    lam: Float[np.ndarray, "members tasks L"]
    """Dirichlet concentrations: λ of the paper."""
    elbo: Float[np.ndarray, "members tasks"]
    """The bound in nats per sample: how well each member explains each task; NaN if not known."""
    sweeps: Int[np.ndarray, "members tasks"]
    """Sweeps that the E-step took for the slowest class of the task; 0 if not known."""
    keys: UInt64[np.ndarray, "tasks"] | None = None
    """What the samples of each task derive from."""
    gamma: Float[np.ndarray, "members tasks way K"] | None = None
    """Concentrations of each class's mixture of image-themes, where asked for; not in files."""

    @staticmethod
    def of(
        tasks: TaskSet,
        lam: ArrayLike,
        *,
        model: str = "",
        elbo: ArrayLike | None = None,
        sweeps: ArrayLike | None = None,
        gamma: Float[np.ndarray, "members tasks way K"] | None = None,
        ids: ArrayLike | None = None,
        delta: float | None = None,
    ) -> "Embeddings":
        """Embeddings of a TaskSet: λ (tasks, L) or (members, tasks, L), bounds and sweeps alike."""
        check_kind(tasks, TaskSet, "tasks", "Make one with sample_tasks.")
        values = as_array(lam)
        values = values[None] if values.ndim == 2 else values
        if values.ndim != 3 or values.shape[1] != len(tasks):
            raise DataError(f"lam has shape {values.shape} for {len(tasks)} tasks.")
        if values.dtype.kind != "f" or not (np.isfinite(values) & (values > 0)).all():
            raise DataError("lam must be positive, finite floating-point numbers.")
        pool = tasks.pool
        header = Header(
            model=model,
            pool=pool.name,
            fingerprint=pool.fingerprint,
            class_names=pool.class_names,
            members=values.shape[0],
            task_themes=values.shape[2],
            groups=pool.groups,
            delta=delta,
        )
        numbers = np.arange(len(tasks)) if ids is None else np.asarray(ids)
        bound = np.nan if elbo is None else np.asarray(elbo, dtype=values.dtype)
        taken = 0 if sweeps is None else np.asarray(sweeps)
        shape = values.shape[:2]
        return Embeddings(
            header=header,
            ids=numbers.astype(np.int64),
            classes=tasks.classes,
            lam=values,
            elbo=np.broadcast_to(bound, shape).astype(values.dtype),
            sweeps=np.broadcast_to(taken, shape).astype(np.int32),
            keys=tasks.keys,
            gamma=gamma,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        members, tasks, L = self.lam.shape
        fits = f" under {members} fits" if members > 1 else ""
        return f"Embeddings({tasks:,} tasks over {self.header.pool!r}: {L} task-themes{fits})"

    def __getitem__(self, which: Rows) -> "Embeddings":
        """Some of the tasks: a slice, indices, or a mask."""
        rows = as_rows(which)
        parts = {name: getattr(self, name) for name in (*_BY_TASK, *_BY_MEMBER)}
        return replace(
            self,
            **{
                name: value[rows] if name in _BY_TASK else value[:, rows]
                for name, value in parts.items()
                if value is not None
            },
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """λ, (tasks, task-themes); of an ensemble, (members, tasks, task-themes)."""
        lam = self.lam[0] if len(self.lam) == 1 else self.lam
        return np.array(lam, dtype=dtype) if copy else np.asarray(lam, dtype=dtype)

    @property
    def n_way(self) -> Int[np.ndarray, "tasks"]:
        """The number of classes of each task."""
        return (self.classes >= 0).sum(axis=1)

    def names(self, row: int) -> tuple[str, ...]:
        """The class names of the task in a row."""
        return tuple(self.header.class_names[c] for c in self.classes[row] if c >= 0)

    def summary(self) -> str:
        """What is here, in words: tasks, model, and how the tasks spread over the themes."""
        header, model = self.header, self.header.model
        of_model = f"model {_short(model)}" if model else "a model that is not named"
        lines = [
            f"{len(self):,} tasks over pool {header.pool!r}, embedded by {of_model}: "
            f"{header.task_themes} task-themes, {header.members} "
            f"{'fit' if header.members == 1 else 'fits'}."
        ]
        if len(self):
            way = self.n_way
            share = (self.lam[0] / self.lam[0].sum(axis=1, keepdims=True)).mean(axis=0)
            lines.append(f"Each has {way.min()} to {way.max()} classes.")
            lines.append(f"Mean share of each task-theme: {', '.join(f'{s:.2f}' for s in share)}.")
        if len(self) and np.isfinite(self.elbo[0]).all():
            bound = self.elbo[0]
            lines.append(
                f"Bound: {bound.mean():.3f} nats per sample on average, from {bound.min():.3f} to "
                f"{bound.max():.3f}."
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: the model and pool, and a row for each task.

        λ and the bound of a task are lists by member, unless there is one alone.
        """
        rows, known = [], bool(np.isfinite(self.elbo).all())
        members = 0 if len(self.lam) == 1 else slice(None)
        for i, task in enumerate(self.ids.tolist()):
            lam, elbo = self.lam[members, i].tolist(), self.elbo[members, i].tolist()
            row = {"task": task, "classes": list(self.names(i)), "lam": lam}
            if known:
                row["elbo"] = elbo
            rows.append(row)
        about = {name: getattr(self.header, name) for name in ("model", "pool", "fingerprint")}
        return {**about, "delta": self.header.delta, "tasks": rows}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one Parquet file, in one piece; :class:`Catalogue` opens it too."""
        with written_in_one_piece(path, EMBEDDINGS) as file:
            write_embeddings(self, file)

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
        for name in (*_BY_TASK, *_BY_MEMBER):
            pieces = [getattr(p, name) for p in parts]
            if name in _PADDED:
                axis, fill = _PADDED[name]
                pieces = [_padded(piece, axis, way, fill) for piece in pieces]
            whole = all(piece is not None for piece in pieces)
            joined[name] = np.concatenate(pieces, axis=int(name in _BY_MEMBER)) if whole else None
        return replace(parts[0], **joined)


_BY_TASK = ("ids", "classes", "keys")
_BY_MEMBER = ("lam", "elbo", "sweeps", "gamma")
_PADDED = {"classes": (1, -1), "gamma": (2, 1)}
"""What has an axis of classes, which axis that is, and what stands where there is no class."""


def _padded(values: np.ndarray | None, axis: int, size: int, fill: int) -> np.ndarray | None:
    if values is None:
        return None
    room = [(0, size - n if i == axis else 0) for i, n in enumerate(values.shape)]
    return np.pad(values, room, constant_values=fill)


@dataclass(frozen=True)
class TaskFilter:
    """Which tasks of a catalogue to look at; a criterion that is None is ignored."""

    any_class: Sequence[int | str] | None = None
    """Tasks with at least one of these classes, given by id or name."""
    only_classes: Sequence[int | str] | None = None
    """Tasks with no class but these."""
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
        if self.only_classes is not None:
            good &= (np.isin(classes, header.class_ids(self.only_classes)) | ~real).all(axis=1)
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
        if not path.exists():
            raise DataError(f"{path} does not exist.")
        self._file = open_parquet(path)
        self.header = _read_header(self._file.schema_arrow, str(path))

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    @property
    def sums(self) -> Sums:
        """What the mean over its tasks needs, without reading them."""
        header = header_of(self._file.schema_arrow, _WHAT) or {}
        with damage_named(self.path, "a file of embedded tasks"):
            return Sums.from_dict(header["totals"])

    def batches(self, size: int, columns: list[str] | None = None) -> Iterator[Embeddings]:
        """All tasks, so many at a time."""
        for table in read_batches(self._file, self.path, size, columns):
            yield from_table(table, self.header)

    def take(self, places: Int[np.ndarray, "some"]) -> Embeddings:
        """The tasks at these places, which ascend; only the blocks that hold them are read."""
        metadata = self._file.metadata
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        ends = np.cumsum(sizes)
        block_of = np.searchsorted(ends, places, side="right")
        pieces = []
        for i in np.unique(block_of).tolist():
            block = from_table(read_row_group(self._file, self.path, i), self.header)
            pieces.append(block[places[block_of == i] - int(ends[i] - sizes[i])])
        return Embeddings.concatenate(pieces)

    def place_of(self, task: int) -> int | None:
        """Where the task with this id stands first; None if there is none."""
        begin = 0
        for table in read_batches(self._file, self.path, _IDS_AT_ONCE, ["task"]):
            here = np.flatnonzero(table["task"].to_numpy() == task)
            if here.size:
                return begin + int(here[0])
            begin += len(table)
        return None


def write_embeddings(embeddings: Embeddings, file: Path) -> None:
    """Write a Parquet file, with the sums that means need in its header."""
    write_parquet(file, to_table(embeddings), row_group_size=BLOCK)


def _is_ours(path: Path) -> bool:
    try:
        EmbeddingsFile(path)
    except DataError:
        return False
    return True


EMBEDDINGS = Kind("a file of embedded tasks", _is_ours)


def to_table(embeddings: Embeddings) -> pa.Table:
    """One row per task; a column of λ, and one of bounds, for each member."""
    e = embeddings
    columns: dict[str, Any] = {
        "task": pa.array(e.ids),
        "classes": class_column(e.classes),
        "n_way": pa.array(e.n_way.astype(np.int32)),
    }
    if e.keys is not None:
        columns["key"] = pa.array(e.keys)
    for i, lam in enumerate(e.lam):
        flat = pa.array(np.ascontiguousarray(lam).reshape(-1))
        columns[f"lam_{i}"] = pa.FixedSizeListArray.from_arrays(flat, lam.shape[1])
        columns[f"elbo_{i}"] = pa.array(e.elbo[i])
        columns[f"sweeps_{i}"] = pa.array(e.sweeps[i])
    sums = Sums.of(e.lam).to_dict()
    return table_with_header(columns, {"what": _WHAT, **vars(e.header), "totals": sums})


def _read_header(schema: pa.Schema, source: str) -> Header:
    """The header of a table made by :func:`to_table`."""
    header = header_of(schema, _WHAT)
    if header is None or "sha256" not in header:  # by which its values are verified
        raise DataError(
            f"{source} does not hold embedded tasks. Write them with `taskscape embed`."
        )
    check_format(header, source)
    with damage_named(source, "a file of embedded tasks"):
        values: dict[str, Any] = {f.name: header[f.name] for f in fields(Header)}
        values |= {k: tuple(values[k]) for k in ("class_names", "groups") if values[k] is not None}
        return Header(**values)


def from_table(table: pa.Table, header: Header) -> Embeddings:
    """The embeddings of a table made by :func:`to_table`, or of some of its rows and columns."""
    names, n = set(table.column_names), table.num_rows

    def of_members(name: str, unknown: np.ndarray) -> np.ndarray:
        columns = [f"{name}_{i}" for i in range(header.members)]
        return np.stack([table[c].to_numpy() if c in names else unknown for c in columns])

    lam = [table[f"lam_{i}"].combine_chunks().flatten() for i in range(header.members)]
    classes = padded_classes(table["classes"], np.int32) if "classes" in names else None
    return Embeddings(
        header=header,
        ids=table["task"].to_numpy() if "task" in names else np.arange(n),
        classes=np.full((n, 0), -1) if classes is None else classes,
        lam=np.stack([v.to_numpy().reshape(-1, header.task_themes) for v in lam]),
        elbo=of_members("elbo", np.full(n, np.nan, dtype=np.float32)),
        sweeps=of_members("sweeps", np.zeros(n, dtype=np.int32)),
        keys=table["key"].to_numpy() if "key" in names else None,
    )


def _short(value: object) -> str:
    text = str(value)
    return f"{text[:12]}…" if len(text) > 12 else text
