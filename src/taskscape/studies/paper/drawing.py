"""The paper's figures, drawn from its published numbers and from ours."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from taskscape.diagram import CorrelationDiagram
from taskscape.diagram.plot import COLOURS, DASHES, MARKERS
from taskscape.files import picture
from taskscape.meta import LEARNERS, label_of
from taskscape.studies.outcome import Outcome
from taskscape.studies.paper.published import FIG3, FIG3_RANDOM_INTERVALS, FIG4
from taskscape.studies.paper.selection import CHOICES

__all__ = ["draw_fig2", "draw_fig3", "draw_fig4"]

_PAPER_CHOICES = {"random": 0, "nearest": 1, "task2vec": 2}


def draw_fig2(
    diagrams: Mapping[str, CorrelationDiagram],
    published: Mapping[str, Sequence[tuple[float, float]]],
    path: Path,
) -> None:
    """Accuracy against distance: the paper's curves, then those of each version."""
    with picture(path, 3.6 * (1 + len(diagrams)), 4.2, dpi=160, kind=None) as figure:
        panels = figure.subplots(1, 1 + len(diagrams))
        for i, (learner, points) in enumerate(published.items()):
            panels[0].plot(
                [p[0] for p in points], [p[1] for p in points], label=label_of(learner), **_look(i)
            )
        panels[0].set_title("published", loc="left")
        for panel, (version, diagram) in zip(panels[1:], diagrams.items(), strict=True):
            for curve in diagram.curves:
                i = list(published).index(curve.learner)
                x = [b.distance for b in curve.bins]
                y = [b.accuracy for b in curve.bins]
                panel.plot(x, y, **_look(i))
                reach = [
                    [b.accuracy - b.accuracy_low for b in curve.bins],
                    [b.accuracy_high - b.accuracy for b in curve.bins],
                ]
                panel.errorbar(
                    x, y, reach, fmt="none", ecolor=COLOURS[i], elinewidth=0.7, alpha=0.5
                )
            rho = sorted({f"{c.spearman.value:.2f}" for c in diagram.curves}, key=float)
            shown = " to ".join(rho[:1] + rho[1:][-1:]).replace("-", "−")
            panel.set_title(f"{version}: Spearman {shown}", loc="left")
        for panel in panels:
            panel.set_xlabel("mean KL to the training tasks")
            panel.grid(axis="y", color="0.9")
        panels[0].set_ylabel("accuracy")
        figure.legend(loc="outside lower center", ncols=5, frameon=False)


def draw_fig3(by_way: Mapping[int, Sequence[Outcome]], path: Path) -> None:
    """Bars by learner and choice: the paper's above, ours below."""
    (results,) = by_way.values()
    learners = _in_order(o.learner for o in results)
    rules = [str(c) for c in CHOICES if any(o.rule == str(c) for o in results)]
    in_paper = [n for n in learners if n in FIG3["random"]]
    with picture(path, 10, 6, dpi=160, kind=None) as figure:
        above, below = figure.subplots(2, 1)
        for rule, i in _PAPER_CHOICES.items():
            y = [FIG3[rule][n] for n in in_paper]
            x = [j + (i - 1) * 0.25 for j in range(len(in_paper))]
            above.bar(x, y, width=0.23, color=COLOURS[i], label=rule)
            if rule == "random":
                for at, learner in zip(x, in_paper, strict=True):
                    above.plot([at] * 2, FIG3_RANDOM_INTERVALS[learner], color="0.2", lw=1)
        above.set_title("published", loc="left")
        width = 0.85 / len(rules)
        for i, rule in enumerate(rules):
            here = {o.learner: o.accuracy for o in results if o.rule == rule}
            x = [j + (i - (len(rules) - 1) / 2) * width for j in range(len(learners))]
            y = [100 * here[n].value if n in here else float("nan") for n in learners]
            reach = [100 * here[n].reach if n in here else 0.0 for n in learners]
            below.bar(x, y, width=0.92 * width, color=COLOURS[i], label=rule)
            below.errorbar(x, y, reach, fmt="none", ecolor="0.2", elinewidth=1)
        below.set_title("ours, with the 95 % interval of the mean over trials", loc="left")
        for axes, names, values in (
            (above, in_paper, _values(FIG3)),
            (below, learners, [100 * o.accuracy.value for o in results]),
        ):
            axes.set_xticks(range(len(names)), [label_of(n) for n in names])
            axes.set_ylim(min(values) - 2, max(values) + 2)
            axes.set_ylabel("accuracy (%)")
            axes.legend(
                frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5),
            )  # fmt: skip


def draw_fig4(by_way: Mapping[int, Sequence[Outcome]], path: Path) -> None:
    """Accuracy against the number of training tasks; the paper's curves in grey."""
    ways = sorted(by_way)
    learners = _in_order(o.learner for w in ways for o in by_way[w])
    with picture(path, 3.8 * len(learners), 3.2 * len(ways) + 0.6, dpi=160, kind=None) as figure:
        panels = figure.subplots(len(ways), len(learners), squeeze=False)
        for row, way in zip(panels, ways, strict=True):
            for panel, learner in zip(row, learners, strict=True):
                for rule, i in _PAPER_CHOICES.items():
                    points = FIG4.get((learner, way), {}).get(rule, {})
                    if points:
                        panel.plot(
                            list(points), list(points.values()), color=f"{0.55 + 0.12 * i}",
                            linestyle=DASHES[i], lw=1, label=f"published, {rule}",
                        )  # fmt: skip
                for i, choice in enumerate(CHOICES):
                    here = {
                        o.budget: o.accuracy
                        for o in by_way[way]
                        if (o.learner, o.rule) == (learner, str(choice))
                    }
                    if here:
                        x, y = sorted(here), [100 * here[b].value for b in sorted(here)]
                        panel.plot(x, y, label=str(choice), **_look(i))
                        reach = [100 * here[b].reach for b in x]
                        panel.errorbar(x, y, reach, fmt="none", ecolor=COLOURS[i], elinewidth=0.8)
                panel.set_xscale("log")
                panel.set_title(f"{label_of(learner)}, {way}-way", loc="left")
                panel.grid(axis="y", color="0.9")
        for panel in panels[-1]:
            panel.set_xlabel("training tasks")
        for row in panels:
            row[0].set_ylabel("accuracy (%)")
        handles: dict[str, Any] = {}
        for panel in panels.flat:
            for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        figure.legend(
            list(handles.values()), list(handles), loc="outside lower center", ncols=5,
            frameon=False, fontsize=8,
        )  # fmt: skip


def _look(i: int) -> dict[str, Any]:
    return {
        "color": COLOURS[i], "marker": MARKERS[i], "linestyle": DASHES[i],
        "markersize": 4.5, "linewidth": 1.3, "markeredgecolor": "white", "markeredgewidth": 0.5,
    }  # fmt: skip


def _in_order(learners: Iterable[str]) -> list[str]:
    """The learners in the order of the registry, then their variants."""
    names, known = set(learners), list(LEARNERS)
    return [*(n for n in known if n in names), *sorted(names - set(known))]


def _values(table: Mapping[str, Mapping[str, float]]) -> list[float]:
    return [v for row in table.values() for v in row.values()]
