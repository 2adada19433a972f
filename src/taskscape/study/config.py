"""The settings of a whole study, by stage, with three presets; from and to TOML.

Every mistake in a file is named with its key, its value and a remedy.
"""

import difflib
import hashlib
import json
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, get_origin, get_type_hints

from taskscape.errors import DataError
from taskscape.io.files import as_path, written_in_one_piece
from taskscape.meta.learners import LEARNERS
from taskscape.similarity.known import DEFAULT_SIMILARITY

if TYPE_CHECKING:
    import taskscape.meta

Number: TypeAlias = int | float | str | bool
_SIGNED = "# Written by taskscape, which never replaces this file once it is edited. Checksum: "


@dataclass(frozen=True)
class SourceSettings:
    """How the data are opened; see :func:`taskscape.load_pool`."""

    image_size: int = 0
    """Pixels to bring pictures to; 0 means as they are."""
    min_samples: int = 0
    """Classes with fewer samples are left out; 0 means none."""
    skip_damaged: bool = False
    """Whether to leave out what cannot be read, instead of an error."""
    split_file: str = ""
    """A CSV file with the columns class and split."""
    group_file: str = ""
    """A CSV file with the columns class and group."""
    encoder: str = ""
    """What makes features of the samples, as ``module:function``."""

    def options(self) -> dict[str, Any]:
        """What is asked of :func:`~taskscape.load_pool`."""
        asked = asdict(self)
        asked["splits"], asked["groups"] = asked.pop("split_file"), asked.pop("group_file")
        return {name: value for name, value in asked.items() if value}


@dataclass(frozen=True)
class TaskSettings:
    """The tasks that are embedded and compared."""

    n_way: int = 5
    """Classes of a task."""
    n_shot: int = 16
    """Most samples of each class that a task is embedded by; 0 means all."""
    n_train: int = 20_000
    """Different training tasks, at most."""
    n_val: int = 500
    """Validation tasks, at most."""
    n_test: int = 500
    """Test tasks, at most."""
    val_share: float = 0.2
    """Part of the (training) classes held out for validation, where the data name none."""
    test_share: float = 0.2
    """Part of the classes kept for testing, where the data name none."""
    within_group: bool = False
    """Whether all classes of a task are from one group."""


@dataclass(frozen=True)
class FitSettings:
    """The model: :class:`taskscape.TaskThemes`, with the paper's co-clustering beside it.

    All but ``prepare`` and ``choose_settings`` is about the co-clustering, which shows kinds of
    classes.
    """

    n_tasks: int = 8000
    """Tasks that the model learns from."""
    n_way: tuple[int, int] = (5, 10)
    """Classes of these tasks, from and to."""
    n_shot: int = 16
    """Most samples of each class."""
    task_themes: int = 4
    """L, the number of task-themes."""
    image_themes: int = 8
    """K, the number of image-themes."""
    delta: float = 0.5
    """δ, the concentration of the task mixture."""
    covariance: str = "full"
    """``full``, ``diag`` or ``tied``."""
    prepare: str = "auto"
    """``auto``, ``none``, or steps such as ``power=0.5,l2,centre,pca=32``."""
    choose_settings: bool = False
    """Look for better ones than the defaults: :func:`taskscape.similarity.choose_settings`."""
    max_passes: int = 3
    """Most passes over the tasks."""
    restarts: int = 1
    """Fits from different starts."""
    ensemble: int = 1
    """How many of the best fits to keep, of at least as many restarts."""

    def model(self, seed: int) -> "taskscape.TaskThemes":
        """The model that these settings ask for, not yet fitted."""
        from taskscape.themes.estimator import TaskThemes
        from taskscape.themes.prepare import parse_prepare

        prepare: Any = parse_prepare(self.prepare, "fit.prepare=")
        paper = TaskThemes.paper(
            self.task_themes, self.image_themes, delta=self.delta, covariance=self.covariance,
            prepare=prepare, max_passes=self.max_passes, n_restarts=self.restarts,
            ensemble=self.ensemble, random_state=seed,
        )  # fmt: skip
        return TaskThemes(prepare=prepare, co_clustering=paper, random_state=seed)


