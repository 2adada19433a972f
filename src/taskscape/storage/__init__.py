"""What taskscape keeps on disk: Parquet, JSON and safetensors; never a pickle."""

from taskscape.files import folder_in_one_piece, written_in_one_piece
from taskscape.storage.models import (
    CHECKPOINT,
    arrays_of_kind,
    load_arrays,
    load_checkpoint,
    save_arrays,
    save_checkpoint,
    versions,
)
from taskscape.storage.tasks import TASKS, load_tasks, save_tasks

__all__ = [
    "CHECKPOINT",
    "TASKS",
    "arrays_of_kind",
    "folder_in_one_piece",
    "load_arrays",
    "load_checkpoint",
    "load_tasks",
    "save_arrays",
    "save_checkpoint",
    "save_tasks",
    "versions",
    "written_in_one_piece",
]
