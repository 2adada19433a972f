"""The settings of a whole study, by stage, with three presets."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from taskscape.errors import DataError
from taskscape.meta import LEARNERS
from taskscape.storage import plain

__all__ = [
    "PRESETS",
    "EvaluateSettings",
    "FitSettings",
    "ForecastSettings",
    "LearnerSettings",
    "ReportSettings",
    "SelectionSettings",
    "StudyConfig",
    "TaskSettings",
    "preset",
]

Number: TypeAlias = int | float | str | bool


@dataclass(frozen=True)
class TaskSettings:
    """The tasks that are embedded and compared."""

    n_way: int = 5
    """Classes of a task."""
    n_shot: int = 16
    """Most samples of each class that a task is embedded by; 0 means all."""
    n_train: int = 20_000
    n_val: int = 500
    n_test: int = 500
    val_share: float = 0.2
    """Part of the (training) classes held out for validation, where the data name none."""
    test_share: float = 0.2
    """Part of the classes kept for testing, where the data name none."""


@dataclass(frozen=True)
class FitSettings:
    """The model of task-themes; see :class:`taskscape.TaskThemes`."""

    n_tasks: int = 8000
    n_way: tuple[int, int] = (5, 10)
    n_shot: int = 16
    """Most samples of each class."""
    task_themes: int = 4
    image_themes: int = 8
    delta: float = 0.5
    covariance: str = "full"
    prepare: str = "auto"
    """``auto``, ``none``, or steps such as ``power=0.5,l2,centre,pca=32``."""
    max_passes: int = 3
    restarts: int = 1
    ensemble: int = 1


@dataclass(frozen=True)
class LearnerSettings:
    """The meta-learners, and how they are trained on random training tasks."""

    names: tuple[str, ...] = ("protonet", "maml")
    network: str = "mlp"
    """``mlp`` on prepared features, or ``conv4`` on images."""
    widths: tuple[int, ...] = (64,)
    """Hidden layers of ``mlp``."""
    filters: int = 64
    """Filters of ``conv4``."""
    train_tasks: int = 20_000
    """At most as many as there are training tasks."""
    epochs: int = 1
    batch_size: int = 8
    settings: Mapping[str, Mapping[str, Number]] = field(
        default_factory=lambda: {name: entry.settings for name, entry in LEARNERS.items()}
    )
    """By learner: its own settings, those of the training, and ``scale`` of the features."""


@dataclass(frozen=True)
class EvaluateSettings:
    """How accuracy is measured and set against distance."""

    n_shot: int = 1
    """Labelled samples of each class that learners adapt to, in training and testing."""
    n_query: int = 15
    """Most queries of each class."""
    episodes: int = 10
    """Draws of samples that the accuracy of a task is averaged over."""
    k: int = 10
    """How many nearest training tasks to keep of each test task."""
    bins: str = "paper"
    n_bins: int = 10
    confidence: float = 0.95


@dataclass(frozen=True)
class SelectionSettings:
    """Training on few tasks, chosen by rules, against as many chosen at random."""

    rules: tuple[str, ...] = ("nearest", "coverage", "task2vec")
    """A rule alone goes by the study's similarity; ``rule:similarity`` by that one, and a notion of
    similarity alone means its nearest."""
    budgets: tuple[int, ...] = (50, 500)
    """How many tasks are chosen."""
    candidates: int = 4000
    """The training tasks to choose from, at most as many as there are."""
    trials: int = 8
    """Random choices."""
    repeats: int = 4
    """Trainings on what every other rule chose, from different starts."""
    n_shot: int = 5
    n_query: int = 15
    updates: int = 500
    """Updates of every training, whatever the budget: small budgets are seen more often."""
    episodes: int = 2
    probe_updates: int = 1000
    """Updates of the network that Task2Vec looks through."""


@dataclass(frozen=True)
class ForecastSettings:
    """Expected accuracies of the test tasks, learned from the validation tasks."""

    enabled: bool = True
    confidence: float = 0.9


@dataclass(frozen=True)
class ReportSettings:
    """The HTML report."""

    enabled: bool = True


@dataclass(frozen=True)
class StudyConfig:
    """All settings of a study; ``preset("quick")`` and others give good ones to start from."""

    preset: str = "default"
    data: str = "glyphs"
    """What to open: a known name or a path. A pool given as an object goes before it."""
    seed: int = 0
    similarity: str = "task_themes"
    """How far tasks are from each other: one of :data:`taskscape.similarity.SIMILARITIES`."""
    tasks: TaskSettings = field(default_factory=TaskSettings)
    fit: FitSettings = field(default_factory=FitSettings)
    learners: LearnerSettings = field(default_factory=LearnerSettings)
    evaluate: EvaluateSettings = field(default_factory=EvaluateSettings)
    selection: SelectionSettings = field(default_factory=SelectionSettings)
    forecast: ForecastSettings = field(default_factory=ForecastSettings)
    report: ReportSettings = field(default_factory=ReportSettings)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, nested by stage; tuples become lists."""
        settings: dict[str, Any] = plain(asdict(self))
        return settings


_DEFAULT = StudyConfig()
_QUICK = StudyConfig(
    preset="quick",
    tasks=TaskSettings(n_train=4000, n_val=200, n_test=200),
    fit=FitSettings(n_tasks=2000, max_passes=2),
    learners=LearnerSettings(names=("protonet",), train_tasks=4000),
    evaluate=EvaluateSettings(episodes=6),
    selection=SelectionSettings(
        rules=("nearest", "coverage"),
        budgets=(50,),
        candidates=1000,
        trials=4,
        repeats=2,
        updates=100,
    ),
)
_PAPER = StudyConfig(
    preset="paper",
    tasks=TaskSettings(n_shot=0, n_train=1_000_000, n_val=10_000, n_test=20_000),
    fit=FitSettings(n_tasks=100_000, max_passes=10, restarts=3),
    learners=LearnerSettings(
        names=("protonet", "maml", "abml", "bmaml", "vampire"),
        widths=(128,),
        train_tasks=100_000,
        batch_size=4,
    ),
    evaluate=EvaluateSettings(episodes=20),
    selection=SelectionSettings(
        budgets=(100, 500, 1000, 2000, 5000, 10_000),
        candidates=100_000,
        trials=50,
        repeats=10,
        updates=2500,
        episodes=1,
        probe_updates=2000,
    ),
)
PRESETS: Mapping[str, StudyConfig] = MappingProxyType(
    {"quick": _QUICK, "default": _DEFAULT, "paper": _PAPER}
)
"""``quick`` for a look, ``default`` for a laptop, ``paper`` for the paper's sizes on a GPU."""


def preset(name: str, **changes: Any) -> StudyConfig:
    """A preset by name, with some of the top-level values changed.

    >>> preset("quick", seed=3).tasks.n_test
    200
    """
    if name not in PRESETS:
        raise DataError(f"preset={name!r} is not known; choose from {', '.join(PRESETS)}.")
    return replace(PRESETS[name], **changes)