@dataclass(frozen=True)
class LearnerSettings:
    """The meta-learners, and how they are trained on random training tasks."""

    names: tuple[str, ...] = ("protonet", "maml")
    """Which to train (:data:`taskscape.meta.LEARNERS`)."""
    network: str = "mlp"
    """``mlp`` on prepared features, or ``conv4`` on images (:data:`taskscape.meta.NETWORKS`)."""
    widths: tuple[int, ...] = (64,)
    """Hidden layers of ``mlp``."""
    filters: int = 64
    """Filters of ``conv4``."""
    train_tasks: int = 20_000
    """At most as many as there are training tasks."""
    epochs: int = 1
    """How often they see each training task."""
    batch_size: int = 8
    """Tasks in an update."""
    settings: Mapping[str, Mapping[str, Number]] = field(
        default_factory=lambda: {name: entry.settings for name, entry in LEARNERS.items()}
    )
    """By learner: its own settings, those of the training, and ``scale`` of the features."""

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
    """Bins of the diagram: ``paper`` (of equal width) or ``quantile``."""
    n_bins: int = 10
    """How many bins the diagram has."""
    confidence: float = 0.95
    """Of the diagram's intervals."""


@dataclass(frozen=True)
class SelectionSettings:
    """Training on few tasks, chosen by rules, against as many chosen at random."""

    rules: tuple[str, ...] = ("nearest", "coverage")
    """A rule alone goes by the study's similarity; ``rule:similarity`` by that one, and a
    similarity measure alone means its nearest."""
    budgets: tuple[int, ...] = (100,)
    """How many tasks are chosen."""
    candidates: int = 4000
    """The training tasks to choose from, at most as many as there are."""
    trials: int = 6
    """Random choices."""
    repeats: int = 3
    """Trainings on what every other rule chose, from different starts."""
    n_shot: int = 5
    """Labelled samples of each class."""
    n_query: int = 15
    """Most queries of each class."""
    updates: int = 500
    """Updates of every training, whatever the budget: small budgets are seen more often."""
    episodes: int = 2
    """Draws of samples that accuracy is averaged over."""
    probe_updates: int = 1000
    """Updates of the network that Task2Vec looks through."""


@dataclass(frozen=True)
class TargetSettings:
    """What to train on for targets; see :func:`taskscape.advise`."""

    names: tuple[str, ...] = ()
    """Groups of the data, or paths of folders and files of your own. None: nothing is asked."""
    learners: tuple[str, ...] = ("protonet",)
    """Which to train for them."""
    budget: int = 100
    """How many tasks are chosen for each."""
    candidates: int = 2000
    """Training tasks to choose from, drawn within groups."""
    n_shot: int = 5
    """Most labelled samples of each class that a target is known by."""
    n_query: int = 15
    """Most queries of each class, where there are samples to spare."""
    trials: int = 3
    """Trainings of each way to choose."""
    updates: int = 400
    """Updates of every training."""
    fingerprints: tuple[str, ...] = ()
    """Of the targets that were opened; written, not asked for."""
    kept_out: tuple[str, ...] = ()
    """Their classes that would be for training, and test instead; written, not asked for."""


@dataclass(frozen=True)
class ForecastSettings:
    """Expected accuracies of the test tasks, learned from the validation tasks."""

    enabled: bool = True
    """Whether to forecast."""
    confidence: float = 0.9
    """Part of the tasks that an interval is meant to hold."""
    n_shot: int = 0
    """Most labelled samples of each class that a task is known by; 0 means those that it is
    embedded by (``tasks.n_shot``)."""


@dataclass(frozen=True)
class ReportSettings:
    """The HTML report."""

    enabled: bool = True
    """Whether to write ``report.html``."""


