"""The settings of a whole study, by stage, with three presets; from and to TOML.

A new setting is a field: checks, ``--set``, TOML, the table in the docs and the hashes of the
stages that depend on its section are made from it; with a ``flag`` it is an option of
`taskscape run`.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from taskscape.errors import DataError
from taskscape.io.files import (
    NO_CHECKSUM_YET,
    add_checksum,
    as_path,
    atomic_write,
    is_as_written,
)
from taskscape.meta.learners import LEARNERS
from taskscape.settings import changed, like, setting
from taskscape.similarity.known import DEFAULT_SIMILARITY
from taskscape.targets.known import AdvisorSettings
from taskscape.themes.config import FitConfig

if TYPE_CHECKING:
    import taskscape.meta

Number: TypeAlias = int | float | str | bool
_SIGNED = "# Written by taskscape, which never replaces this file once it is edited; "
_MOST_WIDE = 65_536
LEAST_TEST_TASKS = 10


@dataclass(frozen=True)
class SourceSettings:
    """How the data are opened; see :func:`taskscape.load_pool`."""

    image_size: int = setting(0, "pixels to bring pictures to; 0: as they are", at_least=0)
    min_samples: int = setting(0, "classes with fewer samples are left out; 0: none", at_least=0)
    skip_damaged: bool = setting(False, "leave out what cannot be read, instead of an error")
    split_file: str = setting("", "a CSV with the columns class and split: train, val or test")
    group_file: str = setting("", "a CSV with the columns class and group")
    encoder: str = setting("", "what makes features of the samples: `my_network:encode`, say")

    def options(self) -> dict[str, Any]:
        """What is asked of :func:`~taskscape.load_pool`."""
        asked = asdict(self)
        asked["splits"], asked["groups"] = asked.pop("split_file"), asked.pop("group_file")
        return {name: value for name, value in asked.items() if value}


@dataclass(frozen=True)
class TaskSettings:
    """The tasks that are embedded and compared."""

    n_way: int = setting(5, "classes of a task", at_least=2, flag="--n-way")
    n_shot: int = setting(16, "most samples of a class that embed a task; 0: all", at_least=0)
    n_train: int = setting(20_000, "different training tasks, at most", at_least=20)
    n_val: int = setting(500, "validation tasks, at most", at_least=1)
    n_test: int = setting(500, "test tasks, at most", at_least=LEAST_TEST_TASKS)
    val_share: float = setting(
        0.2, "part of the training classes to validate by, where none are", at_least=0, at_most=0.8
    )
    test_share: float = setting(
        0.2, "part of the classes to test by, where none are", at_least=0, at_most=0.8
    )
    within_group: bool = setting(False, "all classes of a task from one group")


@dataclass(frozen=True)
class FitSettings:
    """The model: :class:`taskscape.TaskThemes`, with the paper's co-clustering beside it.

    All but ``prepare`` and ``choose_settings`` is about the co-clustering, which shows kinds of
    classes.
    """

    n_tasks: int = setting(8000, "tasks that the co-clustering learns from", at_least=20)
    n_way: tuple[int, int] = setting((5, 10), "classes of these tasks, from and to", at_least=2)
    n_shot: int = setting(16, "most samples of each of their classes", at_least=1)
    task_themes: int = like(FitConfig, "task_themes")
    image_themes: int = like(FitConfig, "image_themes")
    delta: float = like(FitConfig, "delta")
    prepare: str = setting("auto", "`none`, or some of `edges=5,power=0.5,l2,centre,pca=32`")
    choose_settings: bool = setting(False, "look for better settings of the distance")
    max_passes: int = like(FitConfig, "max_passes", default=3)
    restarts: int = setting(1, "fits from different starts", at_least=1)
    ensemble: int = setting(1, "fits to keep, the best of at least as many restarts", at_least=1)

    def model(self, seed: int) -> "taskscape.TaskThemes":
        """The model that these settings ask for, not yet fitted."""
        from taskscape.themes.estimator import TaskThemes
        from taskscape.themes.prepare import parse_prepare

        prepare: Any = parse_prepare(self.prepare, "fit.prepare=")
        paper = TaskThemes.paper(
            self.task_themes, self.image_themes, delta=self.delta,
            prepare=prepare, max_passes=self.max_passes, n_restarts=self.restarts,
            ensemble=self.ensemble, random_state=seed,
        )  # fmt: skip
        return TaskThemes(prepare=prepare, co_clustering=paper, random_state=seed)


@dataclass(frozen=True)
class LearnerSettings:
    """The meta-learners, and how they are trained on random training tasks."""

    names: tuple[str, ...] = setting(
        ("protonet", "maml"), f"learners, joined by commas: {', '.join(LEARNERS)}",
        flag="--learners",
    )  # fmt: skip
    network: str = setting("mlp", "`mlp` on prepared features, `conv4` on images")
    widths: tuple[int, ...] = setting((64,), "layers of `mlp`", at_least=1, at_most=_MOST_WIDE)
    filters: int = setting(64, "filters of `conv4`", at_least=1, at_most=_MOST_WIDE)
    train_tasks: int = setting(20_000, "training tasks that learners see, at most all", at_least=1)
    epochs: int = setting(1, "how often they see them", at_least=1)
    batch_size: int = setting(8, "tasks in an update", at_least=1)
    settings: Mapping[str, Mapping[str, Number]] = setting(
        dict, "by learner: its own, those of its training, and `scale` of the features"
    )

    def learner(self, name: str) -> tuple["taskscape.meta.Learner", dict[str, Any]]:
        """A learner, and the settings of its training besides."""
        from taskscape.meta import learner_and_training

        return learner_and_training(name, self.settings.get(name, {}), f"learners.settings.{name}.")

    def network_for(self, name: str, pool: "taskscape.ClassPool") -> "taskscape.meta.Architecture":
        """The network of a learner, for the samples of a pool."""
        from taskscape.meta import network_for

        own = self.settings.get(name, {})
        return network_for(pool, own, self.network, widths=self.widths, filters=self.filters)


@dataclass(frozen=True)
class EvaluateSettings:
    """How the accuracy of learners is measured."""

    n_shot: int = setting(1, "labelled samples of a class", at_least=1, flag="--n-shot")
    n_query: int = setting(15, "most queries of each class", at_least=1)
    episodes: int = setting(10, "draws of samples that accuracy is averaged over", at_least=1)


@dataclass(frozen=True)
class DistanceSettings:
    """How distances are measured, besides ``similarity``."""

    k: int = setting(10, "nearest training tasks to keep for each test task", at_least=1)
    probe_updates: int = setting(1000, "of the network Task2Vec looks through", at_least=1)


@dataclass(frozen=True)
class DiagramSettings:
    """How accuracy is set against distance."""

    bins: Literal["paper", "quantile"] = setting("paper", "`paper` (equal width) or `quantile`")
    n_bins: int = setting(10, "bins of the diagram", at_least=1)
    confidence: float = setting(0.95, "of the diagram's intervals", at_least=0.5, below=1)


@dataclass(frozen=True)
class SelectionSettings:
    """Training on few tasks, chosen by rules, against as many chosen at random."""

    rules: tuple[str, ...] = setting(
        ("nearest", "coverage"),
        "by the study's similarity; `rule:similarity` by another; a similarity: its nearest",
    )
    budgets: tuple[int, ...] = setting((100,), "how many training tasks are chosen", at_least=1)
    candidates: int = setting(4000, "training tasks to choose from, at most all", at_least=2)
    trials: int = setting(6, "random choices", at_least=2)
    repeats: int = setting(3, "trainings on what another rule chose, other starts", at_least=1)
    n_shot: int = setting(5, "labelled samples of each class", at_least=1, flag="--n-shot")
    n_query: int = setting(15, "most queries of each class", at_least=1)
    updates: int = setting(500, "of every training, whatever the budget", at_least=1)
    episodes: int = setting(2, "draws of samples that accuracy is averaged over", at_least=1)


@dataclass(frozen=True)
class TargetSettings:
    """What to train on for targets; see :func:`taskscape.advise`."""

    names: tuple[str, ...] = setting(
        (),
        "say what to train on for this: a group of the data, or a folder of your own with a few "
        "labelled samples a class; may be repeated",
        flag="--target",
    )
    learners: tuple[str, ...] = setting(("protonet",), "which to train for them")
    budget: int = setting(100, "how many tasks are chosen for each", at_least=1)
    candidates: int = like(AdvisorSettings, "candidates")
    n_shot: int = like(AdvisorSettings, "n_shot", flag="--n-shot")
    n_query: int = like(AdvisorSettings, "n_query")
    trials: int = setting(3, "trainings of each way to choose", at_least=2)
    updates: int = like(AdvisorSettings, "updates")
    fingerprints: tuple[str, ...] = setting((), "of opened targets; written, not asked for")
    kept_out: tuple[str, ...] = setting((), "their training classes; written, not asked for")


@dataclass(frozen=True)
class ForecastSettings:
    """Expected accuracies of the test tasks, learned from the validation tasks."""

    enabled: bool = setting(True, "whether to forecast")
    confidence: float = setting(0.9, "share of tasks within an interval", at_least=0.5, below=1)
    n_shot: int = setting(0, "samples a class is known by; 0: `tasks.n_shot`", at_least=0)


@dataclass(frozen=True)
class StudyConfig:
    """All settings of a study; ``preset("quick")`` and others give good ones to start from."""

    preset: str = setting("default", "where the other values start from")
    data: str = setting("letters", "a known name or a path; may be repeated", flag="--data")
    seed: int = setting(
        0, "the same seed gives the same result", at_least=0, at_most=2**30 - 1, flag="--seed"
    )
    similarity: str = setting(
        DEFAULT_SIMILARITY,
        "how far tasks are from each other: one of `SIMILARITIES`, or by another divergence, as in "
        "`themes:jeffreys`",
        flag="--similarity",
    )
    source: SourceSettings = field(default_factory=SourceSettings)
    tasks: TaskSettings = field(default_factory=TaskSettings)
    fit: FitSettings = field(default_factory=FitSettings)
    distances: DistanceSettings = field(default_factory=DistanceSettings)
    learners: LearnerSettings = field(default_factory=LearnerSettings)
    evaluate: EvaluateSettings = field(default_factory=EvaluateSettings)
    diagram: DiagramSettings = field(default_factory=DiagramSettings)
    selection: SelectionSettings = field(default_factory=SelectionSettings)
    targets: TargetSettings = field(default_factory=TargetSettings)
    forecast: ForecastSettings = field(default_factory=ForecastSettings)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, nested by stage; tuples become lists."""
        from taskscape.io.values import plain

        settings: dict[str, Any] = plain(asdict(self))
        return settings


