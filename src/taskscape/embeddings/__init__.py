"""Embedded tasks on disk, from one file to a catalogue of millions."""

from taskscape.embeddings.catalogue import (
    CATALOGUE,
    EMBEDDINGS,
    Catalogue,
    Wanted,
    read_embeddings,
    write_embeddings,
)
from taskscape.embeddings.embeddings import Embeddings, Header

__all__ = [
    "CATALOGUE",
    "EMBEDDINGS",
    "Catalogue",
    "Embeddings",
    "Header",
    "Wanted",
    "read_embeddings",
    "write_embeddings",
]
