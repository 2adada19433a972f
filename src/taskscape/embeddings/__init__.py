"""The posterior of tasks: in memory, in a Parquet file, and as a catalogue of many on disk."""

from taskscape.embeddings.blocks import Sums
from taskscape.embeddings.catalogue import CATALOGUE, Catalogue, LamStream, Shard
from taskscape.embeddings.embeddings import (
    EMBEDDINGS,
    Embeddings,
    EmbeddingsFile,
    Header,
    TaskFilter,
)

__all__ = [
    "CATALOGUE",
    "EMBEDDINGS",
    "Catalogue",
    "Embeddings",
    "EmbeddingsFile",
    "Header",
    "LamStream",
    "Shard",
    "Sums",
    "TaskFilter",
]
