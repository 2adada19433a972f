"""The main findings of a study in plain words: a verdict first, then what it rests on.

A sentence has at most three numbers; the rest is in the tables of the report. No effect reads as
no effect, and nothing is called clear whose interval, as it is shown, touches zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from taskscape.diagram import CorrelationDiagram, Curve
from taskscape.forecast import ForecastEvaluation
from taskscape.meta import label_of
from taskscape.select.known import RANDOM
from taskscape.select.trials import Gain
from taskscape.similarity import Resemblance
from taskscape.similarity.retrieval import TOO_FEW, RetrievalTest
from taskscape.statistics import Interval
from taskscape.targets import Advice

_SHOWN = 2
"""Decimals with which a correlation is shown."""
_MOST = 0.5
"""With more of the test tasks unexplained, it is said beside the verdict."""
_NAMED = 3
"""Up to this many learners, and pieces of advice, are named one by one."""


@dataclass(frozen=True)
class Finding:
    """One finding: its verdict, and the sentences behind it."""

    about: str
    """The part of the report that has its numbers: targets, map, diagram, forecasts, selection."""
    verdict: str
    because: str = ""

    def __str__(self) -> str:
        return f"{self.verdict} {self.because}".strip()


def find(
    *,
    retrieval: RetrievalTest | None = None,
    resemblance: Resemblance | None = None,
    unexplained: float = 0.0,
    accuracy: Mapping[str, Interval] | None = None,
    guessing: float = 0.0,
    asked: str = "",
    diagram: CorrelationDiagram | None = None,
    evaluations: Mapping[str, ForecastEvaluation] | None = None,
    gains: Sequence[Gain] = (),
    targets: Sequence[Advice] = (),
) -> tuple[Finding, ...]:
    """The findings in the order of interest; what a study did not look at has none.

    ``unexplained`` is the share of test tasks that the model explains far worse than is usual,
    ``accuracy`` the mean of each learner over the test tasks, ``guessing`` what guessing would
    reach, and ``asked`` says what a test task is.
    """
    known = (TOO_FEW, "") if retrieval is None else (retrieval.verdict, retrieval.because)
    findings = [Finding("map", *known)]
    findings += _targets(targets)
    findings.append(_likeness(resemblance, unexplained))
    if accuracy:
        findings.append(_accuracy(accuracy, guessing, asked))
    if diagram is not None:
        findings.append(_distance(diagram))
    if evaluations:
        findings.append(_forecast(evaluations))
    if gains:
        findings.append(_selection(gains))
    return tuple(findings)


# -- what to train on ---------------------------------------------------------------------------


def _targets(targets: Sequence[Advice]) -> list[Finding]:
    """Each advice in its own words, and of many how often to choose and what that was worth."""
    if len(targets) <= _NAMED:
        said = ((a, " ".join([a.because, a.nearest, a.to_expect])) for a in targets)
        return [Finding("targets", a.verdict, because.strip()) for a, because in said]
    chosen = [a for a in targets if a.way != RANDOM]
    signs = [a.gain.sign(3) for a in chosen if a.gain is not None]
    verdict = (
        f"Choosing training tasks is advised in {len(chosen)} of {len(targets)} cases and "
        f"clearly gains in {signs.count(1) or 'none'}."
    )
    if lost := signs.count(-1):
        verdict = f"{verdict[:-1]}, loses in {lost}."
    return [Finding("targets", verdict, _seen_gains(chosen))]


def _seen_gains(chosen: Sequence[Advice]) -> str:
    seen = [(a.measured[a.way].value, a) for a in chosen if a.way in a.measured]
    if not seen:
        return ""
    mean = float(np.mean([gain for gain, _ in seen]))
    (worst, low), (best, high) = (f(seen, key=lambda pair: pair[0]) for f in (min, max))
    return (
        f"That gained {100 * mean:+.1f} points over random choice on average, measured on their "
        f"queries. The least was {100 * worst:+.1f} ({low.target}, {label_of(low.learner)}), the "
        f"most {100 * best:+.1f} ({high.target}, {label_of(high.learner)})."
    )


# -- likeness, accuracy and distance ------------------------------------------------------------


def _likeness(likeness: Resemblance | None, unexplained: float) -> Finding:
    verdict, because = "Whether the test tasks are like the training tasks cannot be told.", ""
    if likeness is not None:
        verdict, because = likeness.verdict, likeness.because
    if unexplained > _MOST:
        because += (
            f" The model explains {100 * unexplained:.0f} % of them far worse than new classes "
            "usually are: trust their distances less."
        )
    return Finding("map", verdict, because.strip())


def _accuracy(accuracy: Mapping[str, Interval], guessing: float, asked: str) -> Finding:
    means = {name: mean.value for name, mean in accuracy.items()}
    low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    guess = f"guessing would be on {100 * guessing:.1f} %"
    least = {name: m.value if np.isnan(m.low) else m.low for name, m in accuracy.items()}
    poor = [name for name in means if round(least[name], 3) <= round(guessing, 3)]
    if len(means) == 1:
        how_often = f"{low} is right on {100 * means[low]:.1f} % of the queries; {guess}."
    else:
        how_often = (
            f"Learners are right on {100 * means[low]:.1f} % ({low}) to {100 * means[high]:.1f} % "
            f"({high}) of the queries; {guess}."
        )
    if not poor:
        return Finding("diagram", how_often, asked)
    does = "does" if len(poor) == 1 else "do"
    verdict = f"{_list(poor)} {does} not clearly better than guessing."
    return Finding("diagram", verdict, f"{how_often} {asked}".strip())


def _distance(diagram: CorrelationDiagram) -> Finding:
    curves = [c for c in diagram.curves if not np.isnan(c.spearman.value)]
    if not curves:
        verdict = "Whether distance to the training tasks explains accuracy cannot be told."
        return Finding("diagram", verdict, "All test tasks are equally far, or equally accurate.")
    falling = [c for c in curves if c.spearman.sign(_SHOWN) < 0]
    rising = [c for c in curves if c.spearman.sign(_SHOWN) > 0]
    with_distance = "with distance to the training tasks"
    if not falling + rising:
        verdict = "Distance to the training tasks does not clearly explain accuracy"
    elif rising:
        parts = [f"falls for {_list([c.learner for c in falling])}"] if falling else []
        parts.append(f"rises for {_list([c.learner for c in rising])}")
        verdict = f"Accuracy does not just fall {with_distance}: it clearly {' and '.join(parts)}"
    elif len(falling) < len(curves):
        names = _list([c.learner for c in falling])
        verdict = f"Accuracy clearly falls {with_distance} for {names} only{_given(falling)}"
    else:
        verdict = f"Accuracy falls {with_distance}{_given(falling)}"
    return Finding("diagram", f"{verdict}.", _correlations(curves))


def _given(falling: Sequence[Curve]) -> str:
    """Whether that is so among equally difficult tasks; nothing where it was not looked at."""
    known = [(c.learner, c.partial) for c in falling if c.partial is not None]
    if not known:
        return ""
    same = [name for name, given in known if given.sign(_SHOWN) < 0]
    if len(same) == len(falling):
        return ", also among tasks that are equally difficult"
    if same:
        return f", among equally difficult tasks clearly so for {_list(same)}"
    return ", but not clearly so among tasks that are equally difficult"


def _correlations(curves: Sequence[Curve]) -> str:
    if len(curves) == 1:
        return f"Their rank correlation (Spearman) is {curves[0].spearman}."
    if len(curves) <= _NAMED:
        each = _list([f"{c.spearman.value:z.2f} for {c.learner}" for c in curves])
        return f"Their rank correlation (Spearman) is {each}."
    low, *_, high = sorted(curves, key=lambda c: c.spearman.value)
    return (
        f"Their rank correlation (Spearman) lies between {low.spearman.value:z.2f} ({low.learner}) "
        f"and {high.spearman.value:z.2f} ({high.learner})."
    )


# -- forecasts and selection --------------------------------------------------------------------


def _forecast(evaluations: Mapping[str, ForecastEvaluation]) -> Finding:
    good = [name for name, evaluated in evaluations.items() if evaluated.sign > 0]
    poor = [name for name in evaluations if name not in good]
    tell = "Forecasts come closer to the accuracy on a test task than the mean does"
    if not poor:
        verdict = tell
    elif good:
        verdict = f"{tell} for {_list(good)}, not clearly for {_list(poor)}"
    else:
        verdict = "No clear gain from forecasts: expecting the mean accuracy may be as good"
    narrow = [name for name in good if evaluations[name].too_narrow]
    if narrow:
        of = "" if narrow == list(evaluations) else f" for {_list(narrow)}"
        verdict += f", but their intervals are too narrow{of}"
    return Finding("forecasts", f"{verdict}.", _errors(evaluations))


def _errors(evaluations: Mapping[str, ForecastEvaluation]) -> str:
    if len(evaluations) <= _NAMED:
        return " ".join(_error(name, evaluated) for name, evaluated in evaluations.items())
    low, *_, high = sorted(evaluations, key=lambda name: evaluations[name].mean_absolute_error)
    least, most = (100 * evaluations[name].mean_absolute_error for name in (low, high))
    return f"They are off by {least:.1f} ({low}) to {most:.1f} points ({high}) on average."


def _error(name: str, evaluated: ForecastEvaluation) -> str:
    text = f"{name}: off by {100 * evaluated.mean_absolute_error:.1f} points on average"
    if evaluated.always_mean_error is not None:
        text += f", always expecting the mean by {100 * evaluated.always_mean_error:.1f}"
    nominal, held = 100 * evaluated.confidence, 100 * evaluated.coverage
    return f"{text}. Its {nominal:.0f} % intervals held {held:.0f} % of the tasks."


def _selection(gains: Sequence[Gain]) -> Finding:
    better = [g for g in gains if g.sign > 0]
    worse = [g for g in gains if g.sign < 0]
    compared = f"comparison{'s' if len(gains) > 1 else ''} with random choice"
    if not better and not worse:
        largest = max(gains, key=lambda g: abs(g.value))
        where = "The one" if len(gains) == 1 else f"The largest difference in {len(gains)}"
        size = f"{where} {compared} was {100 * largest.value:+.1f} points ({_of(largest)})."
        verdict = "Choosing training tasks for all test tasks together made no clear difference."
        return Finding("selection", verdict, size)
    parts, because = [], []
    for clear, did, said in ((better, "helped", "gained"), (worse, "did harm", "lost")):
        if clear:
            most = max(clear, key=lambda g: abs(g.value))
            parts.append(f"{did} in {len(clear)}")
            because.append(f"The most it {said} was {100 * most.value:+.1f} points ({_of(most)}).")
    does = " and ".join(parts)
    done = f"clearly {does} of {len(gains)} {compared}"
    verdict = f"Choosing training tasks for all test tasks together {done}."
    return Finding("selection", verdict, " ".join(because))


def _of(gain: Gain) -> str:
    return f"{gain.learner}, {gain.budget:,} tasks by {gain.rule}"


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else " and ".join([", ".join(names[:-1]), names[-1]])
