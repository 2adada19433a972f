"""The correlation diagram: accuracy as a function of distance to the training tasks."""

from taskscape.diagram.diagram import correlation_diagram
from taskscape.diagram.reading import DiagramData, join_accuracies, read_diagram_csv
from taskscape.diagram.result import DIAGRAM_FILE, Bin, CorrelationDiagram, Curve

__all__ = [
    "DIAGRAM_FILE",
    "Bin",
    "CorrelationDiagram",
    "Curve",
    "DiagramData",
    "correlation_diagram",
    "join_accuracies",
    "read_diagram_csv",
]
