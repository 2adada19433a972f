"""Many embedded tasks on disk: Parquet files, and a manifest that makes them one catalogue."""

import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from taskscape.arguments import check_kind, check_whole
from taskscape.embeddings.embeddings import (
    Embeddings,
    EmbeddingsFile,
    Header,
    TaskFilter,
)
from taskscape.embeddings.factors import Sums
from taskscape.errors import DataError
from taskscape.io.files import (
    Kind,
    as_path,
    atomic_write,
    check_output,
    locked,
    remove_leftovers,
)
from taskscape.io.values import FORMAT, check_format, damage_named, from_plain, plain

_BATCH = 1 << 16
_MANIFEST = "manifest.json"
_WHAT = "catalogue of embedded tasks"


@dataclass(frozen=True, eq=False)
class Shard:
    """What the manifest says of one file of a catalogue."""

    file: str
    tasks: int
    bytes: int
    sums: Sums

    @staticmethod
    def write(path: Path, embeddings: Embeddings) -> "Shard":
        """Write a file; it is part of no catalogue until a manifest names it."""
        embeddings.save(path)
        return Shard.of(path)

    @staticmethod
    def of(path: Path) -> "Shard":
        """The entry of a file that is there."""
        opened = EmbeddingsFile(path)
        return Shard(path.name, len(opened), path.stat().st_size, opened.sums)


