"""The posterior of tasks: in memory, in a Parquet file, and as a catalogue of many on disk."""

from taskscape.embeddings.blocks import Statistics
from taskscape.embeddings.catalogue import CATALOGUE, Catalogue, LamShard, LamStream, Shard
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
    "LamShard",
    "LamStream",
    "Shard",
    "Statistics",
    "TaskFilter",
]
