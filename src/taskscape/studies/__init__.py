"""Experiments: data in, result objects out."""

from taskscape.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
