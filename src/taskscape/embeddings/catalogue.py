"""A catalogue of embedded tasks on disk: appended to, scanned in a stream, never loaded whole."""

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Bool, Float, Int

from taskscape.embeddings.embeddings import Embeddings, Header, from_table, read_header, to_table
from taskscape.errors import DataError
from taskscape.files import Kind, check_output, written_in_one_piece

__all__ = [
    "CATALOGUE",
    "EMBEDDINGS",
    "Catalogue",
    "Wanted",
    "read_embeddings",
    "write_embeddings",
]

_BATCH = 1 << 16
_ROW_GROUP = 1 << 17


@dataclass(frozen=True)
class Wanted:
    """Which tasks of a catalogue to look at; what is None is not asked."""

    any_class: Sequence[int | str] | None = None
    """Tasks with at least one of these classes, given by id or name."""
    only_classes: Sequence[int | str] | None = None
    """Tasks with no class but these."""
    group: str | None = None
    """Tasks whose classes all belong to this group, such as an alphabet."""
    n_way: int | tuple[int, int] | None = None
    """Tasks with this many classes, or from this many to that many."""

    def mask(self, header: Header) -> "_Mask | None":
        """A function from class ids to which tasks are wanted; None if all are."""
        among = None if self.any_class is None else header.class_ids(self.any_class)
        within = None if self.only_classes is None else header.class_ids(self.only_classes)
        if self.group is not None:
            inside = header.classes_in_group(self.group)
            within = inside if within is None else np.intersect1d(inside, within)
        ways = (self.n_way, self.n_way) if isinstance(self.n_way, int) else self.n_way
        if among is None and within is None and ways is None:
            return None
        return _Mask(among, within, ways)


@dataclass(frozen=True, eq=False)
class _Mask:
    among: Int[np.ndarray, "some"] | None
    within: Int[np.ndarray, "some"] | None
    ways: tuple[int, int] | None

    def __call__(self, classes: Int[np.ndarray, "tasks way"]) -> Bool[np.ndarray, "tasks"]:
        real = classes >= 0
        good = np.ones(len(classes), dtype=bool)
        if self.among is not None:
            good &= np.isin(classes, self.among).any(axis=1)
        if self.within is not None:
            good &= (np.isin(classes, self.within) | ~real).all(axis=1)
        if self.ways is not None:
            n_way = real.sum(axis=1)
            good &= (n_way >= self.ways[0]) & (n_way <= self.ways[1])
        return good


