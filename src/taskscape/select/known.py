"""The selection rules known by name: the only list of them.

What a rule computes with is imported when it is first used.
"""

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

AUTO, RANDOM = "auto", "random"
"""The rule that is chosen by trying the others, and the one that all are compared with."""


@dataclass(frozen=True)
class Rule:
    """An entry of ``RULES``: where the function is that chooses, and what to say about it."""

    place: str
    """Where the function is: ``module:function``."""
    score_is: str
    """What the score of a chosen task is, in words."""
    meaning: str
    """Which tasks it chooses, in a few words for help texts and the docs."""
    needs_classes: bool = False

    @property
    def choose(self) -> Callable[[Any], None]:
        """The function, which fills a :class:`Run` until it is done."""
        return pkgutil.resolve_name(self.place)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "nearest": Rule(
            "taskscape.select.rules:nearest",
            "mean distance",
            "smallest mean distance from the test tasks",
        ),
        "coverage": Rule(
            "taskscape.select.rules:coverage",
            "distance",
            "each test task in turn takes its nearest unused task",
        ),
        "facility": Rule(
            "taskscape.select.rules:facility",
            "gain",
            "greedy facility location: together nearest to all test tasks",
        ),
        "classes": Rule(
            "taskscape.select.rules:classes",
            "distance",
            "coverage that avoids classes used often",
            needs_classes=True,
        ),
        RANDOM: Rule("taskscape.select.rules:random", "mean distance", "by chance"),
    }
)
"""Every selection rule by name; a new one is a line here."""


def find_rule(name: str) -> Rule:
    """The rule of that name."""
    from taskscape.arguments import check_choice  # imports NumPy, which help texts do not need

    return RULES[check_choice(name, "rule", RULES)]
