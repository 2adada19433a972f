"""Meta-learners: five algorithms behind one contract, one training loop, one evaluation."""

from taskscape.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
