"""Embedded tasks on disk, from one file to a catalogue of millions."""

from taskscape.catalogue.catalogue import Catalogue, Wanted, read_embeddings, write_embeddings
from taskscape.catalogue.embeddings import Embeddings, Header

__all__ = ["Catalogue", "Embeddings", "Header", "Wanted", "read_embeddings", "write_embeddings"]
