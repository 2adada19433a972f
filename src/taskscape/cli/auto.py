"""What ``taskscape select --rule auto`` needs besides: a learner to try the rules with."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from taskscape.embeddings import Embeddings
from taskscape.errors import DataError
from taskscape.pools import ClassPool, load_pool
from taskscape.select import Selection, TrialOptions
from taskscape.studies.auto import select_auto
from taskscape.studies.recipes import (
    LEARNER_PRESETS,
    learner_and_training,
    network_for,
    prepared_pool,
)
from taskscape.tasks import TaskSet, load_tasks
from taskscape.themes.estimator import TaskThemes

__all__ = ["Trial"]

_SCALE = 8.0
_REMEDY = (
    "--rule auto trains a learner and needs --learner, --model, --data, --tasks, --validation and "
    "--validation-tasks; from Python: taskscape.studies.auto.select_auto."
)


@dataclass(frozen=True)
class Trial:
    """The wishes of the command line that only ``--rule auto`` looks at."""

    learner: str | None
    model: Path | None
    data: str | None
    tasks: Path | None
    validation: Path | None
    validation_tasks: Path | None
    trials: int
    budget: int | None

    def select(self, test: Embeddings, train: Embeddings, n: int, **options: Any) -> Selection:
        """Choose by the rule that helps the learner on the validation tasks."""
        if (
            self.learner is None
            or self.model is None
            or self.data is None
            or self.tasks is None
            or self.validation is None
            or self.validation_tasks is None
        ):
            raise DataError(_REMEDY)
        settings = LEARNER_PRESETS["forecasting"].get(self.learner, {})
        learner, training = learner_and_training(self.learner, settings)
        validation = Embeddings.load(self.validation)
        validation.header.check_same_model(train.header, str(self.validation), "the training tasks")
        pool = load_pool(self.data)
        preparation = TaskThemes.load(self.model).preparation_
        features = prepared_pool(pool, preparation, unit_length=True)
        return select_auto(
            test, train, n,
            learner=learner, network=network_for(features, settings, scale=_SCALE),
            training=training,
            train_tasks=_tasks(self.tasks, pool, features),
            validation=validation, validation_tasks=_tasks(self.validation_tasks, pool, features),
            trial=TrialOptions(trials=self.trials, n=self.budget), **options,
        )  # fmt: skip


def _tasks(path: Path, pool: ClassPool, features: ClassPool) -> TaskSet:
    return replace(load_tasks(path, pool), pool=features)
