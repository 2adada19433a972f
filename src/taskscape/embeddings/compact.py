"""Sorting a catalogue that is larger than memory, so that near tasks lie together.

A k-d tree learned from a sample of the tasks cuts the space into cells of about a file's size. Each
file is read once and its tasks are put down by cell; then each cell is read, sorted into blocks
and written as a file of its own. Both are maps over independent pieces, and none holds more
than one file in memory. All of it happens in a folder inside the catalogue's, which is deleted in
the end; what a killed process leaves is deleted by the next one that adds to the catalogue (files
of tasks that are there twice) or an hour later (the rest).
"""

import shutil
import tempfile
import uuid
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int

from taskscape.arguments import check_whole
from taskscape.embeddings.blocks import coordinates, near_order
from taskscape.embeddings.catalogue import (
    COMPACTING,
    Catalogue,
    Shard,
    change_shards,
    new_name,
    note_exchange,
    read_shards,
)
from taskscape.embeddings.embeddings import (
    Embeddings,
    EmbeddingsFile,
    Header,
    from_table,
    to_table,
)
from taskscape.engine import map_work
from taskscape.errors import DataError
from taskscape.tasks.draws import subkeys

__all__ = ["compact"]

_SAMPLE = 1 << 17
"""Tasks that the tree is learned from."""
_BATCH = 1 << 18


def compact(catalogue: Catalogue, shard_size: int) -> None:
    """Write the tasks anew, in an order in which near ones lie together."""
    folder = catalogue.path
    check_whole(shard_size, "shard_size", 1)
    if folder.is_file():
        raise DataError(f"{folder} is a single file; only a catalogue, a folder, is compacted.")
    if not len(catalogue):
        return
    runs = Path(tempfile.mkdtemp(dir=folder, prefix=COMPACTING))
    try:
        written = _write_sorted(catalogue, shard_size, runs)
        n_tasks = sum(shard.tasks for shard in written)
        if n_tasks != len(catalogue):
            raise DataError(
                f"{folder}: {n_tasks:,} of {len(catalogue):,} tasks came back from "
                f"{runs.name}, so something deletes or damages files there. The catalogue is "
                "as it was."
            )
        _exchange(catalogue, written, runs)
    finally:
        shutil.rmtree(runs, ignore_errors=True)


def _write_sorted(catalogue: Catalogue, shard_size: int, runs: Path) -> list[Shard]:
    """Write files with all tasks, near ones together, into the folder ``runs``."""
    tree = _Tree.learn(_sample(catalogue), len(catalogue), shard_size)
    begins = np.cumsum([0, *(shard.tasks for shard in catalogue.shards)])[:-1]
    pieces = list(zip(range(len(begins)), catalogue.parts(), begins.tolist(), strict=True))
    list(map_work(_put_down, pieces, shared=(tree, runs),
                  description="putting tasks down by cell"))  # fmt: skip
    cells = [(number, new_name(uuid.uuid4().hex[:16])) for number in range(tree.n_cells)]
    sorted_cells = map_work(_pick_up, cells, shared=(catalogue.header, runs),
                            description="sorting cells")  # fmt: skip
    return [shard for shard in sorted_cells if shard is not None]


def _exchange(catalogue: Catalogue, written: list[Shard], runs: Path) -> None:
    """Let the files in ``runs`` take the place of those of the catalogue."""
    folder = catalogue.path
    before = {shard.file for shard in catalogue.shards}

    def exchanged(there: list[Shard]) -> list[Shard]:
        if not before <= {shard.file for shard in there}:
            raise DataError(f"{folder} was compacted by another process meanwhile.")
        note_exchange(runs, before, {shard.file for shard in written})
        for shard in written:
            (runs / shard.file).rename(folder / shard.file)
        return written + [shard for shard in there if shard.file not in before]

    try:
        change_shards(folder, exchanged)
    finally:  # an interrupt can come when the manifest is there already: it says what is left over
        named = {shard.file for shard in read_shards(folder)}
        for file in before.union(shard.file for shard in written) - named:
            (folder / file).unlink(missing_ok=True)


