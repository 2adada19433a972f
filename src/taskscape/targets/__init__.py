"""A target and a pool of sources: what in the pool is like it, what to train on, what to expect."""

from taskscape.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
