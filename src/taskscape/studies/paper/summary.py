"""Tables of a reproduction, the paper's published numbers beside ours, and its figures."""

from collections.abc import Mapping, Sequence
from typing import Any

from taskscape.diagram import CorrelationDiagram
from taskscape.files import written_in_one_piece
from taskscape.studies.outcome import RANDOM, Outcome, SelectionTrial, outcomes
from taskscape.studies.paper.drawing import draw_fig2, draw_fig3, draw_fig4
from taskscape.studies.paper.fig2 import LEARNERS, Fig2
from taskscape.studies.paper.plan import as_cell
from taskscape.studies.paper.published import FIG2, FIG3, FIG4
from taskscape.studies.paper.selection import CHOICES, Choice, SelectionFigure

__all__ = ["write_summary"]

_ORDER = {str(choice): i for i, choice in enumerate(CHOICES)}
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
    with written_in_one_piece(first.store.folder / f"{first.figure}.md") as file:
        file.write_text(text + "\n", encoding="utf-8")
    return text


# -- figure 2 -----------------------------------------------------------------------------------


def _fig2(experiment: Fig2, versions: Sequence[str]) -> str:
    figure, plan, folder = experiment.figure, experiment.plan, experiment.store.folder
    learners = [n for n in LEARNERS if experiment.has_accuracy(n)]
    measured = {v: train for v in versions if (train := experiment.measured_from(v)) is not None}
    if not learners or not measured:
        return f"{figure}: nothing to draw yet; {len(learners)} learners are finished."
    diagrams = {v: experiment.diagram(learners, v) for v in measured}
    for version, diagram in diagrams.items():
        diagram.save(folder / f"{figure}-{version}.json")
    published = FIG2[plan.pool]
    draw_fig2(diagrams, published, folder / f"{figure}.png")
    rows = ["| | mean | nearest bin | farthest bin | Spearman | given difficulty | ceiling |",
            "|---|---|---|---|---|---|---|"]  # fmt: skip
    for learner in learners:
        first, last = published[learner][0][1], published[learner][-1][1]
        rows.append(f"| {learner}, paper | | {100 * first:.1f} | {100 * last:.1f} | | | |")
        rows += [_fig2_row(learner, v, d) for v, d in diagrams.items()]
    about = (
        f"{len(experiment.tests()):,} test tasks, distances to "
        + " and ".join(f"{train.n_tasks:,} ({v})" for v, train in measured.items())
        + f" training tasks; learners trained on {plan.learner_tasks:,} random tasks, "
        f"{plan.learner_tasks // plan.batch_size:,} updates of {plan.batch_size}, "
        f"{len(plan.seeds)} seeds; {plan.episodes} episodes per test task. Accuracies in %."
    )
    return "\n".join([about, "", *rows])


def _fig2_row(learner: str, version: str, diagram: CorrelationDiagram) -> str:
    curve = next(c for c in diagram.curves if c.learner == learner)
    near, far = curve.bins[0].accuracy, curve.bins[-1].accuracy
    ceiling = "" if curve.ceiling is None else f"{curve.ceiling:.2f}"
    return (
        f"| {learner}, {version} | {100 * curve.mean_accuracy:.1f} | {100 * near:.1f} | "
        f"{100 * far:.1f} | {curve.spearman} | {curve.partial} | {ceiling} |"
    )


# -- figures 3 and 4 ----------------------------------------------------------------------------


