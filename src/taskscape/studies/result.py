"""What a study came to: numbers, sentences and a picture; what the report and the folder show."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.compare import Resemblance
from taskscape.diagram import CorrelationDiagram, Curve
from taskscape.diagram.plot import COLOURS, MARKERS
from taskscape.embeddings import Embeddings
from taskscape.files import picture
from taskscape.forecast import Forecasts, Judgement
from taskscape.meta import label_of
from taskscape.plain_text import plain
from taskscape.pools import ClassPool
from taskscape.studies.outcome import Gain, SelectionTrial
from taskscape.targets import Advice
from taskscape.themes.estimator import TaskThemes

__all__ = ["StudyResult", "find", "plot_selection"]


@dataclass(frozen=True, eq=False, repr=False)
class StudyResult:
    """What :func:`taskscape.studies.run_study` returns, and ``load_study`` reads back."""

    pool: ClassPool
    """The samples as they came, for pictures."""
    model: TaskThemes
    train: Embeddings
    test: Embeddings
    distance: Float[np.ndarray, "tests"]
    """Mean distance from each test task to all training tasks, by the study's similarity."""
    nearest: Int[np.ndarray, "tests k"]
    """Rows of ``train``: the nearest training tasks of each test task."""
    nearest_distance: Float[np.ndarray, "tests k"]
    difficulty: Float[np.ndarray, "tests"]
    """How hard each test task is in itself; more is harder."""
    accuracy: Mapping[str, Float[np.ndarray, "tests episodes"]]
    """By learner, the accuracy of each test task in each evaluation episode."""
    diagram: CorrelationDiagram | None
    selection: tuple[SelectionTrial, ...]
    forecasts: Mapping[str, Forecasts]
    """By learner, for the test tasks."""
    judgements: Mapping[str, Judgement]
    findings: tuple[str, ...]
    """The main findings, a sentence each."""
    settings: Mapping[str, Any]
    """The effective settings, plain values, nested by stage."""
    seed: int
    timings: Mapping[str, float]
    """Seconds by stage."""
    versions: Mapping[str, str]
    hardware: Mapping[str, Any]
    command: str
    """What makes the same study again."""
    resemblance: Resemblance | None = None
    """How like the test tasks are to tasks of held-out classes; None where it cannot be told."""
    gains: tuple[Gain, ...] = ()
    """What every rule is worth against random choice."""
    targets: tuple[Advice, ...] = ()
    """For every target and learner, what to train on."""
    notes: tuple[str, ...] = ()
    """What had to be decided or lowered to fit the data, in sentences."""
    warnings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By stage, what needs attention."""

    def __repr__(self) -> str:
        learners = ", ".join(self.accuracy)
        return (
            f"StudyResult({self.pool.name!r}: {len(self.test):,} test and {len(self.train):,} "
            f"training tasks, {learners})"
        )

    def summary(self) -> str:
        """The main findings, a paragraph each."""
        return "\n\n".join(self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The main numbers as plain values: the same for the same inputs."""
        likeness: Mapping[str, Any] | None = None
        if self.resemblance is not None:
            kept = ("answer", "summary", "median_percentile", "beyond_95", "measure", "folds")
            likeness = {k: v for k, v in self.resemblance.to_dict().items() if k in kept}
        return {
            "findings": self.findings,
            "notes": self.notes,
            "warnings": self.warnings,
            "data": {"name": self.pool.name, "fingerprint": self.pool.fingerprint},
            "health": self.model.health_.to_dict(),
            "resemblance": likeness,
            "accuracy": {name: float(a.mean()) for name, a in self.accuracy.items()},
            "diagram": None if self.diagram is None else self.diagram.to_dict(),
            "gains": [asdict(g) for g in self.gains],
            "targets": [advice.to_dict() for advice in self.targets],
            "forecasts": {name: j.to_dict() for name, j in self.judgements.items()},
        }


# -- in sentences; no effect reads as no effect -------------------------------------------------


