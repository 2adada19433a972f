"""Rules that choose training tasks for test tasks, by any similarity measure."""

from taskscape.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
