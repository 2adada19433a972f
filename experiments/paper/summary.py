"""Tables of a reproduction, the paper's published numbers beside ours, and its figures."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.paper import fig2
from experiments.paper.fig2 import Fig2
from experiments.paper.plan import SelectionPlan, as_cell, learner_settings
from experiments.paper.published import FIG2, FIG3, FIG3_RANDOM_INTERVALS, FIG4
from experiments.paper.selection import CHOICES, Choice, SelectionFigure
from experiments.tables import markdown_table
from taskscape.diagram import CorrelationDiagram
from taskscape.diagram.plot import COLOURS, DASHES, MARKERS
from taskscape.embeddings import Sums
from taskscape.io.files import atomic_write
from taskscape.io.pictures import picture
from taskscape.meta import LEARNERS, label_of
from taskscape.select.known import RANDOM
from taskscape.select.trials import Outcome, Trial, outcomes
from taskscape.statistics import Interval

__all__ = ["write_summary"]

_ORDER = {str(choice): i for i, choice in enumerate(CHOICES)}
_COLOURS = (*COLOURS, "#8C564B", "#999999")
"""One for every choice."""
_PAPER_RULES = {
    RANDOM: "random",
    "nearest (ours)": "nearest",
    "nearest (literal)": "nearest",
    "nearest (task2vec)": "task2vec",
}


def write_summary(
    experiments: Sequence[Fig2] | Sequence[SelectionFigure], versions: Sequence[str], scale: float
) -> str:
    """Write the figure and its table from the finished cells; the table in Markdown."""
    first = experiments[0]
    if isinstance(first, Fig2):
        text = _fig2(first, versions)
    else:
        text = _selection([e for e in experiments if isinstance(e, SelectionFigure)])
    if scale != 1:
        text = f"Every count was shrunk by --scale {scale:g}; this is not the full size.\n\n{text}"
    with atomic_write(first.store.folder / f"{first.figure}.md") as file:
        file.write_text(text, encoding="utf-8")
    return text


# -- figure 2 -----------------------------------------------------------------------------------


def _fig2(experiment: Fig2, versions: Sequence[str]) -> str:
    figure, plan, folder = experiment.figure, experiment.plan, experiment.store.folder
    learners = [n for n in fig2.LEARNERS if experiment.has_accuracy(n)]
    measured = {v: train for v in versions if (train := experiment.measured_from(v)) is not None}
    if not learners or not measured:
        return f"{figure}: nothing to draw yet; {len(learners)} learners are finished.\n"
    diagrams = {v: experiment.diagram(learners, v) for v in measured}
    for version, diagram in diagrams.items():
        diagram.save(folder / f"{figure}-{version}.json")
    published = FIG2[plan.pool]
    _draw_fig2(diagrams, published, folder / f"{figure}.png")
    columns = (
        "", "mean", "nearest tenth", "farthest tenth", "Spearman", "given difficulty", "ceiling",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for learner in learners:
        first, last = (f"{100 * published[learner][i][1]:.1f}" for i in (0, -1))
        rows.append((f"{learner}, paper", "", first, last, "", "", ""))
        rows += [_fig2_row(learner, v, d) for v, d in diagrams.items()]
    about = (
        f"{len(experiment.tests()):,} test tasks, distances to "
        + _measured_from({v: train.tasks for v, train in measured.items()})
        + f" training tasks; learners trained on {plan.learner_tasks:,} random tasks"
        f", updates of {plan.batch_size}, {len(plan.seeds)} seeds; {plan.episodes} episodes per "
        "test task. Accuracies in %, with the number of tasks; the paper's are of its outermost "
        "bins." + _agreement(experiment, measured)
    )
    return f"{about}\n\n{markdown_table(columns, rows)}"


def _agreement(experiment: Fig2, measured: Mapping[str, Sums]) -> str:
    """How well the fits of each version with several agree about the distances that are drawn."""
    result = {v: p for v, train in measured.items() if len(p := experiment.agreement(v, train))}
    if not result:
        return ""
    words = ", ".join(
        f"{v} {p.mean():.2f} ({p.min():.2f} to {p.max():.2f})" for v, p in result.items()
    )
    return f" Rank correlation of these distances between two fits, mean over pairs: {words}."


def _measured_from(tasks: Mapping[str, int]) -> str:
    """How many training tasks the versions measure distances to."""
    if len(set(tasks.values())) == 1:
        return f"{next(iter(tasks.values())):,}"
    return " and ".join(f"{n:,} ({version})" for version, n in tasks.items())


def _fig2_row(learner: str, version: str, diagram: CorrelationDiagram) -> tuple[str, ...]:
    curve = next(c for c in diagram.curves if c.learner == learner)
    ends = (f"{100 * b.accuracy:.1f} ({b.n_tasks:,})" for b in (curve.bins[0], curve.bins[-1]))
    ceiling = "" if curve.ceiling is None else f"{curve.ceiling:.2f}"
    return (
        f"{learner}, {version}", f"{100 * curve.mean_accuracy:.1f}", *ends,
        str(curve.spearman), str(curve.partial), ceiling,
    )  # fmt: skip


# -- figures 3 and 4 ----------------------------------------------------------------------------


class _Results(NamedTuple):
    """What the trials of one plan came to."""

    plan: SelectionPlan
    outcomes: list[Outcome]


def _selection(experiments: Sequence[SelectionFigure]) -> str:
    figure, store = experiments[0].figure, experiments[0].store
    trials = {e.plan: ours for e in experiments if (ours := _trials_of(e))}
    if not trials:
        return f"{figure}: no trial is finished yet.\n"
    results = [
        _Results(plan, sorted(outcomes(own), key=lambda o: (o.learner, o.budget, _ORDER[o.rule])))
        for plan, own in trials.items()
    ]
    draw = _draw_fig3 if figure == "fig3" else _draw_fig4
    draw(results, store.folder / f"{figure}.png")
    columns = (
        "learner", "tasks of", "tasks", "choice", "trials", "accuracy", "spread",
        "gain over random", "loses", "paper", "paper's gain",
    )  # fmt: skip
    rows = [_selection_row(figure, plan, o) for plan, own in results for o in own]
    about = (
        "Accuracies and gains in %, with half of their 95 % intervals: of an accuracy over trials, "
        "of a gain over trials and test classes together; spread: standard deviation over trials; "
        "loses: how often a random trial is better."
    )
    return (
        f"{_tuned(figure)}\n\n{_gains(results, trials)}\n{about}\n\n{markdown_table(columns, rows)}"
    )


def _tuned(figure: str) -> str:
    if figure == "fig3":
        return "The learners, but for maml-untuned, were tuned for 1,000 training tasks."
    if figure == "fig4":
        return (
            "ProtoNet and MAML were tuned for 100, 1,000 and 10,000 tasks at both numbers of ways; "
            "a column takes what was tuned for the nearest number."
        )
    return "The learners have the same settings for every number of tasks."


def _trials_of(experiment: SelectionFigure) -> list[Trial]:
    """The finished trials of a plan, with the settings that its learners have today."""
    plan, store = experiment.plan, experiment.store
    same = {k: as_cell(plan)[k] for k in ("way", "candidates", "test_tasks", "fit_tasks")}
    return [
        read_trial(entry)
        for entry in store.results(figure=experiment.figure, what="selection")
        if same.items() <= entry["cell"]["plan"].items()
        and entry["cell"]["plan"].get("within_group", False) == plan.within_group
        and _has_settings_of_today(entry["cell"], plan)
    ]


def _has_settings_of_today(cell: Mapping[str, Any], plan: SelectionPlan) -> bool:
    return cell["settings"] == learner_settings(plan, cell["learner"], cell["budget"])


def read_trial(entry: Mapping[str, Any]) -> Trial:
    """The trial of a line of the ledger."""
    cell = entry["cell"]
    return Trial(
        cell["learner"],
        str(Choice(cell["rule"], cell["measure"])),
        cell["budget"],
        cell["trial"],
        entry["accuracy"],
        tuple(entry["without_class"]),
    )


def _gains(results: Sequence[_Results], trials: Mapping[SelectionPlan, Sequence[Trial]]) -> str:
    """Gains over random choice, a column for each number of tasks."""
    budgets = sorted({o.budget for _, own in results for o in own})
    n = sum(o.gain is not None for _, own in results for o in own)
    strict = {  # Bonferroni's correction for all gains of the table
        (plan, o.learner, o.rule, o.budget)
        for plan, own in trials.items()
        for o in outcomes(own, 1 - 0.05 / max(1, n))
        if o.gain is not None and o.gain.sign
    }
    alone = sum(o.gain is not None and o.gain.sign for _, own in results for o in own)
    columns = ["learner", "tasks of", "choice", *(f"{b:,} tasks" for b in budgets)]
    rows: list[list[str]] = []
    for plan, own in results:
        cells = {
            (o.learner, o.rule, o.budget): _gain(o, (plan, o.learner, o.rule, o.budget) in strict)
            for o in own
        }
        names = {(learner, rule) for learner, rule, _ in cells}
        for learner, rule in sorted(names, key=lambda name: (name[0], _ORDER[name[1]])):
            shown = [cells.get((learner, rule, b), "") for b in budgets]
            rows.append([learner, plan.title, rule, *shown])
    about = (
        f"Gain over random choice in points. *Italic*: its 95 % interval, over trials and test "
        f"classes, leaves out zero, as {alone} of {n} do; about {0.05 * n:.2g} would by chance. "
        f"**Bold**: {len(strict)} that do so with the interval widened for {n} comparisons "
        "(Bonferroni). The row of random choice has its accuracy in %."
    )
    return f"{about}\n\n{markdown_table(columns, rows)}"


def _gain(o: Outcome, strict: bool) -> str:
    if o.gain is None:
        return f"{100 * o.accuracy.value:.1f}"
    gain = f"{round(100 * o.gain.value, 1) + 0.0:+.1f}".replace("-", "−")
    if strict:
        return f"**{gain}**"
    return f"*{gain}*" if o.gain.sign else gain


def _selection_row(figure: str, plan: SelectionPlan, o: Outcome) -> tuple[str, ...]:
    theirs = published_for(figure, plan.way, o)
    random = published_for(figure, plan.way, o, RANDOM)
    paper = "" if theirs is None else f"{theirs:.1f}"
    ours = loses = gain = ""
    if o.gain is not None:
        reach = 50 * (o.gain.high - o.gain.low)
        ours, loses = f"{100 * o.gain.value:+.1f} ± {reach:.1f}", f"{o.losing_share:.0%}"
        gain = "" if theirs is None or random is None else f"{theirs - random:+.1f}"
    return (
        o.learner, plan.title, f"{o.budget:,}", o.rule, str(o.n_trials),
        f"{100 * o.accuracy.value:.1f} ± {100 * o.accuracy.reach:.1f}", f"{100 * o.spread:.1f}",
        ours, loses, paper, gain,
    )  # fmt: skip


def published_for(figure: str, way: int, o: Outcome, rule: str | None = None) -> float | None:
    """The paper's accuracy for such trials, where it has one."""
    rule = rule or _PAPER_RULES.get(o.rule)
    if rule is None:
        return None
    if figure == "fig3":
        return FIG3[rule].get(o.learner)
    if figure != "fig4":
        return None
    return FIG4.get((o.learner, way), {}).get(rule, {}).get(o.budget)


