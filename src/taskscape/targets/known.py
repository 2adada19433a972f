"""The ways to choose training tasks for a target: the only list of them."""

from collections.abc import Mapping
from types import MappingProxyType

from taskscape.select.known import RANDOM
from taskscape.similarity.known import PROTOTYPES, THEMES

RANKS, HALF = "ranks", "half"
WAYS: Mapping[str, str] = MappingProxyType(
    {
        PROTOTYPES: "nearest by class means",
        THEMES: "nearest by themes and position",
        RANKS: "by mean rank under themes and class means",
        HALF: "half by mean rank, half by chance",
        RANDOM: "by chance",
    }
)
"""Every way by name, and what it is; ``auto`` is whichever promises to gain, if any does."""
LEARNER_SETTINGS: Mapping[str, Mapping[str, Mapping[str, int | float]]] = MappingProxyType(
    {
        "components": {
            "protonet": {"scale": 2.0, "learning_rate": 3e-3},
            "maml": {"scale": 8.0, "inner_rate": 0.2, "inner_steps": 10, "learning_rate": 3e-3},
        },
        "images": {
            "protonet": {"learning_rate": 1e-3},
            "maml": {"inner_rate": 0.4, "inner_steps": 3, "learning_rate": 1e-3},
        },
    }
)
"""By kind of sample and learner, the best of a few settings tried on validation classes of
Omniglot: principal components of unit length, and images."""