@dataclass(frozen=True)
class StudyConfig:
    """All settings of a study; ``preset("quick")`` and others give good ones to start from."""

    preset: str = "default"
    """Where the other values start from: ``quick``, ``default`` or ``paper``."""
    data: str = "letters"
    """What to open: a known name, a path, or several joined by ``+``. A pool given as an object
    takes precedence."""
    seed: int = 0
    """Of tasks, fit, learners and choices."""
    similarity: str = DEFAULT_SIMILARITY
    """How far tasks are from each other: one of :data:`taskscape.similarity.SIMILARITIES`, or with
    another divergence, ``themes:jeffreys``."""
    source: SourceSettings = field(default_factory=SourceSettings)
    tasks: TaskSettings = field(default_factory=TaskSettings)
    fit: FitSettings = field(default_factory=FitSettings)
    learners: LearnerSettings = field(default_factory=LearnerSettings)
    evaluate: EvaluateSettings = field(default_factory=EvaluateSettings)
    selection: SelectionSettings = field(default_factory=SelectionSettings)
    targets: TargetSettings = field(default_factory=TargetSettings)
    forecast: ForecastSettings = field(default_factory=ForecastSettings)
    report: ReportSettings = field(default_factory=ReportSettings)

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
    learners=LearnerSettings(
        names=("protonet", "maml", "abml", "bmaml", "vampire"), widths=(128,), train_tasks=100_000,
        batch_size=4,
    ),
    evaluate=EvaluateSettings(episodes=20),
    selection=SelectionSettings(
        rules=("nearest", "coverage", "task2vec"), budgets=(100, 500, 1000, 2000, 5000, 10_000),
        candidates=100_000, trials=50, repeats=10, updates=2500, episodes=1, probe_updates=2000,
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
    values: Mapping[str, Any], source: str = "the settings", base: StudyConfig | None = None
) -> StudyConfig:
    """The settings of a nested mapping, such as :meth:`StudyConfig.to_dict` gives."""
    values = dict(values)
    if base is None:
        base = preset(_as(str, values.get("preset", "default"), "preset", source))
    return _changed(base, {k: v for k, v in values.items() if k != "preset"}, source)


def _changed(old: Any, values: Mapping[str, Any], source: str, where: str = "") -> Any:
    """A dataclass of settings with some values changed, each checked to be of the right kind."""
    kinds = get_type_hints(type(old))
    new: dict[str, Any] = {}
    for key, value in values.items():
        if key not in kinds:
            near = difflib.get_close_matches(key, kinds, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            section = f"section [{where[:-1]}]" if where else "the top level"
            raise DataError(
                f"{where}{key}={value!r} in {source} is not a setting; {section} has "
                f"{', '.join(kinds)}.{hint}"
            )
        before = getattr(old, key)
        if is_dataclass(before):
            if not isinstance(value, Mapping):
                raise DataError(
                    f"{key}={value!r} in {source} must be a section, [{key}], with settings in it."
                )
            new[key] = _changed(before, value, source, f"{key}.")
        elif key == "settings":
            new[key] = _by_learner(value, source, where, before)
        else:
            new[key] = _as(kinds[key], value, f"{where}{key}", source)
    return replace(old, **new)


def _as(kind: Any, value: Any, name: str, source: str) -> Any:
    """The value as this kind of setting."""
    from taskscape.arguments import python_number  # imports NumPy, which help texts do not need

    value = python_number(value)
    if get_origin(kind) is tuple:
        inner, *rest = get_args(kind)
        length = None if rest == [Ellipsis] else 1 + len(rest)
        if isinstance(value, list | tuple) and length in (None, len(value)):
            return tuple(_as(inner, v, name, source) for v in value)
        many = "a list" if length is None else f"a list of {length}"
        example = ["a", "b"] if inner is str else [5, 10]
        raise DataError(
            f"{name}={value!r} in {source} must be {many}, such as {json.dumps(example)}."
        )
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    finite = not isinstance(value, float) or math.isfinite(value)
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)) and finite:
        return value
    words = {int: "a whole number", float: "a finite number", str: "text in quotes"}
    raise DataError(f"{name}={value!r} in {source} must be {words.get(kind, 'true or false')}.")


def _by_learner(
    value: Any, source: str, where: str, before: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Settings of learners: a table of plain values for each, over those there were before."""
    merged = {name: dict(own) for name, own in before.items()}
    named = value if isinstance(value, Mapping) else {"": value}
    for name, own in named.items():
        if not isinstance(own, Mapping) or any(isinstance(v, Mapping | list) for v in own.values()):
            raise DataError(
                f"{where}settings in {source} must have a table for each learner, such as "
                "[learners.settings.maml] with inner_steps = 5 in it."
            )
        for key, number in own.items():
            _as(type(number), number, f"{where}settings.{name}.{key}", source)
        merged[name] = {**merged.get(name, {}), **own}
    return merged


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
    if path.is_file() and _edited(path):
        if read_config(path) not in (config, *also):
            raise DataError(
                f"{path} was edited, and has other settings than this run. Run with them by "
                f"--config {path}, or move the file away."
            )
        return
    text = to_toml(config)
    with written_in_one_piece(path) as file:
        file.write_text(f"{_SIGNED}{_checksum(text)}\n{text}", encoding="utf-8", newline="\n")


def _edited(path: Path) -> bool:
    first, _, rest = path.read_bytes().decode("utf-8", "replace").partition("\n")
    return first != f"{_SIGNED}{_checksum(rest)}"


def _checksum(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
