"""More than one device or machine: processes that share a fit, and engines for independent work."""

from taskscape.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
