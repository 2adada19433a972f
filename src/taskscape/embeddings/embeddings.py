"""Embedded tasks with their classes, as an object and as an Arrow table."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int, UInt64
from numpy.typing import ArrayLike

from taskscape.errors import DataError
from taskscape.tasks import TaskSet
from taskscape.tasks.manifest import class_column, padded_classes

__all__ = ["Embeddings", "Header", "from_table", "read_header", "to_table"]

_FORMAT = 1
_HEADER = b"taskscape"


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

    def class_ids(self, wanted: Sequence[int | str]) -> Int[np.ndarray, "wanted"]:
        """The ids of classes given by id or name."""
        index = {name: c for c, name in enumerate(self.class_names)}
        ids = []
        for c in wanted:
            found = index.get(c, -1) if isinstance(c, str) else int(c)
            if not 0 <= found < len(self.class_names):
                some = ", ".join(map(repr, self.class_names[:3]))
                raise DataError(
                    f"no class {c!r} in pool {self.pool!r}; it has {len(self.class_names)} classes "
                    f"such as {some}."
                )
            ids.append(found)
        return np.array(ids, dtype=np.int64)

    def classes_in_group(self, group: str) -> Int[np.ndarray, "found"]:
        """The ids of the classes of a group, such as an alphabet."""
        if self.groups is None:
            raise DataError(f"group={group!r}: the classes of pool {self.pool!r} have no groups.")
        found = np.flatnonzero(np.array(self.groups) == group)
        if not found.size:
            some = ", ".join(map(repr, sorted(set(self.groups))[:5]))
            raise DataError(f"no group {group!r} in pool {self.pool!r}; it has {some}.")
        return found


@dataclass(frozen=True, eq=False)
class Embeddings:
    """λ of tasks under every member of a model, with what the tasks are."""

    header: Header
    ids: Int[np.ndarray, "tasks"]
    classes: Int[np.ndarray, "tasks way"]
    """Class ids, padded with -1."""
    lam: Float[np.ndarray, "members tasks L"]
    elbo: Float[np.ndarray, "members tasks"] | None = None
    keys: UInt64[np.ndarray, "tasks"] | None = None
    """What the samples of each task derive from."""

    @staticmethod
    def of(
        tasks: TaskSet,
        lam: Any,
        *,
        model: str = "",
        elbo: Any = None,
        ids: ArrayLike | None = None,
        delta: float | None = None,
    ) -> "Embeddings":
        """Embeddings of a TaskSet: λ (tasks, L) or (members, tasks, L), bounds alike."""
        values = np.asarray(lam)
        values = values[None] if values.ndim == 2 else values
        if values.ndim != 3 or values.shape[1] != len(tasks):
            raise DataError(f"lam has shape {np.shape(lam)} for {len(tasks)} tasks.")
        if values.dtype.kind != "f" or not np.isfinite(values).all():
            raise DataError("lam must be finite floating-point numbers.")
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
        bounds = None if elbo is None else np.asarray(elbo, dtype=np.float32)
        return Embeddings(
            header=header,
            ids=numbers.astype(np.int64),
            classes=tasks.classes,
            lam=values,
            elbo=bounds[None] if bounds is not None and bounds.ndim == 1 else bounds,
            keys=tasks.keys,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: Any) -> "Embeddings":
        """Some of the tasks: a slice, indices, or a mask."""
        which = rows if isinstance(rows, slice) else np.atleast_1d(np.asarray(rows))
        return replace(
            self,
            ids=self.ids[which],
            classes=self.classes[which],
            lam=self.lam[:, which],
            elbo=None if self.elbo is None else self.elbo[:, which],
            keys=None if self.keys is None else self.keys[which],
        )

    @property
    def n_way(self) -> Int[np.ndarray, "tasks"]:
        """The number of classes of each task."""
        return (self.classes >= 0).sum(axis=1)

    def names(self, row: int) -> tuple[str, ...]:
        """The class names of the task in a row."""
        return tuple(self.header.class_names[c] for c in self.classes[row] if c >= 0)

    @staticmethod
    def concatenate(parts: "Sequence[Embeddings]") -> "Embeddings":
        """Several pieces, one after another."""
        if not parts:
            raise DataError("concatenate needs at least one piece.")
        way = max(p.classes.shape[1] for p in parts)
        classes = [
            np.pad(p.classes, ((0, 0), (0, way - p.classes.shape[1])), constant_values=-1)
            for p in parts
        ]
        elbos = [p.elbo for p in parts if p.elbo is not None]
        keys = [p.keys for p in parts if p.keys is not None]
        return replace(
            parts[0],
            ids=np.concatenate([p.ids for p in parts]),
            classes=np.concatenate(classes),
            lam=np.concatenate([p.lam for p in parts], axis=1),
            elbo=np.concatenate(elbos, axis=1) if len(elbos) == len(parts) else None,
            keys=np.concatenate(keys) if len(keys) == len(parts) else None,
        )


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
        if e.elbo is not None:
            columns[f"elbo_{i}"] = pa.array(e.elbo[i])
    header = {"format": _FORMAT, "what": "embeddings", **vars(e.header)}
    text = json.dumps(header, ensure_ascii=False)
    return pa.table(columns).replace_schema_metadata({_HEADER: text})


def read_header(schema: pa.Schema, source: str) -> Header:
    """The header of a table made by :func:`to_table`."""
    try:
        header = json.loads((schema.metadata or {}).get(_HEADER) or b"{}")
    except ValueError:
        header = {}
    if header.pop("what", None) != "embeddings":
        raise DataError(
            f"{source} does not hold embedded tasks. Write them with `taskscape embed`."
        )
    if header.pop("format") > _FORMAT:
        raise DataError(f"{source} was written by a newer taskscape; please upgrade.")
    groups = header.pop("groups")
    names = tuple(header.pop("class_names"))
    return Header(class_names=names, groups=None if groups is None else tuple(groups), **header)


def from_table(table: pa.Table, header: Header) -> Embeddings:
    """The embeddings of a table made by :func:`to_table`, or of some of its rows and columns."""
    names = set(table.column_names)
    members = [i for i in range(header.members) if f"lam_{i}" in names]
    lam = [_flat(table[f"lam_{i}"]).reshape(-1, header.task_themes) for i in members]
    have_bounds = members and all(f"elbo_{i}" in names for i in members)
    n = table.num_rows
    return Embeddings(
        header=header,
        ids=table["task"].to_numpy() if "task" in names else np.arange(n),
        classes=padded_classes(table["classes"], np.int32)
        if "classes" in names
        else np.full((n, 0), -1),
        lam=np.stack(lam) if lam else np.ones((0, n, header.task_themes)),
        elbo=np.stack([table[f"elbo_{i}"].to_numpy() for i in members]) if have_bounds else None,
        keys=table["key"].to_numpy() if "key" in names else None,
    )


def _flat(column: pa.ChunkedArray) -> np.ndarray:
    parts = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)


def _short(value: object) -> str:
    text = str(value)
    return f"{text[:12]}…" if len(text) > 12 else text