# -- the figures --------------------------------------------------------------------------------

_PAPER_CHOICES = {"random": 0, "nearest": 1, "task2vec": 2}
_COLOUR_OF = {"random": RANDOM, "nearest": "nearest (ours)", "task2vec": "nearest (task2vec)"}
"""A published bar has the colour of our choice that it compares with."""


def _draw_fig2(
    diagrams: Mapping[str, CorrelationDiagram],
    published: Mapping[str, Sequence[tuple[float, float]]],
    path: Path,
) -> None:
    """Accuracy against distance: the paper's curves, then those of each version."""
    with picture(path, 3.6 * (1 + len(diagrams)), 4.2, dpi=160) as figure:
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
        for panel in panels[2:]:
            panel.sharey(panels[1])
        panels[0].set_ylabel("accuracy")
        figure.legend(loc="outside lower center", ncols=5, frameon=False)


def _draw_fig3(of_plans: Sequence[_Results], path: Path) -> None:
    """Bars by learner and choice: the paper's above, ours below."""
    ((_, results),) = of_plans
    learners = _in_order(o.learner for o in results)
    rules = [str(c) for c in CHOICES if any(o.rule == str(c) for o in results)]
    in_paper = [n for n in learners if n in FIG3["random"]]
    with picture(path, 10.0, 6.0, dpi=160) as figure:
        above, below = figure.subplots(2, 1)
        for rule, i in _PAPER_CHOICES.items():
            y = [FIG3[rule][n] for n in in_paper]
            x = [j + (i - 1) * 0.25 for j in range(len(in_paper))]
            above.bar(x, y, width=0.23, color=_COLOURS[_ORDER[_COLOUR_OF[rule]]], label=rule)
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
            below.bar(x, y, width=0.92 * width, color=_COLOURS[_ORDER[rule]], label=rule)
            below.errorbar(x, y, reach, fmt="none", ecolor="0.2", elinewidth=1)
        below.set_title("ours, with the 95 % interval of the mean over trials", loc="left")
        for axes, names, values in (
            (above, in_paper, _values(FIG3)),
            (below, learners, [100 * v for o in results for v in _ends(o.accuracy)]),
        ):
            axes.set_xticks(range(len(names)), [label_of(n) for n in names])
            axes.set_ylim(min(values) - 2, max(values) + 2)
            axes.set_ylabel("accuracy (%)")
            axes.legend(
                frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5),
            )  # fmt: skip


