"""The ways to choose training tasks for a target, the only list of them; and how they are tried."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from taskscape.select.known import RANDOM
from taskscape.settings import check_settings, setting
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


@dataclass(frozen=True)
class AdvisorSettings:
    """How a pool is looked at, and how learners are tried."""

    candidates: int = setting(
        2000, "training tasks to choose from, within groups", at_least=1, flag="--candidates"
    )
    n_way: int = setting(5, "classes of a task", at_least=2, flag="--n-way")
    n_shot: int = setting(
        5, "most labelled samples of a class of a target", at_least=1, flag="--n-shot"
    )
    n_query: int = setting(15, "most queries of each class", at_least=1)
    components: int = setting(
        64, "principal components that learners take; 0: the samples themselves", at_least=0
    )
    updates: int = setting(400, "of every training", at_least=1, flag="--updates")
    batch_size: int = setting(4, "tasks in an update", at_least=1)
    precision: str = setting("float32", "of the network")
    seed: int = setting(
        0, "the same seed gives the same result", at_least=0, at_most=2**30 - 1, flag="--seed"
    )
    network: str | None = setting(None, "by default `conv4` for images, `mlp` for features")

    def __post_init__(self) -> None:
        check_settings(self)

    def target_sizes(self) -> dict[str, Any]:
        """What :func:`find_target` makes of a target."""
        return {
            "n_way": self.n_way, "n_shot": self.n_shot, "n_query": self.n_query,
            "seed": self.seed,
        }  # fmt: skip
