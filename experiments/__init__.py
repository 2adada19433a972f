"""The laboratory: the paper's figures and our own studies; it imports the library, never the other way."""