def _ends(mean: Interval) -> list[float]:
    """What a bar and the line of its interval reach to; a single trial has no interval."""
    return [v for v in (mean.value, mean.low, mean.high) if math.isfinite(v)]


def _draw_fig4(of_plans: Sequence[_Results], path: Path) -> None:
    """Accuracy against the number of training tasks; the paper's curves in grey."""
    learners = _in_order(o.learner for _, own in of_plans for o in own)
    size = max(7.6, 3.8 * len(learners)), 3.2 * len(of_plans) + 0.8  # room for the legend
    with picture(path, *size, dpi=160) as figure:
        panels = figure.subplots(len(of_plans), len(learners), squeeze=False)
        for row, (plan, own) in zip(panels, of_plans, strict=True):
            for panel, learner in zip(row, learners, strict=True):
                for rule, i in _PAPER_CHOICES.items():
                    points = FIG4.get((learner, plan.way), {}).get(rule, {})
                    if points and plan.pool == "mini_imagenet":
                        panel.plot(
                            list(points), list(points.values()), color=f"{0.55 + 0.12 * i}",
                            linestyle=DASHES[i], lw=1, label=f"published, {rule}",
                        )  # fmt: skip
                for i, choice in enumerate(CHOICES):
                    here = {
                        o.budget: o.accuracy
                        for o in own
                        if (o.learner, o.rule) == (learner, str(choice))
                    }
                    if here:
                        x, y = sorted(here), [100 * here[b].value for b in sorted(here)]
                        panel.plot(x, y, label=str(choice), **_look(i))
                        reach = [100 * here[b].reach for b in x]
                        panel.errorbar(x, y, reach, fmt="none", ecolor=_COLOURS[i], elinewidth=0.8)
                panel.set_xscale("log")
                panel.set_title(f"{label_of(learner)}, {plan.title}", loc="left")
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
            list(handles.values()), list(handles), loc="outside lower center",
            ncols=3 if len(learners) < 3 else 5, frameon=False, fontsize=8,
        )  # fmt: skip


def _look(i: int) -> dict[str, Any]:
    return {
        "color": _COLOURS[i], "marker": MARKERS[i % len(MARKERS)],
        "linestyle": DASHES[i % len(DASHES)],
        "markersize": 4.5, "linewidth": 1.3, "markeredgecolor": "white", "markeredgewidth": 0.5,
    }  # fmt: skip


def _in_order(learners: Iterable[str]) -> list[str]:
    """The learners in the order of the registry, then their variants."""
    names, known = set(learners), list(LEARNERS)
    return [*(n for n in known if n in names), *sorted(names - set(known))]


def _values(table: Mapping[str, Mapping[str, float]]) -> list[float]:
    return [v for row in table.values() for v in row.values()]