_DEFAULT = StudyConfig()
_QUICK = StudyConfig(
    preset="quick",
    tasks=TaskSettings(n_train=4000, n_val=200, n_test=200),
    fit=FitSettings(n_tasks=2000, max_passes=2),
    learners=LearnerSettings(names=("protonet",), train_tasks=4000),
    evaluate=EvaluateSettings(episodes=6),
    selection=SelectionSettings(budgets=(50,), candidates=1000, trials=4, repeats=2, updates=100),
)
_PAPER = StudyConfig(
    preset="paper",
    tasks=TaskSettings(n_shot=0, n_train=1_000_000, n_val=10_000, n_test=20_000),
    fit=FitSettings(n_tasks=100_000, max_passes=10, restarts=3),
    distances=DistanceSettings(probe_updates=2000),
    learners=LearnerSettings(
        names=("protonet", "maml", "abml", "bmaml", "vampire"), widths=(128,), train_tasks=100_000,
        batch_size=4,
    ),
    evaluate=EvaluateSettings(episodes=20),
    selection=SelectionSettings(
        rules=("nearest", "coverage", "task2vec"), budgets=(100, 500, 1000, 2000, 5000, 10_000),
        candidates=100_000, trials=50, repeats=10, updates=2500, episodes=1,
    ),
)  # fmt: skip
PRESETS: Mapping[str, StudyConfig] = MappingProxyType(
    {"quick": _QUICK, "default": _DEFAULT, "paper": _PAPER}
)
"""``quick`` for a look, ``default`` for a laptop, ``paper`` for the paper's sizes on a GPU."""


