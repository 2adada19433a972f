"""taskscape: how similar are classification tasks?

The public names, in the order of the pipeline: pools, tasks, fit, embed, compare, select, diagram,
forecast.
The meta-learners are in :mod:`taskscape.meta`, all similarity measures in
:mod:`taskscape.similarity`.
"""

from taskscape.lazy import attach_stub

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = attach_stub(__name__)
