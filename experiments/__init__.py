"""The laboratory: the paper and our own studies; it imports the library, never the reverse."""
