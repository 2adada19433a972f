"""What a study came to: numbers and sentences; what the report and the folder show.

A finding has a verdict first, then what it rests on. A sentence has at most three numbers; the rest
is in the tables of the report. No effect reads as no effect, and nothing is called clear whose
interval, as it is shown, touches zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.diagram import CorrelationDiagram, Curve
from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.forecast import ForecastEvaluation, Forecasts
from taskscape.meta import label_of
from taskscape.notebook import ShownInNotebooks
from taskscape.plain_text import low_to_high
from taskscape.pools import ClassPool
from taskscape.select.known import RANDOM
from taskscape.select.trials import Gain, Trial
from taskscape.similarity import DEFAULT_SIMILARITY, Resemblance, RetrievalTest
from taskscape.similarity.retrieval import TOO_FEW
from taskscape.statistics import Interval, class_interval
from taskscape.targets import Advice
from taskscape.themes.estimator import TaskThemes

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


@dataclass(frozen=True, eq=False, repr=False)
class StudyResult(ShownInNotebooks):
    """What :func:`taskscape.study.run_study` returns, and ``load_study`` reads back."""

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
    selection: tuple[Trial, ...]
    forecasts: Mapping[str, Forecasts]
    """By learner, for the test tasks."""
    evaluations: Mapping[str, ForecastEvaluation]
    settings: Mapping[str, Any]
    """The effective settings, plain values, nested by stage."""
    seed: int
    timings: Mapping[str, float]
    """Seconds by stage."""
    versions: Mapping[str, str]
    hardware: Mapping[str, Any]
    command: str
    """What makes the same study again."""
    nearest_by_classes: Float[np.ndarray, "tests k"] | None = None
    """How alike each of the nearest is class by class, which settled ties; None: nothing did."""
    ties: Int[np.ndarray, "tests"] | None = None
    """How many training tasks are equally near as the nearest; None where they were not counted."""
    retrieval: RetrievalTest | None = None
    """Whether tasks of one group find each other; None where that cannot be told."""
    resemblance: Resemblance | None = None
    """Whether the test tasks are like the training tasks, with validation tasks beside."""
    gains: tuple[Gain, ...] = ()
    """What every rule is worth against random choice."""
    targets: tuple[Advice, ...] = ()
    """For every target and learner, what to train on."""
    notes: tuple[str, ...] = ()
    """What had to be decided or lowered to fit the data, in sentences."""
    warnings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By stage, what needs attention."""

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The main findings in words; always those of the numbers above."""
        means = {name: mean_accuracy(a, self.test.classes) for name, a in self.accuracy.items()}
        return find(
            retrieval=self.retrieval,
            resemblance=self.resemblance,
            unexplained=self._unexplained(),
            accuracy={name: mean for name, mean in means.items() if np.isfinite(mean.value)},
            guessing=self.guessing,
            asked=self._test_task(),
            diagram=self.diagram,
            evaluations=self.evaluations,
            gains=self.gains,
            targets=self.targets,
        )

    def _unexplained(self) -> float:
        """Share of test tasks whose distances say nothing, since the model knows nothing alike."""
        if self.settings.get("similarity", DEFAULT_SIMILARITY) != DEFAULT_SIMILARITY:
            return 0.0
        return float(self.model.outliers(self.test).mean())

    def remarks(self, *stages: str) -> tuple[str, ...]:
        """What needs attention, each said once: in some stages, or without a name in all."""
        said = [self.warnings.get(stage, ()) for stage in stages or self.warnings]
        return tuple(dict.fromkeys(chain.from_iterable(said)))

    def has_forecast(self, learner: str) -> bool:
        """Whether forecasts for a learner tell more than its mean accuracy."""
        return learner in self.evaluations and self.evaluations[learner].beats_mean

    def asked(self, section: str) -> str:
        """What learners were asked in a section of the settings, such as ``5-way 1-shot``."""
        return ways_and_shots(self.test.classes, self.shot(section))

    @property
    def guessing(self) -> float:
        """The accuracy of guessing on the test tasks."""
        return float((1 / (self.test.classes >= 0).sum(axis=1)).mean())

    def shot(self, section: str) -> int | None:
        """The labelled samples of each class in a section of the settings, if it says so."""
        part = self.settings.get(section)
        return part.get("n_shot") if isinstance(part, Mapping) else None

    def _test_task(self) -> str:
        """What a test task is, in a sentence."""
        shot = self.shot("evaluate")
        samples = f", with {shot} labelled sample{'' if shot == 1 else 's'} of each"
        known = "" if shot is None else samples
        return (
            f"A test task has {_ways(self.test.classes)} classes that were not trained on{known}."
        )

    def __repr__(self) -> str:
        learners = ", ".join(self.accuracy)
        return (
            f"StudyResult({self.pool.name!r}: {len(self.test):,} test and {len(self.train):,} "
            f"training tasks, {learners})"
        )

    def summary(self) -> str:
        """The main findings, a paragraph each."""
        return "\n\n".join(map(str, self.findings))

    def to_dict(self) -> dict[str, Any]:
        """The main numbers as plain values: the same for the same inputs."""
        return {
            "findings": [asdict(finding) for finding in self.findings],
            "notes": self.notes,
            "remarks": self.remarks(),
            "warnings": self.warnings,
            "data": {"name": self.pool.name, "fingerprint": self.pool.fingerprint},
            "retrieval": None if self.retrieval is None else self.retrieval.to_dict(),
            "resemblance": None if self.resemblance is None else self.resemblance.to_dict(),
            "accuracy": {name: float(a.mean()) for name, a in self.accuracy.items()},
            "diagram": None if self.diagram is None else self.diagram.to_dict(),
            "gains": [asdict(g) for g in self.gains],
            "targets": [advice.to_dict() for advice in self.targets],
            "forecasts": {name: j.to_dict() for name, j in self.evaluations.items()},
        }


def ways_and_shots(classes: Int[np.ndarray, "tasks way"], shot: int | None) -> str:
    """What a learner is asked, such as ``5-way 1-shot``, from class ids padded with -1."""
    way = f"{_ways(classes)}-way".replace(" to ", "- to ")
    return way if shot is None else f"{way} {shot}-shot"


def _ways(classes: Int[np.ndarray, "tasks way"]) -> str:
    return low_to_high((classes >= 0).sum(axis=1).tolist())


def mean_accuracy(
    accuracy: Float[np.ndarray, "tests episodes"], classes: Int[np.ndarray, "tests way"]
) -> Interval:
    """The mean over the tasks that were evaluated, and its interval by leaving out classes."""
    known = np.isfinite(accuracy).all(axis=1)
    if not known.any():
        return Interval(np.nan)
    values = accuracy[known].mean(axis=1).astype(np.float64)
    try:
        return class_interval(values, classes[known]).within(0.0, 1.0)
    except DataError:  # every task has one class in common, say
        return Interval(float(values.mean()))


# -- findings ------------------------------------------------------------------------------------


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
    seen = [(a.measured_gains[a.way].value, a) for a in chosen if a.way in a.measured_gains]
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
    least = {name: m.value if np.isnan(m.low) else m.low for name, m in accuracy.items()}
    poor = [name for name in means if round(least[name], 3) <= round(guessing, 3)]
    reached = f"{low} is right on {100 * means[low]:.1f} %"
    if len(means) > 1:
        most = f"{100 * means[high]:.1f} % ({high})"
        reached = f"Learners are right on {100 * means[low]:.1f} % ({low}) to {most}"
    how_often = f"{reached} of the queries; guessing would be on {100 * guessing:.1f} %."
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
    falling, rising = ([c for c in curves if c.spearman.sign(_SHOWN) == s] for s in (-1, 1))
    falls, rises = (_list([c.learner for c in part]) for part in (falling, rising))
    with_distance = "with distance to the training tasks"
    if rising:
        both = f"falls for {falls} and " if falling else ""
        does = f"it clearly {both}rises for {rises}"
        verdict = f"Accuracy does not just fall {with_distance}: {does}"
    elif not falling:
        verdict = "Distance to the training tasks does not clearly explain accuracy"
    elif len(falling) < len(curves):
        verdict = f"Accuracy clearly falls {with_distance} for {falls} only{_given(falling)}"
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
    each = _list([f"{c.spearman.value:z.2f} for {c.learner}" for c in curves])
    if len(curves) == 1:
        each = str(curves[0].spearman)
    elif len(curves) > _NAMED:
        low, *_, high = sorted(curves, key=lambda c: c.spearman.value)
        each = f"from {low.spearman.value:z.2f} ({low.learner}) to "
        each += f"{high.spearman.value:z.2f} ({high.learner})"
    return f"Their rank correlation (Spearman) is {each}."


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
    if len(evaluations) > _NAMED:
        off = {name: 100 * e.mean_absolute_error for name, e in evaluations.items()}
        low, high = min(off, key=off.__getitem__), max(off, key=off.__getitem__)
        return (
            f"They are off by {off[low]:.1f} ({low}) to {off[high]:.1f} points ({high}) on average."
        )
    each = []
    for name, e in evaluations.items():
        each.append(
            f"{name}: off by {100 * e.mean_absolute_error:.1f} points on average, always expecting "
            f"the mean by {100 * e.always_mean_error:.1f}. Its {100 * e.confidence:.0f} % "
            f"intervals held {100 * e.coverage:.0f} % of the tasks."
        )
    return " ".join(each)


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
    done = f"clearly {' and '.join(parts)} of {len(gains)} {compared}"
    verdict = f"Choosing training tasks for all test tasks together {done}."
    return Finding("selection", verdict, " ".join(because))


def _of(gain: Gain) -> str:
    return f"{gain.learner}, {gain.budget:,} tasks by {gain.rule}"


def _list(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if names[1:] else "".join(names)