class Catalogue:
    """Embedded tasks in a folder of Parquet files, or in a single file (which is read-only).

    Every append is one new file, written under a temporary name and then renamed, so a reader sees
    all of it or nothing, and writers do not disturb each other.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise DataError(f"no such catalogue: {self.path}. Make one with `taskscape embed`.")
        parts = self.parts()
        if not parts:
            raise DataError(f"{self.path} has no embedded tasks in it (no part-*.parquet).")
        self.header = read_header(_open(parts[0]).schema_arrow, str(self.path))

    @staticmethod
    def append(path: str | os.PathLike[str], embeddings: Embeddings) -> "Catalogue":
        """Add tasks to the catalogue at ``path``, which is made if there is none.

        The tasks must have been embedded by the same model, over the same pool.
        """
        folder = Path(path)
        if folder.is_file():
            raise DataError(f"{folder} is a file; a catalogue that can grow is a folder.")
        check_output(folder, CATALOGUE)
        number = 0
        if folder.exists() and _parts_of(folder):
            there = Catalogue(folder)
            embeddings.header.check_same_model(there.header, "the new tasks", str(folder))
            embeddings.header.check_same_pool(there.header, "the new tasks", str(folder))
            number = len(_parts_of(folder))
        name = f"part-{number:06d}-{uuid.uuid4().hex[:8]}.parquet"
        write_embeddings(folder / name, embeddings)
        return Catalogue(folder)

    def parts(self) -> list[Path]:
        """The files of the catalogue, in the order they were added."""
        return [self.path] if self.path.is_file() else _parts_of(self.path)

    def __len__(self) -> int:
        return sum(_open(part).metadata.num_rows for part in self.parts())

    def __repr__(self) -> str:
        return f"Catalogue({str(self.path)!r}: {len(self):,} tasks over {self.header.pool!r})"

    def scan(
        self, wanted: Wanted | None = None, *, batch_size: int = _BATCH
    ) -> Iterator[Embeddings]:
        """The wanted tasks, a batch at a time, in the order they were added."""
        return self._scan(wanted or Wanted(), batch_size, None)

    def lam(self, wanted: Wanted | None = None, *, batch_size: int = _BATCH) -> "LamStream":
        """λ of the wanted tasks in chunks, for ``mean_kl``, ``nearest`` and the like."""
        return LamStream(self, wanted or Wanted(), batch_size)

    def _scan(
        self, wanted: Wanted, batch_size: int, columns: list[str] | None
    ) -> Iterator[Embeddings]:
        mask = wanted.mask(self.header)
        if columns is not None and mask is not None:
            columns = [*columns, "classes"]
        for part in self.parts():
            file = _open(part)
            self._check(file, part)
            for batch in file.iter_batches(batch_size, columns=columns):
                found = from_table(pa.Table.from_batches([batch]), self.header)
                if mask is not None:
                    found = found[mask(found.classes)]
                if len(found):
                    yield found

    def _check(self, file: pq.ParquetFile, part: Path) -> None:
        header = read_header(file.schema_arrow, str(part))
        header.check_same_model(self.header, str(part), str(self.path))
        header.check_same_pool(self.header, str(part), str(self.path))

    def take(self, places: Any, wanted: Wanted | None = None) -> Embeddings:
        """The tasks at these places of a scan, in the order asked for."""
        asked = np.asarray(places, dtype=np.int64).ravel()
        order = np.argsort(asked, kind="stable")
        pieces, begin, done = [], 0, 0
        for batch in self.scan(wanted):
            end = int(np.searchsorted(asked[order], begin + len(batch)))
            if end > done:
                pieces.append(batch[asked[order[done:end]] - begin])
                done = end
            begin += len(batch)
            if done == len(asked):
                break
        if done < len(asked):
            raise DataError(f"place {asked.max()} asked for; there are {begin} tasks.")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return Embeddings.concatenate(pieces)[back]

    def find(self, task: int) -> Embeddings:
        """The task with this id, as embeddings of one task (the first, if several have it)."""
        for batch in self.scan():
            here = np.flatnonzero(batch.ids == task)
            if here.size:
                return batch[here[:1]]
        raise DataError(f"no task with id {task} in {self.path}, which has {len(self):,} tasks.")


@dataclass(frozen=True, eq=False)
class LamStream:
    """Chunks of λ that can be read again and again."""

    catalogue: Catalogue
    wanted: Wanted
    batch_size: int

    def __iter__(self) -> Iterator[Float[np.ndarray, "members some L"]]:
        columns = [f"lam_{i}" for i in range(self.catalogue.header.members)]
        for batch in self.catalogue._scan(self.wanted, self.batch_size, columns):
            yield batch.lam


def write_embeddings(path: str | os.PathLike[str], embeddings: Embeddings) -> None:
    """Write embedded tasks to one Parquet file, in one piece, as a part of a catalogue is."""
    with written_in_one_piece(path, EMBEDDINGS) as made:
        pq.write_table(to_table(embeddings), made, compression="zstd", row_group_size=_ROW_GROUP)


def read_embeddings(path: str | os.PathLike[str], wanted: Wanted | None = None) -> Embeddings:
    """All embedded tasks of a file or catalogue, or the wanted ones, in memory."""
    pieces = list(Catalogue(path).scan(wanted))
    if not pieces:
        raise DataError(f"{os.fspath(path)} has no such tasks.")
    return Embeddings.concatenate(pieces)


def _is_ours(path: Path) -> bool:
    try:
        Catalogue(path)
    except DataError:
        return False
    return True


EMBEDDINGS = Kind("a file of embedded tasks", _is_ours)
CATALOGUE = Kind("a catalogue of embedded tasks", _is_ours, folder=True)


def _parts_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet"))


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file: {error}.") from error