class Catalogue:
    """Embedded tasks in a folder of Parquet files, or in a single file (which is read-only).

    A folder has a manifest with the size and sums of every file. Files are written
    first and the manifest is replaced last, atomically, so a reader sees all of what was added or
    nothing of it, and writers do not disturb each other.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = as_path(path)
        if not self.path.exists():
            raise DataError(f"no such catalogue: {self.path}. Make one with `taskscape embed`.")
        if not self.parts():
            raise DataError(f"{self.path} has no embedded tasks in it (no {_MANIFEST}).")
        self.header = EmbeddingsFile(self.parts()[0]).header

    @cached_property
    def shards(self) -> tuple[Shard, ...]:
        """What is known of its files, in the order they were added, as they were when opened."""
        return (Shard.of(self.path),) if self.path.is_file() else tuple(read_shards(self.path))

    @staticmethod
    def append(path: str | os.PathLike[str], embeddings: Embeddings) -> "Catalogue":
        """Add tasks of the same model and pool to the catalogue at ``path``, or begin one."""
        check_kind(embeddings, Embeddings, "embeddings", "Make them with TaskThemes.embed.")
        if not len(embeddings):
            raise DataError("there are no tasks to add.")
        folder = as_path(path)
        Catalogue.check_can_add(folder, embeddings.header)
        return Catalogue.add_shards(
            folder, [Shard.write(folder / new_name(uuid.uuid4().hex[:16]), embeddings)]
        )

    @staticmethod
    def check_can_add(path: str | os.PathLike[str], header: Header) -> None:
        """Raise an error unless tasks of this model and pool can be added to what is there."""
        folder = as_path(path)
        if folder.is_file():
            raise DataError(f"{folder} is a file; a catalogue that can grow is a folder.")
        check_output(folder, CATALOGUE)
        if folder.exists() and read_shards(folder):
            there = Catalogue(folder)
            header.check_same_model(there.header, "the new tasks", str(folder))
            header.check_same_pool(there.header, "the new tasks", str(folder))

    @staticmethod
    def add_shards(path: str | os.PathLike[str], shards: Sequence[Shard]) -> "Catalogue":
        """Make files that lie in the folder part of its catalogue, all of them at once.

        Files that are part of it already stay what they are: two processes that embed the same
        tasks write the same files. An error if one is gone, or of another model or pool than what
        others have added by now.
        """
        folder = as_path(path)
        with locked(folder / ".lock"):
            remove_leftovers(folder, ".shard-*-unfinished-*")
            there = read_shards(folder)
            known = {shard.file for shard in there}
            new = [shard for shard in shards if shard.file not in known]
            for shard in new:
                if _size(folder / shard.file) != shard.bytes:
                    raise DataError(
                        f"{folder / shard.file} is gone or not as it was written. Nothing was "
                        "added; run it again."
                    )
            if new:
                Catalogue.check_can_add(folder, EmbeddingsFile(folder / new[0].file).header)
            content = {"what": _WHAT, "format": FORMAT, "shards": plain([*there, *new])}
            with atomic_write(folder / _MANIFEST) as file:
                file.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
        return Catalogue(path)

    def parts(self) -> list[Path]:
        """The files of the catalogue, in the order they were added."""
        if self.path.is_file():
            return [self.path]
        return [self.path / shard.file for shard in self.shards]

    def __len__(self) -> int:
        return sum(shard.tasks for shard in self.shards)

    def __repr__(self) -> str:
        return f"Catalogue({str(self.path)!r}: {len(self):,} tasks over {self.header.pool!r})"

    def scan(
        self,
        where: TaskFilter | None = None,
        *,
        batch_size: int = _BATCH,
        columns: list[str] | None = None,
    ) -> Iterator[Embeddings]:
        """The tasks that pass the filter, a batch at a time, in their order on disk.

        ``columns`` names the only ones of the files that are read.
        """
        check_whole(batch_size, "batch_size", 1)
        if where is not None:
            check_kind(where, TaskFilter, "where", "Write TaskFilter(n_way=5), for example.")
        if columns is not None and where:
            columns = [*columns, "classes"]
        for part in self.parts():
            for tasks in self._open(part).batches(batch_size, columns):
                if where:
                    tasks = tasks[where.mask(self.header, tasks.classes)]
                if len(tasks):
                    yield tasks

    def posteriors(
        self, where: TaskFilter | None = None, *, batch_size: int = _BATCH
    ) -> "PosteriorStream":
        """The tasks that pass in chunks, for ``mean_distance``, ``nearest`` and the like."""
        return PosteriorStream(self, where, check_whole(batch_size, "batch_size", 1))

    def read(self, where: TaskFilter | None = None) -> Embeddings:
        """The tasks that pass the filter, in memory."""
        pieces = list(self.scan(where))
        if not pieces:
            raise DataError(f"{self.path} has no such tasks.")
        return Embeddings.concatenate(pieces)

    def _open(self, part: Path) -> EmbeddingsFile:
        file = EmbeddingsFile(part)
        file.header.check_same_model(self.header, str(part), str(self.path))
        file.header.check_same_pool(self.header, str(part), str(self.path))
        return file

    def take(self, places: ArrayLike, where: TaskFilter | None = None) -> Embeddings:
        """The tasks at these places of a scan, in the order asked for.

        Without a filter, only the blocks that hold them are read.
        """
        asked = np.asarray(places).ravel()
        if not asked.size:
            return next(self.scan())[:0]
        if asked.dtype.kind not in "iu":
            raise DataError(f"places of type {asked.dtype} cannot be taken; use whole numbers.")
        if asked.min() < 0:
            raise DataError(f"place {asked.min()} asked for; places are counted from 0.")
        wanted, back = np.unique(asked.astype(np.int64), return_inverse=True)
        begin, pieces = 0, []
        for take, n_tasks in self._pieces(where):
            here = wanted[(wanted >= begin) & (wanted < begin + n_tasks)]
            if len(here):
                pieces.append(take(here - begin))
            begin += n_tasks
            if begin > wanted[-1]:
                return Embeddings.concatenate(pieces)[back]
        raise DataError(f"place {wanted[-1]} asked for; there are {begin} tasks.")

    def _pieces(
        self, where: TaskFilter | None
    ) -> Iterator[tuple[Callable[[Int[np.ndarray, "_"]], Embeddings], int]]:
        """What gives the tasks at some places of each piece, and how many tasks that has."""
        if where:
            return ((batch.__getitem__, len(batch)) for batch in self.scan(where))
        parts = zip(self.shards, self.parts(), strict=True)
        return ((self._open(part).take, shard.tasks) for shard, part in parts)

    def find(self, task: int) -> Embeddings:
        """The task with this id, as embeddings of one task (the first, if several have it)."""
        for part in self.parts():
            file = self._open(part)
            if len(places := file.places_of(task)):
                return file.take(places[:1])
        raise DataError(f"no task with id {task} in {self.path}, which has {len(self):,} tasks.")


@dataclass(frozen=True, eq=False)
class PosteriorStream:
    """Chunks of embedded tasks that can be read again and again."""

    catalogue: Catalogue
    where: TaskFilter | None
    batch_size: int
    one: str = ""
    """The only factor that is looked at; empty for all."""

    def __iter__(self) -> Iterator[Embeddings]:
        columns = [*(f.name for f in self.catalogue.header.factors), "logs"]
        some = self.catalogue.scan(self.where, batch_size=self.batch_size, columns=columns)
        for tasks in some:
            yield tasks.factor(self.one) if self.one else tasks

    def factor(self, name: str) -> "PosteriorStream":
        """The same tasks by one factor alone."""
        return replace(self, one=name)

    def sums(self) -> Sums | None:
        """What means need to know of all tasks, without reading them; None with a filter."""
        if self.where or self.one:
            return None
        first, *rest = (shard.sums for shard in self.catalogue.shards)
        return sum(rest, first)


# -- the manifest -------------------------------------------------------------------------------


def new_name(unique: str) -> str:
    """The name of a file of a catalogue."""
    return f"shard-{unique}.parquet"


def read_shards(folder: Path) -> list[Shard]:
    """The files of a catalogue, verified to be there; none where there is no catalogue."""
    manifest = folder / _MANIFEST
    if not manifest.exists():
        return []
    with damage_named(manifest, "a catalogue"):
        content = json.loads(manifest.read_text(encoding="utf-8"))
        check_format(content, manifest)
        shards = list(from_plain(tuple[Shard, ...], content["shards"]))
        for shard in shards:
            size = _size(folder / shard.file)
            if size != shard.bytes:
                state = "is missing" if size is None else f"has {size:,} bytes, not {shard.bytes:,}"
                raise DataError(f"{folder} is damaged: {shard.file} {state}.")
    return shards


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None


def _is_ours(folder: Path) -> bool:
    """Whether it is a catalogue, or what a killed process left of one it was about to make."""
    names = [path.name for path in folder.iterdir()]
    return bool(read_shards(folder)) or all(name.startswith((".", "shard-")) for name in names)


CATALOGUE = Kind(f"a {_WHAT}", _is_ours, folder=True)
