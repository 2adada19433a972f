"""The posterior of tasks: in memory, in a Parquet file, and as a catalogue of many on disk."""

from taskscape.embeddings.catalogue import CATALOGUE, Catalogue, PosteriorStream, Shard
from taskscape.embeddings.embeddings import (
    EMBEDDINGS,
    Embeddings,
    EmbeddingsFile,
    Header,
    TaskFilter,
)
from taskscape.embeddings.factors import Factor, Posterior, Sums

__all__ = [
    "CATALOGUE",
    "EMBEDDINGS",
    "Catalogue",
    "Embeddings",
    "EmbeddingsFile",
    "Factor",
    "Header",
    "Posterior",
    "PosteriorStream",
    "Shard",
    "Sums",
    "TaskFilter",
]
