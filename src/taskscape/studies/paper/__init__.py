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
    figure: str,
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
    """Run one of the paper's figures as far as the time allows; whether it is finished.

    ``stages``: ``prepare`` fits the model and chooses tasks, ``train`` trains and tests the
    learners, ``draw`` writes the figure and the table from what there is. Finished cells are lines
    of ``results.jsonl`` in ``out`` and are not run again. Those of other data are other cells.
    """
    _check(figure, learners, versions, stages)
    _check_folder(figure, out)
    lab = Lab(out / "results.jsonl", command, minutes)  # an error before any work if not ours
    experiments: list[Fig2] | list[SelectionFigure]
    if _is_fig2(figure):
        diagram = fig2_plan(figure, scale)
        pool = load_pool(diagram.pool)
        store = Store(lab, pool.fingerprint, seed)
        experiments = [Fig2(figure, pool, diagram, store, seed)]
    else:
        plans = selection_plans(figure, scale)
        pool = load_pool(plans[0].pool)  # all plans of a figure have the same
        store = Store(lab, pool.fingerprint, seed)
        experiments = [SelectionFigure(figure, pool, plan, store, seed) for plan in plans]
    finished = True
    try:
        for experiment in experiments:
            experiment.run(stages, learners, versions)
    except OutOfTimeError:
        finished = False
    if "draw" in stages:
        write_summary(experiments, versions, scale)
    return finished


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
    figure: str,
    learners: Sequence[str] | None,
    versions: Sequence[str],
    stages: Sequence[str],
) -> None:
    for what, given, known in (
        ("figure", (figure,), FIGURES),
        ("learner", learners or (), (fig2 if _is_fig2(figure) else selection).LEARNERS),
        ("version", versions, tuple(VERSIONS)),
        ("stage", stages, STAGES),
    ):
        for one in given:
            if one not in known:
                raise DataError(f"{what} {one!r} is not known; choose from {', '.join(known)}.")
