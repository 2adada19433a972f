"""What a study came to: numbers and sentences; what the report and the folder show."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from taskscape.diagram import CorrelationDiagram
from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.forecast import ForecastEvaluation, Forecasts
from taskscape.notebook import ShownInNotebooks
from taskscape.plain_text import low_to_high
from taskscape.pools import ClassPool
from taskscape.select.trials import Gain, Trial
from taskscape.similarity import DEFAULT_SIMILARITY, Resemblance, RetrievalTest
from taskscape.statistics import Interval, class_interval
from taskscape.study.findings import Finding, find
from taskscape.targets import Advice
from taskscape.themes.estimator import TaskThemes


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
