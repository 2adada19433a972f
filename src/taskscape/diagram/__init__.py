"""The correlation diagram: accuracy as a function of distance to the training tasks."""

from taskscape.diagram.bins import Bin
from taskscape.diagram.diagram import correlation_diagram
from taskscape.diagram.reading import DiagramData, read_diagram_csv
from taskscape.diagram.resampling import Interval
from taskscape.diagram.result import CorrelationDiagram, Curve
from taskscape.statistics import noise_ceiling, partial_spearman

__all__ = [
    "Bin",
    "CorrelationDiagram",
    "Curve",
    "DiagramData",
    "Interval",
    "correlation_diagram",
    "noise_ceiling",
    "partial_spearman",
    "read_diagram_csv",
]
