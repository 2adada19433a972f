"""A whole study, ``taskscape run``: settings and data in, a result object and a folder out."""

from taskscape.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
