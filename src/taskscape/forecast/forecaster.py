"""How well will a trained learner do on a task, given only its labelled samples?"""

import os
import warnings
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from taskscape.arguments import Seed, check_kind, check_number, check_whole, public, refuse_masked
from taskscape.embeddings import Embeddings, Factor, Posterior
from taskscape.errors import DataError
from taskscape.forecast.calibration import Calibration, calibrate
from taskscape.forecast.features import (
    COLUMNS,
    SHAPE,
    TRUST,
    Described,
    describe,
    read_even,
    unit_of,
)
from taskscape.forecast.result import ForecastEvaluation, Forecasts, evaluate_forecasts
from taskscape.io.arrays import load_arrays, save_arrays
from taskscape.io.values import damage_named, from_plain, plain
from taskscape.meta import Trained, evaluate
from taskscape.pools import ClassPool
from taskscape.tasks import TaskSet
from taskscape.themes.task_model import TaskModel

_FEW_OUTSIDE = 0.05
_KIND = "forecaster"


class ForecastWarning(UserWarning):
    """A forecast was made, but something about it needs attention."""


class Forecaster:
    """The expected accuracy of one trained learner on tasks of classes it has not seen.

    ``model`` is a fitted :class:`taskscape.TaskThemes` and ``train`` the tasks that the learner
    was trained on, or others of the same classes, embedded (:class:`taskscape.Embeddings`) or as a
    TaskSet. ``learner`` is its name, for the results. ``confidence`` is the part of tasks that
    intervals are meant to hold.

    ``fit`` wants tasks of *validation* classes, which neither the model nor the learner has learned
    from, and the learner's accuracy on them. Tasks are described by their support samples alone.
    """

    @public
    def __init__(
        self,
        model: TaskModel,
        train: Any,
        learner: str = "learner",
        *,
        confidence: float = 0.9,
    ) -> None:
        check_kind(learner, str, "learner", "Give its name.")
        check_number(confidence, "confidence", 0.5, 1, open_="high")
        self.model, self.learner, self.confidence = model, learner, confidence
        self.train = _read_train(model, train)
        self._train_classes = _classes_known(train)
        self._unit = unit_of(self.train)
        self.calibration: Calibration | None = None
        self._seen: tuple[str, frozenset[int]] = ("", frozenset())

    def __repr__(self) -> str:
        if self.calibration is None:
            return f"Forecaster({self.learner!r}, not fitted)"
        return (
            f"Forecaster({self.learner!r}, calibrated on {self.calibration.n_tasks:,} tasks of "
            f"{self.calibration.n_classes} classes)"
        )

    def summary(self) -> str:
        """What it was calibrated on, and how well it does on classes left out."""
        calibration = self._fitted()
        words = (
            f"{self.learner}: calibrated on {calibration.n_tasks:,} tasks of "
            f"{calibration.n_classes} classes, mean error on classes left out "
            f"{100 * calibration.error:.1f} points."
        )
        if calibration.beats_mean:
            return words
        return (
            f"{words} No forecast: always expecting the mean, "
            f"{100 * calibration.mean_accuracy:.1f} %, errs by "
            f"{100 * calibration.mean_error:.1f} points only."
        )

    def describe(self, tasks: TaskSet) -> Described:
        """The numbers of each task that forecasts look at, from its support samples.

        They do not depend on the learner: pass them as ``described`` to the other methods, of this
        and other forecasters with the same model and training tasks, to save doing it again.
        """
        return describe(tasks, self.model, self.train, self._unit)

    @public
    def fit(
        self, tasks: TaskSet, accuracy: Any, *, described: Described | None = None
    ) -> "Forecaster":
        """Learn from calibration tasks and the accuracies (tasks,) or (tasks, episodes) on them."""
        measured = _read_accuracy(accuracy, len(tasks))
        self._warn_if_shared(tasks, self._train_classes, "training tasks", "too high")
        X = self._numbers(tasks, described)
        self.calibration = calibrate(tuple(COLUMNS), X, measured.mean(axis=1), tasks.classes, TRUST)
        self._seen = (tasks.pool.fingerprint, frozenset(tasks.class_ids.tolist()))
        if self.calibration.shared:
            warnings.warn(
                f"{len(tasks):,} calibration tasks of {self.calibration.n_classes} classes are too "
                "few to leave out all classes of a task: up to "
                f"{self.calibration.shared} were shared, and the error on classes left out is "
                "flattering. Intervals allow for it by being wide; give more tasks, of more "
                "classes.",
                ForecastWarning,
                stacklevel=2,
            )
        return self

    def predict(self, tasks: TaskSet, *, described: Described | None = None) -> Forecasts:
        """The expected accuracy of each task with its interval, and the reasons for it."""
        calibration = self._fitted()
        X = self._numbers(tasks, described)
        few = {
            name: 0 if what == SHAPE else _FEW_OUTSIDE * len(X) for name, what in COLUMNS.items()
        }
        outside = zip(COLUMNS, calibration.outside(X).sum(axis=0), strict=True)
        if many := [(name, count) for name, count in outside if count > few[name]]:
            names = ", ".join(f"{name.replace('_', ' ')} ({n:,} of {len(X):,})" for name, n in many)
            warnings.warn(
                f"Some tasks lie outside what the calibration tasks covered: {names}. Their "
                "forecasts extrapolate; calibrate with tasks of such ways, shots and distances.",
                ForecastWarning,
                stacklevel=2,
            )
        return calibration.expect(X, tasks.n_way, self.confidence, self.learner)

    def evaluate(
        self, tasks: TaskSet, accuracy: Any, *, described: Described | None = None
    ) -> ForecastEvaluation:
        """Compare the forecasts for tasks with accuracies (tasks, episodes) measured on them."""
        measured = _read_accuracy(accuracy, len(tasks))
        mean = self._fitted().mean_accuracy
        self._warn_if_shared(tasks, self._seen, "calibration tasks", "flattering")
        return evaluate_forecasts(
            self.predict(tasks, described=described), measured, tasks.classes, mean
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a folder (safetensors and JSON) that :meth:`load` reads, given the same model."""
        header = {
            "what": _KIND,
            "calibration": plain(self._fitted()),
            "learner": self.learner,
            "confidence": self.confidence,
            "model": self.model.fingerprint_,
            "calibration_pool": self._seen[0],
            "calibration_classes": sorted(self._seen[1]),
            "factors": [asdict(f) for f in self.train.factors],
        }
        half = all(f.half for f in self.train.factors)
        train = self.train.values.astype(np.float16 if half else np.float32)
        save_arrays(path, {"train": train, "train_logs": self.train.logs}, header)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: TaskModel) -> "Forecaster":
        """Read what :meth:`save` wrote; ``model`` must be the one it was made with."""
        arrays, header = load_arrays(path, _KIND)
        with damage_named(path, f"a {_KIND}"):
            if header["model"] != model.fingerprint_:
                raise DataError(
                    f"{os.fspath(path)} was made with another model (fingerprint "
                    f"{header['model'][:12]}…, this one {model.fingerprint_[:12]}…)."
                )
            calibration = from_plain(Calibration, header["calibration"])
            factors = tuple(Factor(**f) for f in header["factors"])
            train = arrays["train"].astype(np.float32)
            forecaster = cls(
                model, Posterior(train, arrays["train_logs"], factors), header["learner"],
                confidence=header["confidence"],
            )  # fmt: skip
            forecaster.calibration = calibration
            classes = frozenset(header["calibration_classes"])
            forecaster._seen = header["calibration_pool"], classes
            return forecaster

    def _fitted(self) -> Calibration:
        if self.calibration is None:
            raise DataError("this forecaster is not fitted; call fit(tasks, accuracy) first.")
        return self.calibration

    def _numbers(
        self, tasks: TaskSet, described: Described | None
    ) -> Float[np.ndarray, "tasks columns"]:
        known = self.describe(tasks) if described is None else described
        X = np.stack([known[name] for name in COLUMNS], axis=1)
        if len(X) != len(tasks):
            raise DataError(f"described has {len(X)} tasks, not {len(tasks)}.")
        return X

    def _warn_if_shared(
        self, tasks: TaskSet, known: tuple[str, frozenset[int]], where: str, how: str
    ) -> None:
        shared = known[1] & set(tasks.class_ids.tolist()) if known[1] else ()
        if shared and tasks.pool.fingerprint == known[0]:
            warnings.warn(
                f"{len(shared)} classes, such as {tasks.pool.class_names[min(shared)]!r}, are "
                f"among those of the {where} too: the figures will be {how}. Use tasks of other "
                "classes.",
                ForecastWarning,
                stacklevel=3,
            )


def forecast(
    trained: Trained,
    model: TaskModel,
    train_tasks: Any,
    calibration_tasks: TaskSet,
    new_tasks: TaskSet,
    *,
    learner_pool: ClassPool | None = None,
    episodes: int = 10,
    confidence: float = 0.9,
    seed: Seed = 0,
) -> Forecasts:
    """The expected accuracy of a trained learner on new tasks, from their support samples alone.

    ``train_tasks`` are those the learner was trained on, as tasks or embeddings.
    ``calibration_tasks`` have queries and classes that the learner has not seen; each is evaluated
    ``episodes`` times with freshly drawn samples. ``learner_pool`` holds the same classes and
    samples as the learner takes them, where that differs from what the model takes, such as
    features of unit length.
    """
    if calibration_tasks.n_query == 0:
        raise DataError("calibration_tasks have no queries; make them with n_query=15, say.")
    check_whole(episodes, "episodes", 1)
    learner = type(trained.learner).__name__
    forecaster = Forecaster(model, train_tasks, learner, confidence=confidence)
    own, pool = calibration_tasks.pool, learner_pool or calibration_tasks.pool
    if pool.class_names != own.class_names or (pool.counts != own.counts).any():
        raise DataError(
            f"learner_pool {pool!r} has other classes, or other numbers of samples, than "
            f"{own!r}; both must hold the same samples."
        )
    taken = replace(calibration_tasks, pool=pool)
    measured = evaluate(trained.learner, trained.state, taken, episodes=episodes, seed=seed)
    return forecaster.fit(calibration_tasks, measured).predict(new_tasks)


def _read_train(model: TaskModel, train: Any) -> Posterior:
    if isinstance(train, Posterior):  # read back
        return train
    if isinstance(train, TaskSet):
        train = model.embed(train)
    check_kind(train, Embeddings, "train", "Embed the training tasks with model.embed.")
    if train.header.model != model.fingerprint_:
        raise DataError(
            f"train was embedded by another model (fingerprint {train.header.model[:12]}…, this "
            f"one {model.fingerprint_[:12]}…). Embed the training tasks with this model."
        )
    return read_even(train)


def _read_accuracy(accuracy: Any, n_tasks: int) -> Float[np.ndarray, "tasks episodes"]:
    """Accuracies as (tasks, episodes), of an array or an evaluation."""
    given = refuse_masked(getattr(accuracy, "accuracy_by_episode", accuracy), "accuracy")
    values = np.asarray(given, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != n_tasks or values.shape[1] == 0:
        raise DataError(
            f"accuracy has shape {np.shape(values)}; expected ({n_tasks},) or ({n_tasks}, "
            "episodes), a value for every task."
        )
    bad = values[~((values >= 0) & (values <= 1))]
    if len(bad):
        raise DataError(f"accuracy holds {bad[0]:g}; give fractions from 0 to 1, not percent.")
    if n_tasks == 0:
        raise DataError("there are no tasks.")
    return values


def _classes_known(train: Any) -> tuple[str, frozenset[int]]:
    if isinstance(train, TaskSet):
        return train.pool.fingerprint, frozenset(train.class_ids.tolist())
    if not isinstance(train, Embeddings):
        return "", frozenset()
    return train.header.fingerprint, frozenset(train.classes[train.classes >= 0].tolist())
