"""Embedding tasks into a catalogue, a file at a time: on one machine or on many."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from taskscape.arguments import check_whole, public
from taskscape.distributed.engine import map_work
from taskscape.embeddings import Catalogue, Embeddings, Shard
from taskscape.embeddings.catalogue import new_name
from taskscape.errors import DataError
from taskscape.io.files import as_path
from taskscape.tasks import TaskSet, TaskStream
from taskscape.themes.task_model import TaskModel

_SHARD = 1 << 18


@public
def embed_into(
    path: str | os.PathLike[str],
    model: TaskModel,
    tasks: TaskSet | TaskStream,
    *,
    shard_size: int = _SHARD,
) -> Catalogue:
    """Embed tasks, of a set or a stream, and add them to the catalogue at ``path``.

    Every ``shard_size`` tasks are one piece of work (:mod:`taskscape.distributed.engine`) that
    reads what its tasks need and writes a file of its own. All become part of the catalogue at
    once, when all
    are there. Interrupted, the same call goes on: files that were finished are kept. Repeated, it
    adds nothing.
    """
    folder, fingerprint = as_path(path), model.fingerprint_  # an error where it is not fitted
    n_tasks = tasks.n_tasks if isinstance(tasks, TaskStream) else len(tasks)
    if n_tasks is None:
        raise DataError("a stream without end fills no catalogue; give it n_tasks.")
    if not n_tasks:
        raise DataError("there are no tasks to embed.")
    check_whole(shard_size, "shard_size", 1)
    columns = sum(f.size for f in model.factors_)
    nothing = Embeddings.of(
        tasks[0:0], np.zeros((0, columns), np.float32), model.factors_, model=fingerprint
    )
    Catalogue.check_can_add(folder, nothing.header)
    folder.mkdir(parents=True, exist_ok=True)
    job = _name_of_job(model, tasks, n_tasks, shard_size)
    pieces = [
        (begin, min(begin + shard_size, n_tasks), folder / _file_of(job, i))
        for i, begin in enumerate(range(0, n_tasks, shard_size))
    ]
    work = map_work(_embed_piece, pieces, shared=(model, tasks), description="embedding tasks")
    return Catalogue.add_shards(folder, list(work))


def _embed_piece(
    piece: tuple[int, int, Path], model: TaskModel, tasks: TaskSet | TaskStream
) -> Shard:
    """Embed the tasks from one number up to another and write them, unless that is done."""
    begin, end, file = piece
    if file.exists():  # it appeared in one piece, so it is whole
        return Shard.of(file)
    embedded = model.embed(tasks[begin:end])
    return Shard.write(file, replace(embedded, ids=np.arange(begin, end)))


def _name_of_job(
    model: TaskModel, tasks: TaskSet | TaskStream, n_tasks: int, shard_size: int
) -> str:
    """The same for the same tasks and model, by which an interrupted job is known.

    What others add meanwhile changes nothing of it; a catalogue that has these tasks already stays
    as it is.
    """
    h = hashlib.blake2b(digest_size=6)
    h.update(repr((model.fingerprint_, tasks.pool.fingerprint, n_tasks, shard_size)).encode())
    ends = [tasks[:1000], tasks[max(0, n_tasks - 1000) : n_tasks]]  # a stream follows from its seed
    for some in [tasks] if isinstance(tasks, TaskSet) else ends:
        some.add_to_hash(h)
    return h.hexdigest()


def _file_of(job: str, number: int) -> str:
    return new_name(f"{job}-{number:06d}")