def _sample(catalogue: Catalogue) -> Float[np.ndarray, "some dims"]:
    """Where tasks lie that are spread over all of the catalogue."""
    step = max(1, len(catalogue) // _SAMPLE)
    return np.concatenate([coordinates(lam[:, ::step]) for lam in catalogue.lam()])


@dataclass(frozen=True, eq=False)
class _Tree:
    """Cuts of the space, each along one dimension, level by level.

    Cut i is followed by cut 2 i + 1 for what lies below it and by cut 2 i + 2 for what lies above.
    Of tasks that lie on a cut, which may be many, a share goes below: tasks are told apart by a
    hash of their place, so that cells are of one size though many tasks be equal.
    """

    dims: Int[np.ndarray, "cuts"]
    at: Float[np.ndarray, "cuts"]
    share_below: Float[np.ndarray, "cuts"]

    @property
    def n_cells(self) -> int:
        return len(self.dims) + 1

    @staticmethod
    def learn(sample: Float[np.ndarray, "some dims"], n_tasks: int, cell_size: int) -> "_Tree":
        """Cut in halves until cells hold at most so many tasks."""
        levels = max(0, int(np.ceil(np.log2(n_tasks / cell_size))))
        n_cuts = 2**levels - 1
        tree = _Tree(np.zeros(n_cuts, dtype=np.int64), np.zeros(n_cuts), np.zeros(n_cuts))
        inside = [np.arange(len(sample))]
        for cut in range(n_cuts):
            rows = sample[inside[cut]]
            if len(rows):
                dim = int(np.argmax(rows.max(axis=0) - rows.min(axis=0)))
                values = rows[:, dim]
                middle = np.partition(values, len(values) // 2)[len(values) // 2]
                below, on = np.mean(values < middle), np.mean(values == middle)
                tree.dims[cut], tree.at[cut] = dim, middle
                tree.share_below[cut] = (0.5 - below) / on
            side = tree._is_above(rows, np.full(len(rows), cut), inside[cut], cut)
            inside += [inside[cut][~side], inside[cut][side]]
        return tree

    def _is_above(
        self,
        rows: Float[np.ndarray, "some dims"],
        cut: Int[np.ndarray, "some"],
        places: Int[np.ndarray, "some"],
        salt: int,
    ) -> np.ndarray:
        values, at = rows[np.arange(len(rows)), self.dims[cut]], self.at[cut]
        coin = subkeys(places.astype(np.uint64), np.full(len(places), salt)) / 2.0**64
        return (values > at) | ((values == at) & (coin >= self.share_below[cut]))

    def cells(
        self, rows: Float[np.ndarray, "some dims"], places: Int[np.ndarray, "some"]
    ) -> Int[np.ndarray, "some"]:
        """The cell of each task."""
        cut = np.zeros(len(rows), dtype=np.int64)
        for level in range(int(np.log2(self.n_cells))):
            cut = 2 * cut + 1 + self._is_above(rows, cut, places, level)
        return cut - len(self.dims)


def _put_down(piece: tuple[int, Path, int], tree: _Tree, runs: Path) -> None:
    """Write the tasks of a file by cell: in batch i of an Arrow file, all that lie in cell i."""
    part_number, part, begin = piece
    for number, tasks in enumerate(EmbeddingsFile(part).batches(_BATCH)):
        places = begin + np.arange(len(tasks))
        begin += len(tasks)
        cell = tree.cells(coordinates(tasks.lam), places)
        order = np.argsort(cell, kind="stable")
        ends = np.searchsorted(cell[order], np.arange(tree.n_cells + 1))
        table = to_table(tasks[order]).combine_chunks()
        run = runs / f"{part_number:06d}-{number:06d}.arrow"
        with pa.OSFile(str(run), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            for low, high in pairwise(ends):
                batches = table.slice(low, high - low).to_batches()
                writer.write_batch(
                    batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
                )


def _pick_up(cell: tuple[int, str], header: Header, runs: Path) -> Shard | None:
    """Write the tasks of a cell, sorted into blocks, as a file that a catalogue can have."""
    number, name = cell
    pieces = []
    for run in sorted(runs.glob("*.arrow")):
        with pa.memory_map(str(run)) as file:
            batch = pa.ipc.open_file(file).get_batch(number)
            if len(batch):
                pieces.append(from_table(pa.Table.from_batches([batch]), header, str(run)))
    if not pieces:
        return None
    if len({piece.keys is None for piece in pieces}) > 1:
        raise DataError(
            f"{runs.parent} has tasks with keys and tasks without, which cannot lie in one file. "
            "The catalogue is as it was; keep two of them."
        )
    tasks = Embeddings.concatenate(pieces)
    return Shard.write(runs / name, tasks[near_order(tasks.lam)], near=True)
