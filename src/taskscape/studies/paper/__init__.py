"""The paper's experiments, in pieces that can stop and go on."""

from collections.abc import Sequence
from pathlib import Path

from taskscape.errors import DataError
from taskscape.pools import load_pool
from taskscape.studies.lab import Lab, OutOfTimeError, Store
from taskscape.studies.paper.fig2 import Fig2
from taskscape.studies.paper.plan import (
    FIGURES,
    VERSIONS,
    Fig2Plan,
    SelectionPlan,
    fig2_plan,
    selection_plans,
)
from taskscape.studies.paper.selection import CHOICES, Choice, SelectionFigure
from taskscape.studies.recipes import LEARNER_PRESETS

__all__ = ["FIGURES", "STAGES", "reproduce"]

STAGES = ("prepare", "train", "draw")
_FIVE = ("protonet", "maml", "abml", "bmaml", "vampire")
_SELECTION = tuple(LEARNER_PRESETS["paper 5-shot"])
_LEARNERS = {"fig3": (*_FIVE, "maml-untuned"), "fig4": ("protonet", "maml", "maml-untuned")}


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
    plans: Sequence[Fig2Plan | SelectionPlan] = (
        (fig2_plan(figure, scale),) if _is_fig2(figure) else selection_plans(figure, scale)
    )
    pool = load_pool(plans[0].pool)  # all plans of a figure have the same
    store = Store(lab, pool.fingerprint, seed)
    finished = True
    try:
        for plan in plans:
            if isinstance(plan, Fig2Plan):
                _run_fig2(store, Fig2(figure, pool, plan, seed), learners, versions, stages)
            else:
                selection = SelectionFigure(figure, pool, plan, seed)
                _run_selection(store, selection, learners, versions, stages)
    except OutOfTimeError:
        finished = False
    if "draw" in stages:
        from taskscape.studies.paper.summary import write_summary

        write_summary(store, figure, pool, versions, scale, seed)
    return finished


def _run_fig2(
    store: Store,
    experiment: Fig2,
    learners: Sequence[str] | None,
    versions: Sequence[str],
    stages: Sequence[str],
) -> None:
    if "train" in stages:
        experiment.train(store, learners or _FIVE)
    if "prepare" in stages:
        experiment.prepare(store, versions)


def _run_selection(
    store: Store,
    experiment: SelectionFigure,
    learners: Sequence[str] | None,
    versions: Sequence[str],
    stages: Sequence[str],
) -> None:
    choices = choices_of(experiment.figure, versions)
    if "prepare" in stages:
        experiment.prepare(store, choices)
    if "train" in stages:
        experiment.train(store, learners or _LEARNERS[experiment.figure], choices)


def _is_fig2(figure: str) -> bool:
    return figure.startswith("fig2")


def choices_of(figure: str, versions: Sequence[str]) -> tuple[Choice, ...]:
    """The ways to choose that a figure compares; the costliest rule only in one of them."""
    return tuple(
        c
        for c in CHOICES
        if (c.notion not in VERSIONS or c.notion in versions)
        and not (figure == "fig4" and c.rule == "facility")
    )


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
        ("learner", learners or (), _FIVE if _is_fig2(figure) else _SELECTION),
        ("version", versions, tuple(VERSIONS)),
        ("stage", stages, STAGES),
    ):
        for one in given:
            if one not in known:
                raise DataError(f"{what} {one!r} is not known; choose from {', '.join(known)}.")
