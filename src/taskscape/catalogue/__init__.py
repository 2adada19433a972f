"""Embedded tasks on disk, from one file to a catalogue of millions."""

from taskscape.catalogue.catalogue import (
    CATALOGUE,
    EMBEDDINGS,
    Catalogue,
    Wanted,
    read_embeddings,
    write_embeddings,
)
from taskscape.catalogue.embeddings import Embeddings, Header

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
