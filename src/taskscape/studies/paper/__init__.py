"""The paper's experiments, in pieces that can stop and go on."""

from collections.abc import Sequence
from pathlib import Path

from taskscape.errors import DataError
from taskscape.pools import load_pool
from taskscape.studies.lab import Lab, OutOfTimeError, Store
from taskscape.studies.paper import fig2, selection
from taskscape.studies.paper.fig2 import Fig2
from taskscape.studies.paper.plan import FIGURES, VERSIONS, fig2_plan, selection_plans
from taskscape.studies.paper.selection import SelectionFigure
from taskscape.studies.paper.summary import write_summary

__all__ = ["FIGURES", "STAGES", "reproduce"]

STAGES = ("prepare", "train", "draw")


def reproduce(
    figures: Sequence[str],
    out: Path,
    *,
    learners: Sequence[str] | None = None,
    versions: Sequence[str] = tuple(VERSIONS),
    stages: Sequence[str] = STAGES,
    scale: float = 1.0,
    minutes: float | None = None,
    seed: int = 0,
    command: str = "",
) -> bool:
    """Run figures of the paper as far as the time allows; whether they are finished.

    ``stages``: ``prepare`` fits the model and chooses tasks, ``train`` trains and tests the
    learners, ``draw`` writes the figure and the table from what there is. Finished cells are lines
    of ``results.jsonl`` in ``out`` and are not run again. Those of other data are other cells. Of
    ``learners``, a figure takes those that it has.
    """
    _check(figures, learners, versions, stages)
    for figure in figures:
        _check_folder(figure, out)
    lab = Lab(out / "results.jsonl", command, minutes)  # an error before any work if not ours
    every: dict[str, list[Fig2] | list[SelectionFigure]] = {
        figure: _experiments(figure, lab, scale, seed) for figure in figures
    }
    finished = True
    for figure, experiments in every.items():
        own = None if learners is None else [n for n in learners if n in _learners_of(figure)]
        try:
            for experiment in experiments if own != [] else ():
                experiment.run(stages, own, versions)
        except OutOfTimeError:
            finished = False
        if "draw" in stages and lab.path.exists():
            write_summary(experiments, versions, scale)
    return finished


def _experiments(
    figure: str, lab: Lab, scale: float, seed: int
) -> list[Fig2] | list[SelectionFigure]:
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


def _check_folder(figure: str, out: Path) -> None:
    """A figure or table is replaced only where the results it was drawn from are."""
    there = sorted(out.glob(f"{figure}*"))
    if there and not (out / "results.jsonl").exists():
        raise DataError(
            f"{there[0]} exists without the results.jsonl that a reproduction has beside it; it is "
            "left as it is. Use another --out."
        )


def _check(
    figures: Sequence[str],
    learners: Sequence[str] | None,
    versions: Sequence[str],
    stages: Sequence[str],
) -> None:
    of_figures = dict.fromkeys(n for figure in figures for n in _learners_of(figure))
    for what, given, known in (
        ("figure", figures, FIGURES),
        ("learner", learners or (), tuple(of_figures)),
        ("version", versions, tuple(VERSIONS)),
        ("stage", stages, STAGES),
    ):
        for one in given:
            if one not in known:
                raise DataError(f"{what} {one!r} is not known; choose from {', '.join(known)}.")
