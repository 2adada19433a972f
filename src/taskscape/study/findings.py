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


@dataclass(frozen=True)
class Reached:
    """The accuracies that learners reached on the test tasks, and what guessing would."""

    accuracy: Mapping[str, Interval]
    """By learner, the mean over the tasks, with its interval over classes."""
    guessing: float
    way: str = ""
    """How many classes a task has, in words such as ``5`` or ``2 to 4``."""
    shot: int | None = None
    """Labelled samples of each class; None where it is not known."""

    def asked(self) -> str:
        """What a test task is, in a sentence; empty where it is not known."""
        if not self.way:
            return ""
        samples = f", with {self.shot} labelled sample{'' if self.shot == 1 else 's'} of each"
        known = "" if self.shot is None else samples
        return f"A test task has {self.way} classes that were not trained on{known}."

    def above_guessing(self, learner: str) -> bool:
        """Whether a learner clearly does better than guessing."""
        reached = self.accuracy[learner]
        least = reached.value if np.isnan(reached.low) else reached.low
        return round(least, 3) > round(self.guessing, 3)


def find(
    *,
    retrieval: RetrievalTest | None = None,
    resemblance: Resemblance | None = None,
    unexplained: float = 0.0,
    reached: Reached | None = None,
    diagram: CorrelationDiagram | None = None,
    evaluations: Mapping[str, ForecastEvaluation] | None = None,
    gains: Sequence[Gain] = (),
    targets: Sequence[Advice] = (),
) -> tuple[Finding, ...]:
    """The findings in the order of interest; what a study did not look at has none.

    ``unexplained`` is the share of test tasks that the model explains far worse than is usual.
    """
    known = (TOO_FEW, "") if retrieval is None else (retrieval.verdict, retrieval.because)
    findings = [Finding("map", *known)]
    findings += _targets(targets)
    findings.append(_likeness(resemblance, unexplained))
    if reached is not None and reached.accuracy:
        findings.append(_accuracy(reached))
    if diagram is not None:
        findings.append(_distance(diagram))
    if evaluations:
        findings.append(_forecast(evaluations))
    if gains:
        findings.append(_selection(gains))
    return tuple(findings)


# -- whether distances measure --------------------------------------------------------------------


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
    because = " ".join([*_seen_gains(chosen), *_sources(chosen)])
    return [Finding("targets", verdict, because)]


def _seen_gains(chosen: Sequence[Advice]) -> list[str]:
    seen = [(a, a.measured_gains[a.way]) for a in chosen if a.way in a.measured_gains]
    if not seen:
        return []
    mean = float(np.mean([gain.value for _, gain in seen]))
    (worst, least), (best, most) = (f(seen, key=lambda pair: pair[1].value) for f in (min, max))
    return [
        f"That gained {100 * mean:+.1f} points over random choice on average, measured on their "
        "queries.",
        f"The least was {100 * least.value:+.1f} ({worst.target}, {label_of(worst.learner)}), the "
        f"most {100 * most.value:+.1f} ({best.target}, {label_of(best.learner)}).",
    ]


def _sources(chosen: Sequence[Advice]) -> list[str]:
    """Where most of the chosen tasks come from, or at least the largest part."""
    largest = [(a, a.chosen_from[0]) for a in chosen if a.chosen_from]
    if not largest:
        return []
    by_target = dict.fromkeys((advice.target, source.name) for advice, source in largest)
    each = _list([f"{source} for {target}" for target, source in by_target])
    where = each if len(by_target) > 1 else largest[0][1].name
    if all(2 * source.chosen > sum(s.chosen for s in a.sources) for a, source in largest):
        return [f"Most of the tasks to train on come from {where}."]
    return [f"The largest part of the tasks to train on comes from {where}."]


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


def _accuracy(reached: Reached) -> Finding:
    means = {name: mean.value for name, mean in reached.accuracy.items()}
    low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    guessing = f"guessing would be on {100 * reached.guessing:.1f} %"
    poor = [name for name in means if not reached.above_guessing(name)]
    if len(means) == 1:
        how_often = f"{low} is right on {100 * means[low]:.1f} % of the queries; {guessing}."
    else:
        how_often = (
            f"Learners are right on {100 * means[low]:.1f} % ({low}) to {100 * means[high]:.1f} % "
            f"({high}) of the queries; {guessing}."
        )
    if not poor:
        return Finding("diagram", how_often, reached.asked())
    does = "does" if len(poor) == 1 else "do"
    verdict = f"{_list(poor)} {does} not clearly better than guessing."
    return Finding("diagram", verdict, f"{how_often} {reached.asked()}".strip())


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
    nominal, held = 100 * evaluated.confidence, 100 * evaluated.coverage
    return (
        f"{name}: off by {100 * evaluated.mean_absolute_error:.1f} points on average, always "
        f"expecting the mean by {100 * evaluated.always_mean_error:.1f}. Its {nominal:.0f} % "
        f"intervals held {held:.0f} % of the tasks."
    )


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
