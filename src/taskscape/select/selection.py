"""What a selection rule returns: which tasks, in which order, and why."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.io.files import json_with
from taskscape.io.values import SavedAsJson
from taskscape.notebook import ShownInNotebooks

SELECTION_FILE = json_with("a selection", what="selection")


@dataclass(frozen=True, eq=False)
class Selection(SavedAsJson, ShownInNotebooks):
    """Training tasks in the order they were chosen; ``tasks[selection.indices]`` picks them."""

    file, what = SELECTION_FILE, "selection"
    indices: Int[np.ndarray, "chosen"]
    scores: Float[np.ndarray, "chosen"]
    """What the rule went by, see ``score_is``."""
    for_test: Int[np.ndarray, "chosen"]
    """The test task that asked for each one, or -1 where the rule looks at all of them."""
    rule: str
    score_is: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"Selection({len(self):,} tasks, rule={self.rule!r})"

    @property
    def why(self) -> list[str]:
        """A sentence for each task."""
        return [
            f"{self.score_is} {score:.4g}" + (f", for test task {test}" if test >= 0 else "")
            for score, test in zip(self.scores, self.for_test, strict=True)
        ]

    def _rows(self) -> Iterable[Mapping[str, Any]]:
        chosen = zip(self.indices.tolist(), self.why, strict=True)
        return ({"task": index, "why": why} for index, why in chosen)

    def summary(self) -> str:
        """What was chosen, in a few words."""
        most = np.abs(self.scores).max(initial=0.0)
        return (
            f"{len(self):,} tasks by rule {self.rule!r}; {self.score_is}: mean "
            f"{self.scores.mean() if len(self) else 0.0:.4g}, largest {most:.4g}."
        )