def preset(name: str, **changes: Any) -> StudyConfig:
    """A preset by name, with some of the top-level values changed.

    >>> preset("quick", seed=3).tasks.n_test
    200
    """
    from taskscape.arguments import check_choice  # imports NumPy, which help texts do not need

    return replace(PRESETS[check_choice(name, "preset", PRESETS)], **changes)


# -- TOML ---------------------------------------------------------------------------------------


def read_config(path: str | os.PathLike[str], base: StudyConfig | None = None) -> StudyConfig:
    """The settings of a TOML file over those of ``base``, or of the preset that the file names."""
    file = as_path(path)
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"no such file: {os.fspath(path)}.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{os.fspath(path)} is not readable TOML: {error}.") from error
    return config_from(values, os.fspath(path), base)


def config_from(
    values: Mapping[str, Any], source: str = "", base: StudyConfig | None = None
) -> StudyConfig:
    """The settings of a nested mapping, such as :meth:`StudyConfig.to_dict` gives.

    ``source`` says in errors where they are from.
    """
    values = dict(values)
    named = str(values.pop("preset", "default"))
    return changed(preset(named) if base is None else base, values, source and f"{source}: ")


def to_toml(config: StudyConfig) -> str:
    """All settings as TOML, which :func:`read_config` reads back."""
    return "\n".join(_toml_lines(config.to_dict())) + "\n"


def _toml_lines(values: Mapping[str, Any], name: str = "") -> list[str]:
    """A table, then those inside it; JSON's text, numbers and lists are TOML's too."""
    tables = {k: v for k, v in values.items() if isinstance(v, dict)}
    lines = [
        f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in values.items() if k not in tables
    ]
    if name and lines:
        lines = ["", f"[{name}]", *lines]
    for key, table in tables.items():
        lines += _toml_lines(table, f"{name}.{key}".lstrip("."))
    return lines


def write_config(path: Path, config: StudyConfig, *also: StudyConfig) -> None:
    """Write all settings; a file that was edited stays, and must say the same (or as ``also``)."""
    if path.is_file() and path.stat().st_size and not is_as_written(path):
        if read_config(path) not in (config, *also):
            raise DataError(
                f"{path} was edited, and has other settings than this run. Run with them by "
                f"--config {path}, or move the file away."
            )
        return
    with atomic_write(path) as file:
        file.write_bytes(f"{to_toml(config)}\n{_SIGNED}{NO_CHECKSUM_YET}\n".encode())
        add_checksum(file)
