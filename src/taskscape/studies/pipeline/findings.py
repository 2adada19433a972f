"""What came out, in three sentences or so, with the numbers; no effect reads as no effect."""

from collections.abc import Mapping, Sequence
from typing import Any

from taskscape.compare import Resemblance
from taskscape.diagram import CorrelationDiagram, Curve
from taskscape.forecast import Judgement
from taskscape.statistics import Interval
from taskscape.studies.outcome import Gain

__all__ = ["find"]


def find(
    resemblance: Resemblance | None,
    health: Mapping[str, Any],
    diagram: CorrelationDiagram,
    gains: Sequence[Gain],
    judgements: Mapping[str, Judgement],
) -> tuple[str, ...]:
    """The main findings: likeness, distance and accuracy (with forecasts), selection."""
    second = " ".join([_explained(diagram), *_forecast(judgements)])
    return (_likeness(resemblance, health), second, _selection(gains))


def _likeness(found: Resemblance | None, health: Mapping[str, Any]) -> str:
    if found is None:
        text = "Whether the test tasks are like the training tasks cannot be told: too few tasks."
    else:
        words = {
            "alike": "Test tasks resemble the training tasks",
            "nearer": "Test tasks are nearer to the training tasks than usual",
            "somewhat farther": "Test tasks are somewhat unlike the training tasks",
            "unlike": "Test tasks are unlike the training tasks",
        }[found.answer]
        whose = "validation" if found.folds == 0 else "held-out training"
        text = (
            f"{words}: the middle one lies farther from them than {found.median_percentile:.0f} % "
            f"of tasks of {whose} classes do (50 % is usual), and {100 * found.beyond:.0f} % lie "
            "beyond the 95th percentile (5 % is usual)."
        )
    problems = len(health["advice"]) + len(health["warnings"])
    if problems:
        text += (
            f" But the health check has {problems} remark{'s' if problems > 1 else ''} on the "
            "representation; read health.json first."
        )
    return text


def _explained(diagram: CorrelationDiagram) -> str:
    clear = [c for c in diagram.curves if _clear(c.spearman)]
    falling = [c for c in clear if c.spearman.value < 0]
    beyond = [c for c in falling if c.partial is not None and _clear(c.partial)]
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


def _clear(interval: Interval) -> bool:
    return interval.low > 0 or interval.high < 0


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
