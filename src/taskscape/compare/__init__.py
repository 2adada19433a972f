"""How far apart tasks are, which are nearest, and whether two sets of tasks are alike."""

from taskscape.compare.difficulty import (
    ClassMoments,
    Separation,
    class_moments,
    class_separation,
    feature_separation,
)
from taskscape.compare.divergences import (
    DIVERGENCES,
    Divergence,
    Estimate,
    distances,
    divergence_with_error,
    theme_cost,
)
from taskscape.compare.index import Neighbours, TaskIndex
from taskscape.compare.means import (
    TrainSummary,
    mean_kl,
    member_agreement,
    member_scales,
    summarise,
)
from taskscape.compare.posteriors import normalise_ways
from taskscape.compare.resemblance import Resemblance, resemblance
from taskscape.compare.search import nearest

__all__ = [
    "DIVERGENCES",
    "ClassMoments",
    "Divergence",
    "Estimate",
    "Neighbours",
    "Resemblance",
    "Separation",
    "TaskIndex",
    "TrainSummary",
    "class_moments",
    "class_separation",
    "distances",
    "divergence_with_error",
    "feature_separation",
    "mean_kl",
    "member_agreement",
    "member_scales",
    "nearest",
    "normalise_ways",
    "resemblance",
    "summarise",
    "theme_cost",
]
