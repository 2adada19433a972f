"""The ways to choose training tasks for a target: the only list of them."""

from collections.abc import Mapping
from types import MappingProxyType

from taskscape.similarity.known import TASK_THEMES

__all__ = ["AUTO", "HALF", "PROTOTYPES", "RANDOM", "RANKS", "WAYS"]

PROTOTYPES, RANKS, HALF, RANDOM, AUTO = "prototypes", "ranks", "half", "random", "auto"
WAYS: Mapping[str, str] = MappingProxyType(
    {
        PROTOTYPES: "nearest by class means",
        TASK_THEMES: "nearest by KL between posteriors over task-themes",
        RANKS: "by the mean rank under both",
        HALF: "half by ranks, half by chance",
        RANDOM: "by chance",
    }
)
"""Every way by name, and what it is; ``auto`` is whichever promises to gain, if any does."""
