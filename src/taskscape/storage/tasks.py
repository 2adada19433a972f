"""Lists of tasks on disk, as Parquet files."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from taskscape.errors import DataError
from taskscape.files import Kind, written_in_one_piece
from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet
from taskscape.tasks.manifest import from_table, read_header, to_table

__all__ = ["TASKS", "load_tasks", "save_tasks"]


def _is_tasks(path: Path) -> bool:
    try:
        read_header(pq.read_schema(path), str(path))
    except (DataError, pa.ArrowInvalid, OSError):
        return False
    return True


TASKS = Kind("a list of tasks", _is_tasks)


def save_tasks(tasks: TaskSet, path: str | os.PathLike[str]) -> None:
    """Write tasks to a Parquet file that names the pool it belongs to."""
    with written_in_one_piece(path, TASKS) as made:
        pq.write_table(to_table(tasks), made, compression="zstd")


def load_tasks(path: str | os.PathLike[str], pool: ClassPool) -> TaskSet:
    """Read tasks written by :func:`save_tasks`; the pool must be the one they were made from."""
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise DataError(f"no such file: {os.fspath(path)}.") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{os.fspath(path)} is not a readable Parquet file: {error}.") from error
    return from_table(table, pool, os.fspath(path))
