"""Tables and figures of a reproduction, the paper's published numbers beside ours."""

from collections.abc import Sequence
from pathlib import Path

from taskscape.diagram import CorrelationDiagram
from taskscape.files import written_in_one_piece
from taskscape.pools import ClassPool
from taskscape.studies.lab import Store
from taskscape.studies.paper.fig2 import Fig2
from taskscape.studies.paper.outcome import Outcome, outcomes
from taskscape.studies.paper.plan import as_cell, fig2_plan, selection_plans
from taskscape.studies.paper.published import FIG2, FIG3, FIG4
from taskscape.studies.paper.selection import CHOICES, Choice
from taskscape.studies.recipes import LEARNER_PRESETS

__all__ = ["write_summary"]

_PAPER_RULES = {
    Choice("random", ""): "random",
    Choice("nearest", "ours"): "nearest",
    Choice("nearest", "literal"): "nearest",
    Choice("nearest", "task2vec"): "task2vec",
}


def write_summary(
    store: Store, figure: str, pool: ClassPool, versions: Sequence[str], scale: float, seed: int
) -> str:
    """Write the figure and its table from the finished cells; the table in Markdown."""
    if figure.startswith("fig2"):
        text = _fig2(store, figure, pool, versions, scale, seed)
    else:
        text = _selection(store, figure, scale)
    if scale != 1:
        text = f"Every count was shrunk by --scale {scale:g}; this is not the full size.\n\n{text}"
    _write(store.folder / f"{figure}.md", text + "\n")
    return text


# -- figure 2 -----------------------------------------------------------------------------------


def _fig2(
    store: Store, figure: str, pool: ClassPool, versions: Sequence[str], scale: float, seed: int
) -> str:
    from taskscape.studies.paper.drawing import draw_fig2

    plan = fig2_plan(figure, scale)
    experiment = Fig2(figure, pool, plan, seed)
    learners = [n for n in LEARNER_PRESETS["paper 1-shot"] if experiment.has_accuracy(store, n)]
    ready = [v for v in versions if experiment.n_measured(store, v)]
    if not learners or not ready:
        return f"{figure}: nothing to draw yet; {len(learners)} learners are finished."
    diagrams = {v: experiment.diagram(store, learners, v) for v in ready}
    for version, diagram in diagrams.items():
        _write(store.folder / f"{figure}-{version}.json", diagram.to_json() + "\n")
    published = FIG2[plan.pool]
    draw_fig2(diagrams, published, store.folder / f"{figure}.png")
    rows = ["| | mean | nearest bin | farthest bin | Spearman | given difficulty | ceiling |",
            "|---|---|---|---|---|---|---|"]  # fmt: skip
    for learner in learners:
        first, last = published[learner][0][1], published[learner][-1][1]
        rows.append(f"| {learner}, paper | | {100 * first:.1f} | {100 * last:.1f} | | | |")
        rows += [_fig2_row(learner, v, d) for v, d in diagrams.items()]
    about = (
        f"{diagrams[ready[0]].n_tasks:,} test tasks, distances to "
        + " and ".join(f"{experiment.n_measured(store, v):,} ({v})" for v in ready)
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


def _selection(store: Store, figure: str, scale: float) -> str:
    from taskscape.studies.paper.drawing import draw_fig3, draw_fig4

    found: list[Outcome] = []
    for plan in selection_plans(figure, scale):
        same = {k: as_cell(plan)[k] for k in ("way", "candidates", "test_tasks", "fit_tasks")}
        entries = store.results(figure=figure, what="selection")
        found += outcomes(
            [e for e in entries if all(e["cell"]["plan"][k] == v for k, v in same.items())]
        )
    if not found:
        return f"{figure}: no trial is finished yet."
    draw = draw_fig3 if figure == "fig3" else draw_fig4
    draw(found, store.folder / f"{figure}.png")
    order = {c: i for i, c in enumerate(CHOICES)}
    rows = [
        "| learner | way | tasks | choice | trials | accuracy | spread | gain over random | "
        "over trials | over classes | loses | paper | paper's gain |",
        "|" + "---|" * 13,
    ]
    for o in sorted(found, key=lambda o: (o.way, o.learner, o.budget, order[o.choice])):
        rows.append(_selection_row(figure, o))
    about = (
        "Accuracies and gains in %; spread: standard deviation over trials; then half of the 95 % "
        "interval of the gain over trials, and over test classes; loses: how often a random trial "
        "is better."
    )
    tuned = "The learners, but for maml-untuned, were tuned 5-way with 1,000 training tasks."
    if figure == "fig4":
        tuned += " The rows of 10 ways, and of other numbers of tasks, use the same settings."
    return "\n".join([tuned, "", *_gains(found, order), "", about, "", *rows])


def _gains(found: Sequence[Outcome], order: dict[Choice, int]) -> list[str]:
    """Gains over random choice, a column for each number of tasks; bold: beyond chance."""
    budgets = sorted({o.budget for o in found})
    head = " | ".join(f"{b:,} tasks" for b in budgets)
    rows = [
        "Gain over random choice in points; bold: beyond both 95 % intervals, over trials and over "
        "test classes. The row of random choice has its accuracy in %.",
        "",
        f"| learner | way | choice | {head} |",
        "|---|---|---|" + "---|" * len(budgets),
    ]
    for way, learner, choice in sorted(
        {(o.way, o.learner, o.choice) for o in found}, key=lambda k: (k[0], k[1], order[k[2]])
    ):
        here = {
            o.budget: o for o in found if (o.way, o.learner, o.choice) == (way, learner, choice)
        }
        cells = " | ".join(_gain(here[b]) if b in here else "" for b in budgets)
        rows.append(f"| {learner} | {way} | {choice} | {cells} |")
    return rows


def _gain(o: Outcome) -> str:
    if o.choice.rule == "random":
        return f"{o.mean:.1f}"
    gain = f"{round(o.gain, 1) + 0.0:+.1f}".replace("-", "−")
    return f"**{gain}**" if o.helps or o.hurts else gain


def _selection_row(figure: str, o: Outcome) -> str:
    theirs, random = published_for(figure, o), published_for(figure, o, "random")
    paper = "" if theirs is None else f"{theirs:.1f}"
    gain = "" if theirs is None or random is None else f"{theirs - random:+.1f}"
    is_random = o.choice.rule == "random"
    ours = " | | | " if is_random else (
        f"{o.gain:+.1f} | ± {o.gain_reach:.1f} | ± {o.gain_reach_classes:.1f} | {o.losses:.0%}"
    )  # fmt: skip
    return (
        f"| {o.learner} | {o.way} | {o.budget:,} | {o.choice} | {o.n_trials} | {o.mean:.1f} ± "
        f"{o.reach:.1f} | {o.spread:.1f} | {ours} | {paper} | {gain if not is_random else ''} |"
    )


def published_for(figure: str, o: Outcome, rule: str | None = None) -> float | None:
    """The paper's accuracy for such trials, where it has one."""
    rule = rule or _PAPER_RULES.get(o.choice)
    if rule is None:
        return None
    if figure == "fig3":
        return FIG3[rule].get(o.learner)
    return FIG4.get((o.learner, o.way), {}).get(rule, {}).get(o.budget)


def _write(path: Path, text: str) -> None:
    with written_in_one_piece(path) as file:
        file.write_text(text, encoding="utf-8")