def _selection(experiments: Sequence[SelectionFigure]) -> str:
    figure, store = experiments[0].figure, experiments[0].store
    by_way: dict[int, list[Outcome]] = {}
    for plan in (experiment.plan for experiment in experiments):
        same = {k: as_cell(plan)[k] for k in ("way", "candidates", "test_tasks", "fit_tasks")}
        trials = [
            read_trial(entry)
            for entry in store.results(figure=figure, what="selection")
            if same.items() <= entry["cell"]["plan"].items()
        ]
        if trials:
            by_way[plan.way] = sorted(
                outcomes(trials), key=lambda o: (o.learner, o.budget, _ORDER[o.rule])
            )
    if not by_way:
        return f"{figure}: no trial is finished yet."
    draw = draw_fig3 if figure == "fig3" else draw_fig4
    draw(by_way, store.folder / f"{figure}.png")
    rows = [
        "| learner | way | tasks | choice | trials | accuracy | spread | gain over random | "
        "loses | paper | paper's gain |",
        "|" + "---|" * 11,
    ]
    rows += [_selection_row(figure, way, o) for way in sorted(by_way) for o in by_way[way]]
    about = (
        "Accuracies and gains in %, with half of their 95 % intervals: of an accuracy over trials, "
        "of a gain over trials and test classes together; spread: standard deviation over trials; "
        "loses: how often a random trial is better."
    )
    tuned = "The learners, but for maml-untuned, were tuned 5-way with 1,000 training tasks."
    if figure == "fig4":
        tuned += " The rows of 10 ways, and of other numbers of tasks, use the same settings."
    return "\n".join([tuned, "", *_gains(by_way), "", about, "", *rows])


def read_trial(entry: Mapping[str, Any]) -> SelectionTrial:
    """The trial of a line of the ledger."""
    cell = entry["cell"]
    return SelectionTrial(
        cell["learner"],
        str(Choice(cell["rule"], cell["notion"])),
        cell["budget"],
        cell["trial"],
        entry["accuracy"],
        tuple(entry["without_class"]),
    )


def _gains(by_way: Mapping[int, Sequence[Outcome]]) -> list[str]:
    """Gains over random choice, a column for each number of tasks; bold: beyond chance."""
    budgets = sorted({o.budget for one_way in by_way.values() for o in one_way})
    head = " | ".join(f"{b:,} tasks" for b in budgets)
    rows = [
        "Gain over random choice in points; bold: its 95 % interval, over trials and test classes, "
        "leaves out zero. The row of random choice has its accuracy in %.",
        "",
        f"| learner | way | choice | {head} |",
        "|---|---|---|" + "---|" * len(budgets),
    ]
    for way in sorted(by_way):
        cells = {(o.learner, o.rule, o.budget): _gain(o) for o in by_way[way]}
        names = {(learner, rule) for learner, rule, _ in cells}
        for learner, rule in sorted(names, key=lambda name: (name[0], _ORDER[name[1]])):
            shown = " | ".join(cells.get((learner, rule, b), "") for b in budgets)
            rows.append(f"| {learner} | {way} | {rule} | {shown} |")
    return rows


def _gain(o: Outcome) -> str:
    if o.gain is None:
        return f"{100 * o.accuracy.value:.1f}"
    gain = f"{round(100 * o.gain.value, 1) + 0.0:+.1f}".replace("-", "−")
    return f"**{gain}**" if o.gain.clear else gain


def _selection_row(figure: str, way: int, o: Outcome) -> str:
    theirs = published_for(figure, way, o)
    random = published_for(figure, way, o, RANDOM)
    paper = "" if theirs is None else f"{theirs:.1f}"
    ours, gain = " | ", ""
    if o.gain is not None:
        reach = 50 * (o.gain.high - o.gain.low)
        ours = f"{100 * o.gain.value:+.1f} ± {reach:.1f} | {o.losing_share:.0%}"
        gain = "" if theirs is None or random is None else f"{theirs - random:+.1f}"
    return (
        f"| {o.learner} | {way} | {o.budget:,} | {o.rule} | {o.n_trials} | "
        f"{100 * o.accuracy.value:.1f} ± {100 * o.accuracy.reach:.1f} | {100 * o.spread:.1f} | "
        f"{ours} | {paper} | {gain} |"
    )


def published_for(figure: str, way: int, o: Outcome, rule: str | None = None) -> float | None:
    """The paper's accuracy for such trials, where it has one."""
    rule = rule or _PAPER_RULES.get(o.rule)
    if rule is None:
        return None
    if figure == "fig3":
        return FIG3[rule].get(o.learner)
    return FIG4.get((o.learner, way), {}).get(rule, {}).get(o.budget)