def find(
    resemblance: Resemblance | None,
    health: Mapping[str, Any],
    diagram: CorrelationDiagram,
    gains: Sequence[Gain],
    judgements: Mapping[str, Judgement],
    targets: Sequence[Advice] = (),
) -> tuple[str, ...]:
    """The main findings: targets, likeness, distance and accuracy (with forecasts), selection."""
    second = " ".join([_explained(diagram), *_forecast(judgements)])
    others = (_likeness(resemblance, health), second, _selection(gains))
    return (_targets(targets), *others) if targets else others


def _targets(targets: Sequence[Advice]) -> str:
    """What the advice came to: how often to choose, and what that was worth where it was seen."""
    first = targets[0]
    near = ", ".join(
        f"{a.target} is nearest to {a.sources[0].name}"
        for a in targets
        if a.learner == first.learner
    )
    chosen = [a for a in targets if a.way != "random"]
    text = f"{near}. Choosing training tasks was advised in {len(chosen)} of {len(targets)} cases"
    seen = [(a, a.measured[a.way]) for a in chosen if a.way in a.measured]
    if not seen:
        return f"{text}."
    gain = np.mean([g.value for _, g in seen])
    most, best = max(seen, key=lambda pair: pair[1].value)
    least, worst = min(seen, key=lambda pair: pair[1].value)
    return (
        f"{text}, and gained {100 * gain:+.1f} points over random choice on average, measured on "
        f"their queries: from {100 * worst.value:+.1f} ({least.target}, {label_of(least.learner)}) "
        f"to {100 * best.value:+.1f} ({most.target}, {label_of(most.learner)})."
    )


def _likeness(likeness: Resemblance | None, health: Mapping[str, Any]) -> str:
    if likeness is None:
        text = "Whether the test tasks are like the training tasks cannot be told: too few tasks."
    else:
        words = {
            "alike": "Test tasks resemble the training tasks",
            "nearer": "Test tasks are nearer to the training tasks than usual",
            "somewhat farther": "Test tasks are somewhat unlike the training tasks",
            "unlike": "Test tasks are unlike the training tasks",
        }[likeness.answer]
        whose = "validation" if likeness.folds == 0 else "held-out training"
        text = (
            f"{words}: the middle one lies farther from them than "
            f"{likeness.median_percentile:.0f} % of tasks of {whose} classes do (50 % is usual), "
            f"and {100 * likeness.beyond:.0f} % lie beyond the 95th percentile (5 % is usual)."
        )
    problems = len(health["advice"]) + len(health["warnings"])
    if problems:
        text += (
            f" But the health check has {problems} remark{'s' if problems > 1 else ''} on the "
            "representation; read health.json first."
        )
    return text


def _explained(diagram: CorrelationDiagram) -> str:
    clear = [c for c in diagram.curves if c.spearman.clear]
    falling = [c for c in clear if c.spearman.value < 0]
    beyond = [c for c in falling if c.partial is not None and c.partial.clear]
    if not clear:
        text = "Distance to the training tasks does not clearly explain accuracy"
    elif len(falling) < len(clear):
        text = "Accuracy does not fall with distance to the training tasks throughout"
    elif len(falling) < len(diagram.curves):
        names = _list([c.learner for c in falling])
        text = f"Accuracy clearly falls with distance to the training tasks for {names} only"
    else:
        text = "Accuracy falls with distance to the training tasks"
    if falling and len(falling) == len(clear):
        same = [c for c in beyond if c.partial is not None and c.partial.value < 0]
        if len(same) == len(falling):
            text += ", also among tasks that are equally difficult"
        elif same:
            text += (
                f", among equally difficult tasks clearly so for {_list([c.learner for c in same])}"
            )
        else:
            text += ", but not clearly so among tasks that are equally difficult"
    return f"{text}: {'; '.join(_numbers(c) for c in diagram.curves)}."


