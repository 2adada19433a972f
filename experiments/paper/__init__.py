"""The paper's experiments on the real data under TASKSCAPE_DATA, figure by figure.

    python -m experiments.paper --figures fig3 --scale 0.02 --out reproduced/results.jsonl
    python -m experiments.paper --figures fig2-mini-imagenet --minutes 30 --out …
    python -m experiments.paper --stages draw --out …

The paper to the letter, our version at its size, and ours at the size that validation classes
prefer, with the published numbers in the table. At full size this is hours on a CPU. Figures,
tables, models and arrays are written beside the ledger.
"""

from dataclasses import dataclass

from experiments.lab import Lab, OutOfTimeError, Store, option
from experiments.paper import fig2, selection
from experiments.paper.fig2 import Fig2
from experiments.paper.plan import FIGURES, VERSIONS, fig2_plan, selection_plans
from experiments.paper.selection import SelectionFigure
from experiments.paper.summary import write_summary
from taskscape.distributed import use_engine
from taskscape.errors import DataError
from taskscape.meta import LEARNERS
from taskscape.pools import load_pool

__all__ = ["FIGURES", "STAGES", "PaperSettings", "run"]

STAGES = ("prepare", "train", "draw")


@dataclass(frozen=True)
class PaperSettings:
    """Which figures, and how."""

    figures: tuple[str, ...] = option(
        "in this order, in the same minutes", FIGURES, choices=FIGURES
    )
    learners: tuple[str, ...] = option(
        f"some of {', '.join(LEARNERS)}; by default those that a figure has", (), commas=True
    )
    versions: tuple[str, ...] = option(
        "the model to the letter of the paper, ours at its size, and ours at the size that "
        "validation classes prefer",
        tuple(VERSIONS),
        choices=tuple(VERSIONS),
    )
    stages: tuple[str, ...] = option(
        "prepare fits models and chooses tasks, train trains and tests learners, draw writes the "
        "figure and the table from what there is",
        STAGES,
        choices=STAGES,
    )
    scale: float = option("shrink every count, for a machine without a GPU", 1.0)
    seed: int = 0
    engine: str = option("who does the work: local, or a Ray cluster", "local")


def run(settings: PaperSettings, lab: Lab) -> None:
    """Run figures of the paper as far as the time allows, and draw what there is."""
    known = dict.fromkeys(n for figure in settings.figures for n in _learners_of(figure))
    for name in settings.learners:
        if name not in known:
            raise DataError(f"learner {name!r} is not known; choose from {', '.join(known)}.")
    every = {figure: _experiments(figure, lab, settings) for figure in settings.figures}
    out_of_time: OutOfTimeError | None = None
    for figure, experiments in every.items():
        own = [n for n in settings.learners if n in _learners_of(figure)]
        try:
            with use_engine(settings.engine):
                for experiment in experiments if own or not settings.learners else ():
                    experiment.run(settings.stages, own or None, settings.versions)
        except OutOfTimeError as error:
            out_of_time = error
        if "draw" in settings.stages and lab.cells:
            print(write_summary(experiments, settings.versions, settings.scale))
    if out_of_time is not None:
        raise out_of_time


def _experiments(
    figure: str, lab: Lab, settings: PaperSettings
) -> list[Fig2] | list[SelectionFigure]:
    scale, seed = settings.scale, settings.seed
    if _is_fig2(figure):
        diagram = fig2_plan(figure, scale)
        pool = load_pool(diagram.pool)
        return [Fig2(figure, pool, diagram, Store(lab, pool.fingerprint, seed), seed)]
    plans = selection_plans(figure, scale)
    pool = load_pool(plans[0].pool)  # all plans of a figure have the same
    store = Store(lab, pool.fingerprint, seed)
    return [SelectionFigure(figure, pool, plan, store, seed) for plan in plans]


def _learners_of(figure: str) -> tuple[str, ...]:
    return fig2.LEARNERS if _is_fig2(figure) else selection.learners_of(figure)


def _is_fig2(figure: str) -> bool:
    return figure.startswith("fig2")
