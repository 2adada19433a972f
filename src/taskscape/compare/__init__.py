"""How far apart tasks are, which are nearest, and how hard they are."""

from taskscape.compare.difficulty import (
    ClassMoments,
    Separation,
    class_moments,
    feature_separation,
)
from taskscape.compare.divergences import (
    DIVERGENCES,
    Divergence,
    Estimate,
    distances,
    divergence_with_error,
    mean_distance,
    member_agreement,
    theme_cost,
)
from taskscape.compare.posteriors import normalise_ways
from taskscape.compare.search import Neighbours, TaskIndex, nearest

__all__ = [
    "DIVERGENCES",
    "ClassMoments",
    "Divergence",
    "Estimate",
    "Neighbours",
    "Separation",
    "TaskIndex",
    "class_moments",
    "distances",
    "divergence_with_error",
    "feature_separation",
    "mean_distance",
    "member_agreement",
    "nearest",
    "normalise_ways",
    "theme_cost",
]
