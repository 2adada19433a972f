"""Which notion of similarity predicts a test task's accuracy best, and what changes the answer."""

from taskscape.studies.similarity.accuracies import measured_accuracies
from taskscape.studies.similarity.association import Target, association
from taskscape.studies.similarity.distances import combined_distances, summarise_distances
from taskscape.studies.similarity.families import FAMILIES
from taskscape.studies.similarity.notions import run_notions
from taskscape.studies.similarity.study import SimilarityStudy, Sizes
from taskscape.studies.similarity.table import markdown_tables
from taskscape.studies.similarity.variation import CHOICES, run_variations

__all__ = [
    "CHOICES",
    "FAMILIES",
    "SimilarityStudy",
    "Sizes",
    "Target",
    "association",
    "combined_distances",
    "markdown_tables",
    "measured_accuracies",
    "run_notions",
    "run_variations",
    "summarise_distances",
]
