"""A picture of what selection is worth: accuracy by rule and budget, with every trial."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from taskscape.diagram.plot import COLOURS, MARKERS
from taskscape.files import save_picture
from taskscape.plain_text import plain
from taskscape.studies.outcome import SelectionTrial

__all__ = ["plot_selection"]


def plot_selection(trials: Sequence[SelectionTrial], path: Path) -> None:
    """Draw the trials of one learner into a PNG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rules = list(dict.fromkeys(t.rule for t in trials))
    budgets = sorted({t.budget for t in trials})
    with rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(5.6, 3.8), layout="constrained")
        axes = figure.subplots()
        for i, rule in enumerate(rules):
            offset = (i - (len(rules) - 1) / 2) * 0.8 / len(rules)
            colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
            for place, budget in enumerate(budgets):
                found = np.array(
                    [100 * t.accuracy for t in trials if (t.rule, t.budget) == (rule, budget)]
                )
                axes.scatter(
                    np.full(len(found), place + offset), found, s=12, color=colour, alpha=0.4,
                    linewidths=0,
                )  # fmt: skip
                axes.errorbar(
                    place + offset, found.mean(), yerr=found.std(ddof=1) if len(found) > 1 else 0,
                    color=colour, marker=marker, markersize=6, capsize=3,
                    label=plain(rule) if place == 0 else None,
                )  # fmt: skip
        axes.set_xticks(range(len(budgets)), [f"{b:,}" for b in budgets])
        axes.set_xlabel("training tasks chosen")
        axes.set_ylabel("accuracy on the test tasks (%)")
        heading = f"{trials[0].learner}: mean ± standard deviation of trials"
        axes.set_title(plain(heading), loc="left")
        axes.grid(axis="y", color="0.9", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.legend(frameon=False, ncols=min(4, len(rules)))
        save_picture(figure, path, dpi=150, facecolor="white")
