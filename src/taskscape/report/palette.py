"""One colour for each learner, rule, theme, split and group, the same in every figure."""

from collections.abc import Iterable, Sequence

from taskscape.diagram.plot import COLOURS
from taskscape.select import RULES

INK, FAINT = "#1f2933", "#b8c2cc"
SPLITS = {"train": "#0072B2", "val": "#8a6200", "test": "#C04A00", "": "#0072B2"}
"""Of the classes of a split; darker than Okabe and Ito's, to be read as text."""
THEMES = (
    "#3d6ea5", "#b5485c", "#1f7a2e", "#946a00", "#2f7f9e", "#9a2d6b", "#666666", "#7a1e4b",
    "#2b7d70", "#6f6f1e", "#332288", "#b5502f",
)  # fmt: skip
"""Of the task-themes; after Paul Tol, darkened until white numbers can be read on them."""
SCALE = ((0.0, "#d9ecc7"), (0.25, "#7fcdbb"), (0.5, "#2c9fb8"), (0.75, "#225ea8"), (1.0, "#0c1f5c"))
"""From little to much: light to dark, so that it can be read in grey."""
_RULES = ("#332288", "#117733", "#AA4499", "#7a7a1f", "#6b7280")
"""Of the selection rules, in the order of their registry."""
_OTHERS = ("#882255", *THEMES[4:], *THEMES[:4])
"""Of what else a study chose by, in its own order."""


def learner_colours(learners: Iterable[str]) -> dict[str, str]:
    """A colour for each learner, in the order in which the study names them."""
    distinct = list(dict.fromkeys(learners))
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(distinct)}


def rule_colours(rules: Sequence[str]) -> dict[str, str]:
    """A colour for each selection rule; known rules have the same one in every report."""
    known = dict(zip(RULES, _RULES, strict=False))
    others = [rule for rule in dict.fromkeys(rules) if rule not in known]
    colours = known | {rule: _OTHERS[i % len(_OTHERS)] for i, rule in enumerate(others)}
    return {rule: colours[rule] for rule in dict.fromkeys(rules)}


def theme_colours(n: int) -> list[str]:
    """Colours of so many task-themes, in order."""
    return [THEMES[i % len(THEMES)] for i in range(n)]
