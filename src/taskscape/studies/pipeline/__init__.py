"""The whole study in one call: from data to findings, stage by stage, resumable."""

from taskscape.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
