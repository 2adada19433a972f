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
    distances,
    mean_distance,
    member_agreement,
)
from taskscape.compare.posteriors import normalise_ways
from taskscape.compare.search import Neighbours, TaskIndex, nearest

__all__ = [
    "DIVERGENCES",
    "ClassMoments",
    "Divergence",
    "Neighbours",
    "Separation",
    "TaskIndex",
    "class_moments",
    "distances",
    "feature_separation",
    "mean_distance",
    "member_agreement",
    "nearest",
    "normalise_ways",
]