def _numbers(curve: Curve) -> str:
    text = f"{curve.learner} Spearman {curve.spearman}"
    if curve.partial is not None:
        text += f", {curve.partial} given difficulty"
    return text if curve.ceiling is None else f"{text}, noise ceiling {curve.ceiling:.2f}"


def _forecast(judgements: Mapping[str, Judgement]) -> list[str]:
    if not judgements:
        return []
    parts = []
    for name, judged in judgements.items():
        text = f"{name} off by {100 * judged.mean_absolute_error:.1f} points on average"
        if judged.always_mean_error is not None:
            text += f" ({100 * judged.always_mean_error:.1f} if always expecting the mean)"
        covered = f"{100 * judged.coverage:.0f} % within intervals meant for"
        parts.append(f"{text}, {covered} {100 * judged.confidence:.0f} %")
    return [f"Forecasts of test accuracy from validation tasks: {'; '.join(parts)}."]


def _selection(gains: Sequence[Gain]) -> str:
    if not gains:
        return "Selection of training tasks was not looked at."
    better = [g for g in gains if g.clear and g.value > 0]
    worse = [g for g in gains if g.clear and g.value < 0]
    n = f"{len(gains)} comparisons with random choice"
    if not better and not worse:
        largest = max(gains, key=lambda g: abs(g.value))
        where = f"any of {n}" if len(gains) > 1 else "the one comparison with random choice"
        return (
            f"Choosing training tasks made no clear difference in {where}; the largest was "
            f"{_difference(largest)}."
        )
    parts = []
    if better:
        most = max(better, key=lambda g: g.value)
        parts.append(f"helped clearly in {len(better)} of {n} (most: {_difference(most)})")
    if worse:
        least = min(worse, key=lambda g: g.value)
        of = f"{len(worse)} of {n}" if not better else f"{len(worse)}"
        parts.append(f"did clear harm in {of} (most: {_difference(least)})")
    return f"Choosing training tasks {' and '.join(parts)}."


def _difference(gain: Gain) -> str:
    low, value, high = (100 * x for x in (gain.low, gain.value, gain.high))
    return (
        f"{gain.learner}, {gain.budget:,} tasks by {gain.rule}: {value:+.1f} points "
        f"[{low:+.1f}, {high:+.1f}]"
    )


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else " and ".join([", ".join(names[:-1]), names[-1]])


# -- as a picture -------------------------------------------------------------------------------


def plot_selection(trials: Sequence[SelectionTrial], path: Path) -> None:
    """Draw the trials of one learner into a PNG."""
    rules = list(dict.fromkeys(t.rule for t in trials))
    budgets = sorted({t.budget for t in trials})
    with picture(path, 5.6, 3.8, dpi=150) as figure:
        axes = figure.subplots()
        for i, rule in enumerate(rules):
            offset = (i - (len(rules) - 1) / 2) * 0.8 / len(rules)
            colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
            for place, budget in enumerate(budgets):
                values = np.array(
                    [100 * t.accuracy for t in trials if (t.rule, t.budget) == (rule, budget)]
                )
                axes.scatter(
                    np.full(len(values), place + offset), values, s=12, color=colour, alpha=0.4,
                    linewidths=0,
                )  # fmt: skip
                axes.errorbar(
                    place + offset, values.mean(),
                    yerr=values.std(ddof=1) if len(values) > 1 else 0, color=colour, marker=marker,
                    markersize=6, capsize=3, label=plain(rule) if place == 0 else None,
                )  # fmt: skip
        axes.set_xticks(range(len(budgets)), [f"{b:,}" for b in budgets])
        axes.set_xlabel("training tasks chosen")
        axes.set_ylabel("accuracy on the test tasks (%)")
        heading = f"{trials[0].learner}: mean ± standard deviation of trials"
        axes.set_title(plain(heading), loc="left")
        axes.grid(axis="y", color="0.9", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.legend(frameon=False, ncols=min(4, len(rules)))
